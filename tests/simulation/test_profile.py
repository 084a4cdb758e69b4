"""The door for libraries: one toy profile, alone, message by message and in replay, with times worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import simpy

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import Overheads
from s2sim.collectives.schedules.round_latency import inside_node
from s2sim.collectives.timing.bounds import duration_ps, lower_bound, rank_ends_ps, simulate_ps
from s2sim.collectives.timing.collective_run import CollectiveRun
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile, apply_overheads
from s2sim.collectives.timing.rounds import RoundTimes, link_bytes
from s2sim.collectives.timing.routes import find_routes
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError, S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.libraries.lowering import IDEAL, choose_library
from s2sim.network.fluid import FluidNetwork
from s2sim.network.network import make_network
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.simulation.faults.registry import make_faults
from s2sim.simulation.plan import make_plan
from s2sim.simulation.run import replay
from s2sim.topology.hardware import load_gpu
from s2sim.traffic.collective_run import collective_result, plan_collective
from s2sim.traffic.spec import CollectiveSpec

US = 10**6
NIC_BPS = 50 * 2**30
WORKERS = 4


@dataclass(frozen=True, slots=True)
class Toy(LibraryProfile):
    """1 us a message in a node, 3 us and twice the bytes between nodes, where a connection has a rate of its own."""

    limit_Bps: float = 10e9

    def overheads(self, sent, _schedule, cluster):
        inside = inside_node(cluster, sent.pattern)
        return Overheads(
            np.where(inside, 1 * US, 3 * US), np.where(inside, 1.0, 2.0), np.where(inside, np.inf, self.limit_Bps)
        )

    def launch_ps(self, _schedule, _cluster):
        return 20 * US

    def estimate_us(self, demand, algorithm, _cluster):
        return {"ring": 1.0}.get(algorithm, 2.0) if demand.kind == "all_reduce" else None


@pytest.fixture
def cluster(make_cluster, switch_fabric):
    """Two nodes of two GPUs: between nodes there is 1 us of latency and 50 GiB/s, inside 100 GB/s and no latency."""
    return make_cluster(WORKERS, switch_fabric, node="gpus = 2", extra='[nvlink]\nrate = "100GB/s"')


ALL_REDUCE = Demand("all_reduce", (1_000_000,) * WORKERS, 4)
# Six rounds of a megabyte; those between nodes clock them: 1 + 3 us, and two megabytes at 10 GB/s.
RING_PS = 20 * US + 6 * (4 * US + 200 * US)


def test_a_profile_adds_latency_inflates_caps_charges_a_launch_and_chooses(cluster):
    timed = Timer(cluster, profile=Toy()).time(ALL_REDUCE)
    assert timed.schedule.algorithm == "ring"
    assert timed.why.startswith("the library's own choice: it estimates 1 us against 2 us by ")
    assert timed.duration_ps == RING_PS
    assert simulate_ps(timed.schedule, cluster) == RING_PS
    assert closed_form_s(timed.schedule, cluster) == pytest.approx(RING_PS / 1e12, rel=1e-12)
    assert rank_ends_ps(timed.schedule, cluster, timed.times).tolist() == [RING_PS] * WORKERS
    assert lower_bound([ALL_REDUCE], cluster.cuts()).seconds < RING_PS / 1e12
    assert Timer(cluster).time(ALL_REDUCE).schedule.algorithm.startswith("double-binary-tree")
    # Twice the bytes cross the network, and no more than were cross NVLink.
    carried = dict(zip(cluster.fabric.link_names, link_bytes(timed.schedule, timed.times), strict=True))
    assert (carried["node0.nic0.out"], carried["node0.gpu0.nvlink.out"]) == (12e6, 6e6)
    # What ranks have to send is the same.
    assert timed.schedule.traffic()[0].tolist() == [6_000_000] * WORKERS


def test_an_algorithm_that_is_asked_for_comes_before_the_choice_of_the_library(cluster):
    timed = Timer(cluster, "direct", profile=Toy()).time(ALL_REDUCE)
    assert timed.schedule.algorithm == "direct"
    assert timed.duration_ps == simulate_ps(timed.schedule, cluster)
    # Without a choice of its own it is as without a library.
    gather = Timer(cluster, profile=Toy()).time(Demand("all_gather", (1000,) * WORKERS, 4))
    assert gather.why == "what libraries commonly run for all_gather"
    # Three rounds of 4,000 bytes a message.
    assert gather.duration_ps == 20 * US + 3 * (4 * US + 8000 * 100)


def test_the_plain_profile_changes_nothing(cluster):
    schedule = make_algorithm("ring", "all_reduce").schedule(ALL_REDUCE, cluster)
    assert apply_overheads(schedule, cluster, NO_OVERHEADS) is schedule
    assert apply_overheads(schedule, cluster, LibraryProfile()) is schedule
    # One that adds nothing gives the same rounds, whose patterns know of no overheads.
    timer = Timer(cluster, "ring")
    other = timer.with_profile(Idle())
    assert other.time(ALL_REDUCE).duration_ps == timer.time(ALL_REDUCE).duration_ps
    assert other.with_profile(NO_OVERHEADS) is timer
    assert timer.with_profile(Idle()) is other


@dataclass(frozen=True, slots=True)
class Idle(LibraryProfile):
    """Something else than `LibraryProfile`, though it adds nothing."""


@pytest.mark.parametrize(
    ("limit_Bps", "rate_Bps"), [(10e9, 10e9), (40e9, NIC_BPS / 2)], ids=["the limit binds", "the shared port binds"]
)
@pytest.mark.parametrize("algorithm", ["pairwise", "pairwise:release=sent"])
def test_limits_bind_connections_and_links_bind_those_that_share_them(cluster, limit_Bps, rate_Bps, algorithm):
    """Both ranks of a node send to the other node at once: in two of the three shifts one of them, then both."""
    demand = Demand("all_to_all", (4_000_000,) * WORKERS, 1)
    timed = Timer(cluster, algorithm, profile=Toy(limit_Bps)).time(demand)
    assert timed.duration_ps == simulate_ps(timed.schedule, cluster)
    assert timed.duration_ps == pytest.approx(_pairwise_ps(limit_Bps, rate_Bps, algorithm), abs=6)
    with pytest.raises(ContendedError):
        closed_form_s(timed.schedule, cluster)


def _pairwise_ps(limit_Bps, shared_Bps, algorithm):
    """Return the time of a megabyte to each of three ranks, which takes twice as many bytes between nodes."""
    alone_ps, shared_ps = 2e18 / min(limit_Bps, NIC_BPS), 2e18 / shared_Bps
    # Shift 2 crosses for both ranks of a node, shifts 1 and 3 for one of them; the other's is inside.
    bytes_ps = 2 * alone_ps + shared_ps
    # Where the next round follows the last byte, only the last one's latency is waited for.
    return 20 * US + bytes_ps + (4 * US if "sent" in algorithm else 3 * 4 * US)


def test_two_collectives_at_once_share_links_and_no_limits(cluster):
    """With 10 GB/s a connection the port carries both without loss; without a limit they would share it."""

    def both(profile):
        env = simpy.Environment(initial_time=0)
        network = FluidNetwork(env, cluster.fabric)
        ends = []
        timed = Timer(cluster, "ring", profile=profile).time(ALL_REDUCE)
        for _ in range(2):
            CollectiveRun(network, timed.schedule, cluster, lambda: ends.append(env.now), passing=timed.times).start()
        env.run()
        return ends

    assert both(Toy()) == [RING_PS] * 2
    shared_ps = 20 * US + 6 * (4 * US + 2e18 * 2 / NIC_BPS)
    assert both(Toy(np.inf)) == pytest.approx([shared_ps] * 2, abs=6)


@pytest.mark.parametrize("size", [4, 4000, 4_000_000])
@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("ring:chunks=2,release=sent", "all_reduce"),
        ("double-binary-tree:chunks=3", "all_reduce"),
        ("hierarchical", "all_reduce"),
        ("chain:chunks=5", "broadcast"),
        ("in-network", "all_reduce"),
    ],
)
def test_fast_and_plain_paths_agree_and_a_profile_makes_nothing_faster(cluster, algorithm, kind, size):
    demand = Demand(kind, (size,) * WORKERS, 1)
    plain, toy = (Timer(cluster, algorithm, profile=profile).time(demand) for profile in (NO_OVERHEADS, Toy()))
    assert toy.duration_ps == simulate_ps(toy.schedule, cluster)
    assert toy.duration_ps >= plain.duration_ps + 20 * US + 1 * US
    assert toy.schedule.algorithm == plain.schedule.algorithm
    assert toy.schedule.rounds == plain.schedule.rounds
    try:
        expected_s = closed_form_s(toy.schedule, cluster)
    except ContendedError:
        return
    assert expected_s == pytest.approx(toy.duration_ps / 1e12, rel=1e-6)


def test_rounds_of_one_pattern_go_on_sharing_it(cluster):
    demand = Demand("all_gather", (10, 20, 30, 40), 4)
    sent = apply_overheads(make_algorithm("ring", "all_gather").schedule(demand, cluster), cluster, Toy())
    assert len({step.round for step in sent.steps}) == 3
    assert len({step.round.pattern for step in sent.steps}) == 1


def test_overheads_that_would_break_a_lower_bound_are_refused(cluster):
    good = np.zeros(1, np.int64), np.ones(1), np.full(1, np.inf)
    for index, bad in enumerate((np.full(1, -1), np.full(1, 0.5), np.zeros(1))):
        with pytest.raises(S2SimError, match="no fewer bytes"):
            Overheads(*good[:index], bad, *good[index + 1 :])

    @dataclass(frozen=True, slots=True)
    class Early(LibraryProfile):
        def launch_ps(self, _schedule, _cluster):
            return -1

    with pytest.raises(S2SimError, match="must not be negative"):
        Timer(cluster, "ring", profile=Early()).time(ALL_REDUCE)


def test_packets_refuse_what_they_do_not_know(cluster):
    schedule = Timer(cluster, profile=Toy()).time(ALL_REDUCE).schedule
    network = make_network("packet", simpy.Environment(initial_time=0), cluster.fabric)
    with pytest.raises(S2SimError, match="no limit of a route"):
        network.add_routes(find_routes(cluster, schedule.steps[0].round.pattern))


def test_one_rank_pays_the_launch(make_cluster, switch_fabric):
    one = make_cluster(1, switch_fabric)
    timed = Timer(one, profile=Toy()).time(Demand("all_reduce", (8,), 4))
    assert timed.duration_ps == simulate_ps(timed.schedule, one) == 20 * US
    assert closed_form_s(timed.schedule, one) == pytest.approx(20e-6)
    assert duration_ps(timed.schedule, one, RoundTimes(one)) == 20 * US


def gradients_of(elements, workers=WORKERS):
    """Return a gradient a rank, every second row of which is empty."""
    rows = np.arange(elements // 10) * 2
    layer = RowSparse(rows, np.ones((len(rows), 5), np.float32), (elements // 5, 5))
    return [Gradient(("table",), (layer,))] * workers


class Watching:
    """Counts rounds, and makes a replay send every message."""

    def __init__(self, links):
        self.rounds = 0
        self.links = links

    def add_round(self, _ran, what):
        self.rounds += what == "all_reduce"

    def add_work(self, *_):
        pass

    def add_loads(self, _now_ps, loads_Bps):
        assert len(loads_Bps) == self.links


def test_a_whole_reducer_pays_for_the_profile_of_its_library(cluster):
    recording = run_reducer(make_reducer("dense"), gradients_of(1_000_000)).recording
    timer, gpu, watcher = Timer(cluster), load_gpu("a100"), Watching(len(cluster.fabric))
    plan = make_plan(recording, replace(choose_library("nccl"), profile=Toy()))
    assert replay(recording, timer, gpu, plan).total_ps == RING_PS
    assert replay(recording, timer, gpu, plan, watcher).total_ps == RING_PS
    assert watcher.rounds == 6
    # The same timer without a library, before and after.
    assert replay(recording, timer, gpu).total_ps == timer.time(ALL_REDUCE).duration_ps < RING_PS


def test_every_launch_of_a_reducer_is_charged(cluster):
    recording = run_reducer(make_reducer("union"), gradients_of(100_000)).recording
    timer, library = Timer(cluster, "ring"), choose_library("nccl")
    plans = [make_plan(recording, replace(library, profile=profile)) for profile in (NO_OVERHEADS, Toy())]
    plain, toy = (replay(recording, timer, load_gpu("a100"), plan) for plan in plans)
    assert len(toy.launches) == 2
    sizes_bytes = [launch.timed.schedule.demand.buffer_bytes for launch in toy.launches]
    # A chunk inside a node is quicker than one between nodes, with the profile or without.
    more_ps = [20 * US + 6 * (3 * US + size / 4 * (200 - 1e12 / NIC_BPS)) for size in sizes_bytes]
    assert toy.total_ps - plain.total_ps == pytest.approx(sum(more_ps), abs=24)
    assert (toy.encode_ps, toy.decode_ps) == (plain.encode_ps, plain.decode_ps)


def test_limits_and_latency_stay_where_messages_take_another_way(make_cluster):
    """The links of both ranks fail in the middle of a round: others would carry the rest five times as fast."""
    tree = make_cluster(2, 'kind = "fat-tree"\nhosts_per_leaf = 1\nuplinks_per_leaf = 2')
    recording = run_reducer(make_reducer("dense"), gradients_of(1_000_000, 2)).recording
    plan = make_plan(recording, replace(IDEAL, profile=Toy()))
    crossed = (
        tree.fabric.link_names[tree.routes([0], [1]).links[1]],
        tree.fabric.link_names[tree.routes([1], [0]).links[1]],
    )
    assert [name[:8] for name in crossed] == ["leaf0.up", "leaf1.up"]
    for at in ("200us", "1ms"):
        faults = make_faults([f"fail-link:link={link},at={at}" for link in crossed])
        found = replay(recording, Timer(tree), load_gpu("a100"), plan, faults=faults)
        assert found.total_ps == 20 * US + 2 * (3 * US + 400 * US)
        assert [effect.nothing for effect in found.effects] == [at == "1ms"] * 2


def test_groups_of_ranks_pay_for_the_profile_too(cluster):
    """Ranks 1 and 2 are on different nodes, 0 and 1 on one, where messages take 1 us and no more bytes."""
    timer = Timer(cluster).with_profile(Toy())
    halves = Demand("all_reduce", (500_000,) * 2, 4)
    assert timer.within((1, 2)).time(halves).duration_ps == 20 * US + 2 * (4 * US + 200 * US)
    assert timer.within((0, 1)).time(halves).duration_ps == 20 * US + 2 * (1 * US + 10 * US)


def test_a_collective_of_the_study_is_told_with_the_profile(cluster_file, switch_fabric):
    topology = cluster_file(switch_fabric, node="gpus = 2", extra='[nvlink]\nrate = "100GB/s"')
    for faults, late_ps in (((), 0), (("slow-rank:rank=2,delay=1ms",), 10**9)):
        spec = CollectiveSpec(topology, kind="all_reduce", workers=WORKERS, size_bytes=4_000_000, faults=faults)
        planned = plan_collective(spec)
        timed = planned.scenario.timer(WORKERS).with_profile(Toy()).time(planned.demand)
        found = collective_result(replace(planned, timed=timed))
        assert found.time_s == pytest.approx((RING_PS + late_ps) / 1e12, rel=1e-12)
        assert found.closed_form_s == (None if faults else pytest.approx(RING_PS / 1e12, rel=1e-12))
        # Clocked rounds end for all at once; ranks that wait for their own messages alone may end sooner.
        assert max(found.rank_finish_s) == found.time_s
        assert faults or found.rank_finish_s == (found.time_s,) * WORKERS
        assert found.lower_bound_s == lower_bound([ALL_REDUCE], planned.cluster.cuts()).seconds < found.time_s
        # The port between nodes is busy with 12 megabytes, and they are what it is asked to carry.
        assert found.bottlenecks[0].bytes == pytest.approx(12e6)
