"""Reducers whose ranks post unlike sequences and may end unlike: value, bytes and time by hand."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from functools import reduce
from operator import and_
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import s2sim
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError, S2SimError, S2SimWarning
from s2sim.experiment.execute import ExecutedRecording
from s2sim.experiment.lower_bounds import communication_bound
from s2sim.experiment.scenario.cluster import Machines
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.experiment.steps import run_steps
from s2sim.experiment.timeline import record_timeline
from s2sim.gradients.gradient import Gradient, to_dense
from s2sim.gradients.synthetic import load_trace
from s2sim.libraries.lowering import SIZE_EXCHANGE, choose_library
from s2sim.reducers.measure import error_of, mean_float64
from s2sim.reducers.rank import Reduced, Reducer, Traits
from s2sim.reducers.registry import REDUCERS
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Post, Work, count_rounds, recording_bytes
from s2sim.simulation.plan import make_plan
from s2sim.simulation.run import replay
from s2sim.testing.reducer_properties import example_gradients
from s2sim.testing.reducers import check_reducer
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import load_gpu
from s2sim.topology.read_file import load_shape

RATE_BPS = 50 * 2**30
NVLINK_BPS = 200 * 2**30
PS = 1e12
ELEMENTS = 60_000
BYTES = 4 * ELEMENTS


@dataclass(slots=True)
class Gossip(Reducer):
    """Each rank averages with its two neighbours on a ring."""

    unknown: bool = False

    about = Traits("gossip", "an average with the two neighbours on a ring", "a test", agrees=False)

    def compresses(self, gradient):
        return tuple(range(len(gradient.layers)))

    def reduce(self, rank, gradient):
        # With two ranks both neighbours are the other one, with one there is none.
        neighbours = {(rank.index + 1) % rank.size, (rank.index - 1) % rank.size} - {rank.index}
        came = rank.exchange(dict.fromkeys(neighbours, gradient), label="step", size_from_data=self.unknown)
        yield came
        return Reduced(average([gradient, *came.value.values()]), sent=lambda: gradient)


@dataclass(slots=True)
class TwoLevels(Reducer):
    """Reduce in nodes to a leader, all-reduce among leaders, broadcast in nodes."""

    per_node: int = 2

    about = Traits("two-levels", "in nodes first, then among their leaders", "a test", lossless=True)

    def reduce(self, rank, gradient):
        first = rank.index // self.per_node * self.per_node
        node = rank.subgroup(range(first, min(first + self.per_node, rank.size)))
        total = node.reduce(gradient, root=0, label="to the leader")
        yield total
        if node.index == 0:
            leaders = rank.subgroup(range(0, rank.size, self.per_node))
            total = leaders.all_reduce(total.value, label="among leaders")
            yield total
        everywhere = node.broadcast(total.value, root=0, label="back")
        yield everywhere
        mean = node.replicated(lambda: everywhere.value.map(lambda values: values / rank.size))
        return Reduced(mean, sent=lambda: gradient)


def average(gradients):
    layers = zip(*(gradient.layers for gradient in gradients), strict=True)
    return Gradient(gradients[0].names, tuple(np.float32(sum(map(to_dense, each)) / len(each)) for each in layers))


def gradients_of(ranks, elements=ELEMENTS):
    generator = np.random.default_rng(3)
    return [Gradient(("layer",), (generator.standard_normal(elements, np.float32),)) for _ in range(ranks)]


@pytest.fixture
def gpu():
    return load_gpu("a100")


@pytest.fixture(scope="module")
def gpu_once():
    return load_gpu("a100")


@pytest.fixture
def ring_of_hosts(make_cluster, switch_fabric):
    """Hosts of one GPU below one switch: a message to another takes 1 us, and ports carry 50 GiB/s."""
    return lambda workers: make_cluster(workers, switch_fabric)


@pytest.fixture
def nodes_of(make_cluster, switch_fabric):
    """Nodes of some GPUs on NVLink, 200 GiB/s and 2 x 300 ns, each GPU with an interface of its own."""

    def build(workers, per_node):
        node = f"gpus = {per_node}"
        extra = '[nvlink]\nrate = "200GiB/s"\nlatency = "300ns"\n[pcie]\nrate = "800GiB/s"'
        nic = f'rate = "50GiB/s"\ncount = {per_node}'
        return make_cluster(workers, switch_fabric, node=node, extra=extra, nic=nic)

    return build


def test_both_conform():
    with pytest.warns(S2SimWarning, match="gossip compresses layers and charges no GPU work"):
        check_reducer(Gossip)
    check_reducer(TwoLevels)


def test_ranks_that_end_unlike_without_saying_so_do_not_conform():
    @dataclass(slots=True)
    class Unsaid(Gossip):
        about = dataclasses.replace(Gossip.about, agrees=True)

    with pytest.raises(AssertionError, match="the ranks end with different values"):
        check_reducer(Unsaid)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_gossip_averages_with_the_neighbours(ranks):
    gradients = gradients_of(ranks, 7)
    results = run_reducer(Gossip(), gradients).results
    for rank, result in enumerate(results):
        around = sorted({(rank - 1) % ranks, rank, (rank + 1) % ranks})
        expected = sum(gradients[other].layers[0].astype(np.float64) for other in around) / len(around)
        assert np.allclose(result.mean.layers[0], expected, rtol=1e-6)


@pytest.mark.parametrize("library", ["ideal", "nccl"])
@pytest.mark.parametrize("ranks", [2, 3, 5, 24])
def test_gossip_costs_two_messages_at_once(ranks, library, ring_of_hosts, gpu):
    ran = run_reducer(Gossip(), gradients_of(ranks))
    messages = 1 if ranks == 2 else 2
    sent, received = recording_bytes(ran.recording)
    assert sent.tolist() == received.tolist() == [messages * BYTES] * ranks
    timer = Timer(ring_of_hosts(ranks))
    plan = make_plan(ran.recording, choose_library(library))
    found = replay(ran.recording, timer, gpu, plan)
    assert found.total_ps == pytest.approx(1e6 + messages * BYTES / RATE_BPS * PS, rel=1e-9, abs=2)
    bound = communication_bound(ran.recording, plan, timer.cluster, assisted=False)
    assert bound.seconds == pytest.approx(messages * BYTES / RATE_BPS, rel=1e-9)
    assert count_rounds(ran.recording) == (0, 1, 0)


def test_sizes_that_only_data_tells_go_between_the_same_peers(ring_of_hosts, gpu):
    known, unknown = (run_reducer(Gossip(unknown), gradients_of(5)).recording for unknown in (False, True))
    timer, nccl = Timer(ring_of_hosts(5)), choose_library("nccl")
    sizes_ps = 1e6 + 2 * 8 / RATE_BPS * PS
    # Each host waits for its GPU to know its own sizes, and again for those of the others.
    more = replay(unknown, timer, gpu, make_plan(unknown, nccl)).total_ps - replay(known, timer, gpu).total_ps
    assert more == pytest.approx(sizes_ps + 2 * gpu.host_sync_ps, rel=1e-9, abs=2)


@pytest.mark.parametrize(("ranks", "per_node"), [(1, 2), (6, 2), (7, 2), (8, 4), (6, 1)])
def test_two_levels_give_the_mean(ranks, per_node):
    gradients = gradients_of(ranks, 11)
    exact = sum(gradient.layers[0].astype(np.float64) for gradient in gradients) / ranks
    results = run_reducer(TwoLevels(per_node), gradients).results
    for result in results:
        assert np.allclose(result.mean.layers[0], exact, rtol=1e-5, atol=1e-7)
    assert len({id(result.mean) for result in results}) == -(-ranks // per_node)


@pytest.mark.parametrize("library", ["ideal", "nccl"])
@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_two_levels_cost_two_hops_inside_and_a_ring_outside(nodes, library, nodes_of, gpu):
    ran = run_reducer(TwoLevels(), gradients_of(2 * nodes))
    leader = 2 * (nodes - 1) * BYTES // nodes + BYTES
    sent, received = recording_bytes(ran.recording)
    assert sent.tolist() == received.tolist() == [leader, BYTES] * nodes
    timer = Timer(nodes_of(2 * nodes, 2), "ring")
    plan = make_plan(ran.recording, choose_library(library))
    found = replay(ran.recording, timer, gpu, plan)
    inside_ps = 6e5 + BYTES / NVLINK_BPS * PS
    outside_ps = 2 * (nodes - 1) * (1e6 + BYTES / nodes / RATE_BPS * PS)
    assert found.total_ps == pytest.approx(2 * inside_ps + outside_ps, rel=1e-9, abs=4 * nodes)
    # Nodes work side by side, each on its own links.
    starts = sorted(launch.start_ps for launch in found.launches)
    assert starts == sorted([*[starts[0]] * nodes, starts[nodes], *[starts[-1]] * nodes])
    bound = communication_bound(ran.recording, plan, timer.cluster, assisted=False)
    assert 2 * BYTES / NVLINK_BPS < bound.seconds < found.total_ps / PS
    assert count_rounds(ran.recording) == (0, 3, 0)


def test_a_late_node_holds_up_leaders_but_no_other_node(nodes_of, gpu):
    """Launches of groups overlap: while one node waits for its last rank, the others have reduced."""

    @dataclass(slots=True)
    class Late(TwoLevels):
        def reduce(self, rank, gradient):
            if rank.index == 3:
                rank.work(Work("encode", 10**9))
            return (yield from TwoLevels.reduce(self, rank, gradient))

    ran = run_reducer(Late(), gradients_of(6))
    for library in ("ideal", "nccl"):
        found = replay(
            ran.recording, Timer(nodes_of(6, 2), "ring"), gpu, make_plan(ran.recording, choose_library(library))
        )
        ends = {launch.ranks: launch.end_ps for launch in found.launches[:3]}
        inside_ps = 6e5 + BYTES / NVLINK_BPS * PS
        assert ends[0, 1] == ends[4, 5] == pytest.approx(inside_ps, abs=2)
        assert ends[2, 3] > 10**9 / gpu.memory_bandwidth_Bps * PS
        leaders = next(launch for launch in found.launches if launch.ranks == (0, 2, 4))
        assert leaders.start_ps == ends[2, 3]


def test_launches_of_groups_that_share_links_share_their_rate(ring_of_hosts, gpu):
    """Two pairs of other groups post at once: rank 1 sends to 0 and to 2, each at half the rate of its port."""

    @dataclass(slots=True)
    class Pairs(Reducer):
        about = Traits("pairs", "two broadcasts from one rank", "a test", agrees=False)

        def reduce(self, rank, gradient):
            pending = None
            for pair in ((0, 1), (1, 2)):
                if rank.index in pair:
                    own = rank.subgroup(pair).broadcast(gradient, root=pair.index(1), label=f"to {pair}")
                    pending = own if pending is None else pending & own
            yield pending
            return Reduced(gradient, sent=lambda: gradient)

    ran = run_reducer(Pairs(), gradients_of(3))
    for library in ("ideal", "nccl"):
        found = replay(ran.recording, Timer(ring_of_hosts(3)), gpu, make_plan(ran.recording, choose_library(library)))
        assert found.total_ps == pytest.approx(1e6 + 2 * BYTES / RATE_BPS * PS, rel=1e-6)


def test_a_launch_of_a_later_group_takes_its_share_of_one_in_flight(ring_of_hosts, gpu):
    """Rank 1 sends to 0 at once and to 2 when that has worked for a while: its port is busy from then to the end."""

    @dataclass(slots=True)
    class Later(Reducer):
        about = Traits("later", "two broadcasts from one rank, one after a while", "a test", agrees=False)

        def reduce(self, rank, gradient):
            if rank.index == 2:
                rank.work(Work("encode", 2 * 10**6, launches=0))
            handles = [
                rank.subgroup(pair).broadcast(gradient, root=pair.index(1), label=f"to {pair}")
                for pair in ((0, 1), (1, 2))
                if rank.index in pair
            ]
            yield reduce(and_, handles)
            return Reduced(gradient, sent=lambda: gradient)

    ran = run_reducer(Later(), gradients_of(3))
    for library in ("ideal", "nccl"):
        plan = make_plan(ran.recording, choose_library(library))
        found = replay(ran.recording, Timer(ring_of_hosts(3)), gpu, plan)
        assert 0 < found.launches[1].start_ps < BYTES / RATE_BPS * PS
        assert found.total_ps == pytest.approx(1e6 + 2 * BYTES / RATE_BPS * PS, rel=1e-6)


def test_the_bound_of_a_group_is_that_of_its_own_ranks(nodes_of):
    """Leaders of two nodes all-reduce: all bytes leave a node by its two interfaces."""

    @dataclass(slots=True)
    class Leaders(Reducer):
        about = Traits("leaders", "an all-reduce of two leaders", "a test", agrees=False)

        def reduce(self, rank, gradient):
            if rank.index % 2 == 0:
                yield rank.subgroup([0, 2]).all_reduce(gradient, label="among leaders")
            return Reduced(gradient, sent=lambda: gradient)

    recording = run_reducer(Leaders(), gradients_of(4)).recording
    bound = communication_bound(recording, make_plan(recording), nodes_of(4, 2), assisted=False)
    assert bound.seconds == pytest.approx(BYTES / (2 * RATE_BPS), rel=1e-6)


def test_a_timeline_names_the_ranks_themselves(nodes_of, gpu):
    ran = run_reducer(TwoLevels(), gradients_of(4))
    cluster = nodes_of(4, 2)
    nccl = choose_library("nccl")
    machines = Machines(nccl, nccl, gpu, "nccl")
    scenario = ReducerScenario(shape=cluster.shape, reducers=(), machines=machines, trace=None, algorithm="ring")
    executed = ExecutedRecording(ran.recording, scenario, Timer(cluster, "ring"))
    spans = {
        (span.rank, span.name.split(",")[0], span.details["collective"]) for span in record_timeline(executed).spans
    }
    assert {(1, "to rank 0", "reduce"), (3, "to rank 2", "reduce"), (2, "to rank 3", "broadcast")} <= spans
    assert {(0, "to rank 2", "all_reduce"), (2, "to rank 0", "all_reduce")} <= spans
    assert executed.replay.total_ps == max(round(span.end_us * 1e6) for span in record_timeline(executed).spans)


def test_an_algorithm_that_refuses_a_group_is_left_out_there(nodes_of):
    """Servers on nodes of their own are asked for; the leaders' group has none, all of six ranks have one."""
    timer = Timer(nodes_of(6, 2), "parameter-server:servers=1,on=nodes")
    of_leaders = timer.within((0, 2)).time(Demand("all_reduce", (ELEMENTS,) * 2, 4))
    assert of_leaders.schedule.algorithm.partition(":")[0] == "double-binary-tree"
    with pytest.raises(OptionError, match="needs as many nodes without ranks"):
        timer.time(Demand("all_reduce", (ELEMENTS,) * 6, 4))


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(sys.modules, "unlike_ranks", SimpleNamespace(Gossip=Gossip, TwoLevels=TwoLevels))
    for name in ("Gossip", "TwoLevels"):
        cls = getattr(sys.modules["unlike_ranks"], name)
        monkeypatch.setitem(REDUCERS._targets, cls.about.name, f"unlike_ranks:{name}")


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("library", ["ideal", "nccl", "gloo", "mpi"])
def test_a_whole_run_takes_them(library):
    trace = "synthetic:density=0.02,overlap=0.5,rows=2000,width=16,dense=3000"
    result = s2sim.run("fat-tree", workers=8, trace=trace, library=library, reducers=("dense", "gossip", "two-levels"))
    _, gossip, two_levels = result.rows
    elements = 2000 * 16 + 3000
    assert gossip.bytes_sent_per_rank == 2 * 4 * elements
    assert two_levels.error.relative_l2 < 1e-6
    # The error is that of the rank which is furthest off: of eight gradients it has three.
    assert 0.5 < gossip.error.relative_l2 < 3
    assert gossip.lower_bound_s <= gossip.time_s.total
    assert two_levels.lower_bound_s <= two_levels.time_s.total
    assert [item.call for item in gossip.lowering] == ["step"]


