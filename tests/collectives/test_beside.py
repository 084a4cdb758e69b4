"""Groups that do the same at once: their rounds share links, and whoever asks sees one group alone."""

from dataclasses import replace

import numpy as np
import pytest
import simpy

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import lower_bound, rank_ends_ps, simulate_ps
from s2sim.collectives.timing.collective_run import CollectiveRun
from s2sim.collectives.timing.concurrent_groups import ConcurrentGroupsTimer
from s2sim.collectives.timing.terms import schedule_terms
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError
from s2sim.libraries.lowering import choose_library
from s2sim.network.fluid import FluidNetwork
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

LATENCY_S = 1e-6
RATE_BPS = 50e9


def strided(groups, ranks):
    """Return the groups of ranks of which neighbours are of different groups."""
    return np.arange(groups * ranks).reshape(ranks, groups).T


def all_reduce(ranks, elements=1 << 20):
    return Demand("all_reduce", (elements,) * ranks, 4)


def each_by_itself_ps(cluster, members, schedules):
    """Return when the last of several schedules is over that start at once, each on a cluster of its own ranks."""
    env = simpy.Environment(initial_time=0)
    network = FluidNetwork(env, cluster.fabric)
    for own, schedule in zip(members, schedules, strict=True):
        CollectiveRun(network, schedule, cluster.within(own), lambda: None).start()
    env.run()
    return env.now


@pytest.fixture
def nodes(make_cluster):
    """Return a cluster of nodes of some GPUs with some interfaces of 50 GB/s."""

    def build(count, gpus, nics):
        return make_cluster(
            count * gpus,
            'kind = "single-switch"\n[fabric.link]\nlatency = "500ns"\nrate = "50GB/s"',
            node=f"gpus = {gpus}",
            extra='[nvlink]\nrate = "900GB/s"',
            nic=f'rate = "50GB/s"\ncount = {nics}',
        )

    return build


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize("of_its_own", [True, False], ids=["an interface each", "one interface"])
def test_groups_share_interfaces(nodes, gpus, of_its_own):
    """G groups with a rank in each of M nodes: with one interface a node the bytes of all pass it, else it is alone."""
    cluster = nodes(8, gpus, gpus if of_its_own else 1)
    demand = all_reduce(8)
    timer = ConcurrentGroupsTimer(cluster, strided(gpus, 8), "ring:channels=1")
    on_one = 1 if of_its_own else gpus
    expected_s = 2 * 7 * (LATENCY_S + on_one * demand.buffer_bytes / 8 / RATE_BPS)
    assert timer.time(demand).duration_ps / 1e12 == pytest.approx(expected_s, rel=1e-9)
    alone_s = 2 * 7 * (LATENCY_S + demand.buffer_bytes / 8 / RATE_BPS)
    assert timer.alone.time(demand).duration_ps / 1e12 == pytest.approx(alone_s, rel=1e-9)