def test_a_program_that_would_hang_says_so_by_name():
    @dataclass(slots=True)
    class Forgets(TwoLevels):
        def reduce(self, rank, gradient):
            if rank.index == 3:
                return Reduced(gradient, sent=lambda: gradient)
            return (yield from TwoLevels.reduce(self, rank, gradient))

    with pytest.raises(S2SimError, match="rank 2 waits for 'to the leader', which rank 3 has not posted"):
        run_reducer(Forgets(), gradients_of(4, 3))


def test_scripts_of_unlike_ranks_are_unlike():
    recording = run_reducer(TwoLevels(), example_gradients(4)).recording
    posts = [sum(isinstance(step, Post) for step in script) for script in recording.scripts]
    assert posts == [3, 2, 3, 2]


def test_steps_follow_the_rank_that_is_furthest_off():
    trace = load_trace("synthetic:density=0.5,overlap=0.5,rows=40,width=2,dense=30", workers=5)
    (first,), _ = run_steps(Gossip(), trace, 5, 1, lambda _: (SimpleNamespace(total_ps=0), 0), seed=0)
    gradients = [trace.gradient(0, rank) for rank in range(5)]
    exact = mean_float64(gradients)
    errors = [error_of(result.mean, exact, ()).whole.relative_l2 for result in run_reducer(Gossip(), gradients).results]
    assert first.error == first.error_so_far == max(errors)
    assert max(errors) > min(errors)


KINDS = ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "all_to_all", "exchange")


@dataclass(slots=True)
class Drawn(Reducer):
    """Collectives of drawn kinds, sizes and groups, in one order on all ranks, waited for at once or at the end."""

    seed: int

    about = Traits("drawn", "anything", "a test", agrees=False)

    def reduce(self, rank, gradient):
        draw = np.random.default_rng(self.seed)
        pending = None
        for number in range(6):
            members = np.flatnonzero(draw.random(rank.size) < 0.6).tolist()
            kind, root, at_once = draw.choice(KINDS), int(draw.integers(rank.size)), draw.random() < 0.5
            sizes = draw.integers(0, 50_000, (rank.size, rank.size))
            if rank.index not in members:
                continue
            group = rank.subgroup(members)
            posted = post(group, str(kind), root % group.size, sizes[: group.size, : group.size], f"{number} {kind}")
            pending = posted if pending is None else pending & posted
            if at_once:
                yield pending
                pending = None
        if pending is not None:
            yield pending
        return Reduced(gradient, sent=lambda: gradient)


def post(group, kind, root, sizes, label):
    one, own = np.zeros(sizes[0, 0], np.float32), [np.zeros(size, np.float32) for size in sizes[group.index]]
    if kind in ("reduce", "broadcast"):
        return getattr(group, kind)(one, root=root, label=label)
    if kind == "reduce_scatter":
        return group.reduce_scatter([np.zeros(size, np.float32) for size in sizes[0]], label=label)
    if kind == "all_to_all":
        return group.all_to_all(own, label=label, unequal=True)
    if kind == "exchange":
        return group.exchange({to: part for to, part in enumerate(own) if to != group.index and to % 2}, label=label)
    if kind == "all_gather":
        return group.all_gather(own[0], label=label, unequal=True)
    return group.all_reduce(one, label=label)