@pytest.mark.parametrize(
    "algorithm",
    [
        "ring",
        "ring:channels=1,chunks=3,release=sent",
        "double-binary-tree:chunks=4",
        "halving-doubling",
        "hierarchical",
    ],
)
@pytest.mark.parametrize("shape", ["fat-tree", pytest.param("leaf-spine", marks=pytest.mark.slow), "torus"])
@pytest.mark.parametrize("groups", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_as_if_each_group_ran_by_itself(shape, groups, algorithm):
    """Rounds together are what each group's own rounds are beside the others; nearly so on a torus, placed unlike."""
    cluster = build_cluster(load_shape(shape), 32)
    members = strided(groups, 32 // groups)
    demand = all_reduce(32 // groups)
    timer = ConcurrentGroupsTimer(cluster, members, algorithm)
    timed = timer.time(demand)
    own = [Timer(cluster.within(ranks), timed.schedule.algorithm).time(demand).schedule for ranks in members]
    by_itself_ps = each_by_itself_ps(cluster, members, own)
    assert timed.duration_ps == pytest.approx(by_itself_ps, rel=0.04 if shape == "torus" else 1e-9)
    assert timed.duration_ps >= timer.alone.time(demand).duration_ps
    assert timed.duration_ps == simulate_ps(timed.schedule, timer.cluster)
    assert timed.duration_ps / 1e12 >= lower_bound([demand], timer.cuts(), assisted=timed.schedule.assisted).seconds


@pytest.mark.parametrize("tp", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize("size", [1 << 10, 1 << 24])
def test_with_a_library_symmetric_groups_run_as_each_by_itself(tp, size):
    """Also where NVSwitches reduce for several groups at once, each of which has some GPUs of every node."""
    shape = load_shape("dgx-h100")
    cluster = build_cluster(shape, 32)
    members, demand = strided(tp, 32 // tp), all_reduce(32 // tp, size)
    timer = ConcurrentGroupsTimer(cluster, members, profile=choose_library("nccl").on(shape).profile)
    timed = timer.time(demand)
    own = [timer.alone.time(demand).schedule] * tp
    assert timed.duration_ps == pytest.approx(each_by_itself_ps(cluster, members, own), abs=200)
    assert timed.duration_ps / 1e12 >= lower_bound([demand], timer.cuts(), assisted=timed.schedule.assisted).seconds


@pytest.mark.parametrize("algorithm", ["in-network", "nvls-tree"])
def test_switches_reduce_for_each_group(algorithm):
    cluster = build_cluster(load_shape("dgx-h100"), 32)
    members, demand = strided(2, 16), all_reduce(16)
    timer = ConcurrentGroupsTimer(cluster, members, algorithm)
    timed = timer.time(demand)
    assert timed.schedule.steps[0].round.pattern.messages == 2
    own = [Timer(cluster.within(ranks), algorithm).time(demand).schedule for ranks in members]
    assert timed.duration_ps == pytest.approx(each_by_itself_ps(cluster, members, own), abs=10)
    assert (rank_ends_ps(timed.schedule, timer.cluster, timed.times) == timed.duration_ps).all()
    sent, received = timed.schedule.traffic()
    assert (sent == demand.buffer_bytes).all()
    assert (received == demand.buffer_bytes).all()


@pytest.mark.parametrize("rate", ["400Gbps", "10Gbps"])
def test_switches_reduce_for_groups_of_whole_nodes_without_the_network(rate):
    """Eight groups, each of a node with an NVSwitch, beside each other take what one takes alone, at any rate."""
    cluster = build_cluster(load_shape("dgx-h100", [f"nic.rate={rate}"]), 64)
    members = np.arange(64).reshape(8, 8)
    timer = ConcurrentGroupsTimer(cluster, members, "in-network", profile=choose_library("nccl").profile)
    demand = all_reduce(8, 12 << 20)
    alone = Timer(cluster.within(range(8)), "in-network", profile=choose_library("nccl").profile).time(demand)
    assert timer.time(demand).duration_ps == timer.alone.time(demand).duration_ps == alone.duration_ps


@pytest.mark.parametrize("topology", ["dgx-h100", "aws-p5"])
def test_groups_that_lie_otherwise_run_what_they_would_alone(topology):
    """Of four groups of five on nodes of eight, two are inside a node; NVLS needs more than two GPUs of each node."""
    shape, demand = load_shape(topology), all_reduce(5, 1 << 26)
    # Later versions estimate rings of five and six GPUs to be faster than NVSwitches.
    cluster, profile = build_cluster(shape, 24), replace(choose_library("nccl").on(shape).profile, version=(2, 27))
    members = np.array([range(5), range(5, 10), range(10, 15), range(15, 20)])
    timer = ConcurrentGroupsTimer(cluster, members, profile=profile)
    timed = timer.time(demand)
    own = [Timer(cluster.within(ranks), profile=profile).time(demand) for ranks in members]
    names = [each.schedule.algorithm.partition(":")[0] for each in own]
    assert names == ["in-network", "double-binary-tree", "in-network", "double-binary-tree"]
    by_itself_ps = each_by_itself_ps(cluster, members, [each.schedule for each in own])
    assert timed.duration_ps == pytest.approx(by_itself_ps, abs=200)
    assert timer.alone_ps(demand) == max(each.duration_ps for each in own) > 2 * own[0].duration_ps
    assert f"groups placed otherwise run {own[1].schedule.text}" in timed.why
    assert sum(term.ps for term in schedule_terms(timed, timer.cluster)) == timed.duration_ps


def test_a_switch_may_reduce_for_groups_other_than_the_first():
    cluster, members = build_cluster(load_shape("dgx-h100"), 48), np.array([range(0, 48, 8), range(1, 7)])
    profile = replace(choose_library("nccl").on(cluster.shape).profile, version=(2, 27))
    timed = ConcurrentGroupsTimer(cluster, members, profile=profile).time(all_reduce(6, 1 << 26))
    assert timed.why.endswith("groups placed otherwise run in-network (Simple)")
    assert timed.schedule.assisted


def test_one_group_of_all_takes_what_it_takes_alone():
    cluster = build_cluster(load_shape("fat-tree"), 16)
    for algorithm in ("auto", "ring", "double-binary-tree", "hierarchical"):
        found = ConcurrentGroupsTimer(cluster, np.arange(16)[None, :], algorithm).time(all_reduce(16))
        alone = Timer(cluster, algorithm).time(all_reduce(16))
        assert (found.duration_ps, found.schedule.algorithm, found.why) == (
            alone.duration_ps,
            alone.schedule.algorithm,
            alone.why,
        )


@pytest.mark.parametrize("algorithm", ["ring", "double-binary-tree", "halving-doubling"])
@pytest.mark.parametrize("placement", ["linear", "random"])
def test_groups_that_are_placed_unlike(algorithm, placement):
    """With three ranks a group on nodes of eight, some have two of them in the first node and some in the second."""
    cluster = build_cluster(load_shape("dgx-h100"), 24, placement=placement, seed=5)
    members = np.arange(24).reshape(2, 3, 4).transpose(0, 2, 1).reshape(8, 3)
    timer, demand = ConcurrentGroupsTimer(cluster, members, algorithm), all_reduce(3)
    timed = timer.time(demand)
    assert timed.duration_ps == simulate_ps(timed.schedule, timer.cluster)
    assert timed.duration_ps / 1e12 >= lower_bound([demand], timer.cuts()).seconds
    own_sent, own_received = Timer(cluster.within(members[0]), timed.schedule.algorithm).time(demand).schedule.traffic()
    sent, received = timed.schedule.traffic()
    assert (sent == own_sent).all()
    assert (received == own_received).all()
    ends_ps = rank_ends_ps(timed.schedule, timer.cluster, timed.times)
    assert ends_ps.shape == (3,)
    assert ends_ps.max() <= timed.duration_ps


def test_messages_are_those_of_each_group_by_its_own_ranks():
    cluster = build_cluster(load_shape("leaf-spine"), 12)
    timer = ConcurrentGroupsTimer(cluster, strided(3, 4), "ring:channels=1")
    pattern = timer.time(all_reduce(4)).schedule.steps[0].round.pattern
    assert pattern.src.tolist() == list(range(12))
    assert pattern.dst.tolist() == [1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8]
    assert timer.cluster.gpu_of_rank.tolist() == [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]


def test_pieces_are_those_of_each_group():
    cluster = build_cluster(load_shape("leaf-spine"), 12)
    schedule = ConcurrentGroupsTimer(cluster, strided(3, 4), "ring:channels=1").time(all_reduce(4, 8)).schedule
    own = Timer(cluster.within((0, 3, 6, 9)), "ring:channels=1").time(all_reduce(4, 8)).schedule
    pieces, first = schedule.stage.pieces(0, 1), own.stage.pieces(0, 1)
    assert pieces.message.tolist() == list(range(12))
    assert pieces.start.tolist() == first.start.tolist() * 3
    assert pieces.adds.all()


def test_some_ranks_of_each_group_are_groups_too(nodes):
    """Of two ranks in each of four nodes the first ones meet; they have one interface for two groups."""
    cluster = nodes(4, 4, 2)
    timer = ConcurrentGroupsTimer(cluster, strided(2, 8), "ring:channels=1")
    some = timer.within((0, 2, 4, 6))
    assert some.workers == 4
    assert timer.members_of((0, 2, 4, 6)).tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    demand = all_reduce(4)
    # GPUs 0 and 1 of a node have one interface.
    expected_s = 2 * 3 * (LATENCY_S + 2 * demand.buffer_bytes / 4 / RATE_BPS)
    assert some.time(demand).duration_ps / 1e12 == pytest.approx(expected_s, rel=1e-9)
    assert timer.within(()) is timer


def test_the_bound_counts_the_bytes_of_all_groups(nodes):
    cluster, demand = nodes(8, 4, 1), all_reduce(8)
    alone, together = (
        lower_bound([demand], ConcurrentGroupsTimer(cluster, members).cuts())
        for members in (strided(4, 8)[:1], strided(4, 8))
    )
    assert together.seconds == pytest.approx(4 * alone.seconds, rel=1e-6)


def test_servers_are_refused():
    cluster = build_cluster(load_shape("single-switch"), 12)
    with pytest.raises(OptionError, match="servers"):
        ConcurrentGroupsTimer(cluster, strided(2, 4), "parameter-server:on=nodes")


@pytest.mark.parametrize(("nics", "groups"), [(8, 1), (4, 2), (2, 4), (1, 8)])
def test_of_groups_that_share_nothing_one_is_timed(nodes, nics, groups):
    """Those of a node that have one interface are timed together, and others are alike."""
    timer = ConcurrentGroupsTimer(nodes(4, 8, nics), strided(8, 4), "ring:channels=1")
    schedule = timer.time(all_reduce(4)).schedule
    assert schedule.steps[0].round.pattern.messages == 4 * groups
    assert schedule.places == 32


def test_sets_that_are_loaded_otherwise_are_timed_too(make_cluster):
    """Of two groups in two leaves one crosses a slow link."""
    slow = '[[links]]\nname = "node3.nic0.out"\nrate = "5GB/s"'
    cluster = make_cluster(4, f'kind = "leaf-spine"\nhosts_per_leaf = 2\n{slow}', nic='rate = "50GB/s"')
    demand = all_reduce(2)
    timer = ConcurrentGroupsTimer(cluster, np.array([[0, 1], [2, 3]]), "ring")
    assert timer.time(demand).duration_ps == Timer(cluster.within((2, 3)), "ring").time(demand).duration_ps
    assert timer.time(demand).duration_ps > 5 * timer.alone.time(demand).duration_ps