@pytest.mark.parametrize(
    "library", ["ideal", "nccl", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gloo", "mpi"))]
)
@given(seed=st.integers(0, 10**6), ranks=st.integers(1, 9))
@settings(max_examples=10)
def test_no_drawn_program_beats_its_bound(library, gpu_once, seed, ranks):
    recording = run_reducer(Drawn(seed), gradients_of(ranks, 1)).recording
    timer = Timer(build_cluster(load_shape("fat-tree", ["node.gpus=2", "nic.count=2"]), ranks))
    plan = make_plan(recording, choose_library(library))
    found = replay(recording, timer, gpu_once, plan)
    bound = communication_bound(recording, plan, timer.cluster, assisted=False)
    assert bound.seconds <= found.total_ps / PS
    sent, received = recording_bytes(recording)
    assert sent.sum() == received.sum()
    assert sorted(
        number for launch in found.launches for number, step in launch.parts if step.what != SIZE_EXCHANGE
    ) == list(range(len(recording.calls)))
    again = replay(recording, timer, gpu_once, plan)
    assert again.total_ps == found.total_ps


@dataclass(slots=True)
class ByPlace(Reducer):
    """All-reduce among the ranks at the same place of every node, all places at once; no reduction of anything."""

    about = Traits("by-place", "among those at one place of each node", "a test")

    def reduce(self, rank, gradient):
        total = rank.subgroup(range(rank.index % 4, rank.size, 4)).all_reduce(gradient, label="of a place")
        yield total
        return Reduced(gradient, sent=lambda: gradient)


@pytest.mark.parametrize("work_s", [0.0, 1e-4, float("inf")])
def test_what_groups_send_at_once_counts_together_in_the_bound(work_s, make_cluster, switch_fabric, gpu):
    """Four groups share one interface a node: it carries what all of them send, less what work may hide of that."""
    cluster = make_cluster(
        12, switch_fabric, node="gpus = 4", extra='[nvlink]\nrate = "200GiB/s"', nic='rate = "50GiB/s"\ncount = 1'
    )
    recording = run_reducer(ByPlace(), gradients_of(12)).recording
    plan = make_plan(recording)
    bound = communication_bound(recording, plan, cluster, assisted=False, work_s=work_s).seconds
    one_group_s = 2 * 2 / 3 * BYTES / RATE_BPS
    assert bound == pytest.approx(max(4 * one_group_s - work_s, one_group_s), rel=1e-9)
    assert replay(recording, Timer(cluster), gpu, plan).total_ps / PS >= 4 * one_group_s
