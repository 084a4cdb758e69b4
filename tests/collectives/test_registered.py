"""Laws 2, 3 and 4 for every registered algorithm: values, bytes, times, their terms, closed forms, bounds."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.registry import ALGORITHMS, make_algorithm
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import ROOTED, Demand, all_to_all_demand, barrier, exchanged_bytes
from s2sim.collectives.timing.bounds import duration_floor_ps, lower_bound, simulate_ps
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.terms import schedule_terms
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError, OptionError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

PS = 1e12
MOST_RANKS = 13
OPTIONS = (
    "ring:channels=2",
    "ring:chunks=3,in_flight=2",
    "ring:chunks=4,release=sent",
    "double-binary-tree:chunks=5",
    "halving-doubling:distance=near-first",
    "halving-doubling:distance=far-first",
    "pat:aggregation=1",
    "pat:aggregation=4",
    "hierarchical:mode=leader,chunks=3",
    "torus:split=both-ways",
    "parameter-server:servers=3",
    "parameter-server:servers=2,on=nodes",
    "pairwise:partners=xor",
    "pairwise:release=sent",
    "spread:partners=1",
    "spread:partners=5",
    "spread:turns=true",
    "chain:chunks=1",
    "chain:chunks=3",
    "chain:chunks=40",
)
# Messages of theirs share ports even where every rank has its own, so that their closed forms may refuse.
SHARE_PORTS = (
    "ring:channels",
    "double-binary-tree",
    "direct",
    "binary-tree",
    "hierarchical:mode=leader",
    "torus:split",
    "parameter-server",
    "spread",
)
IN_SWITCHES = ("in-network", "nvls-tree")
# Nodes of one GPU, and of several that share interfaces, also without latency, where rounding shows.
TOPOLOGIES = {
    "single-switch": (),
    "fat-tree": ("node.gpus=4",),
    "leaf-spine": ("node.gpus=3", "nic.count=2", "nic.latency=0s", "pcie.latency=0s", "fabric.link.latency=0s"),
}


@cache
def build(topology, workers, placement):
    return build_cluster(load_shape(topology, TOPOLOGIES[topology]), workers, placement=placement)


def cluster_for(algorithm, ranks, topology="single-switch", placement="linear"):
    gpus = load_shape(topology, TOPOLOGIES[topology]).gpus_per_node
    helpers = algorithm.helpers(ranks, gpus) if hasattr(algorithm, "helpers") else 0
    return build(topology, ranks + helpers, placement)


@st.composite
def demands(draw, kinds):
    """Draw a demand: few or many elements a rank, equal or not, of any root, cut evenly or into blocks of any size."""
    kind = draw(st.sampled_from(kinds))
    ranks = draw(st.integers(1, MOST_RANKS))
    if kind == "barrier":
        return barrier(ranks)
    most = draw(st.sampled_from([3, 200, 100_000]))
    if kind == "all_to_all" and draw(st.booleans()):
        generator = np.random.default_rng(draw(st.integers(0, 10**6)))
        return all_to_all_demand(
            generator.integers(0, most, (ranks, ranks)) * (generator.random((ranks, ranks)) < 0.7), 4
        )
    if Demand(kind, (0,), 4).shared:
        root = draw(st.integers(0, ranks - 1)) if kind in ROOTED else 0
        return Demand(kind, (draw(st.integers(0, most)),) * ranks, 4, root)
    return Demand(kind, tuple(draw(st.lists(st.integers(0, most), min_size=ranks, max_size=ranks))), 4)


def buffers_sent(text, ranks):
    """Return how many times a whole buffer is sent, all messages of an all-reduce together."""
    corners = 2 ** (ranks.bit_length() - 1)
    extras = ranks - corners
    match text.partition(":")[0]:
        case "halving-doubling":
            return 2 * extras + 2 * (corners - 1)
        case "recursive-doubling":
            return 2 * extras + corners * int(np.log2(corners))
        case "in-network" | "nvls-tree":
            return ranks if ranks > 1 else 0
        case "parameter-server" if "on=nodes" in text:
            return 2 * ranks if ranks > 1 else 0
    return 2 * (ranks - 1)


def check_traffic(text, demand, sent, received):
    """Check what each rank sends and receives, bytes, int64 of shape (places,)."""
    ranks, total = demand.ranks, demand.buffer_bytes
    assert sent.sum() == received.sum()
    match demand.kind:
        case "all_reduce":
            assert sent.sum() == buffers_sent(text, ranks) * total
        case "broadcast" | "reduce":
            # The root gives everything away, or gets it, and nobody gets a broadcast, or gives a partial sum, twice.
            once = received if demand.kind == "broadcast" else sent
            assert once.tolist() == [0 if rank == demand.root else total for rank in range(ranks)]
        case "all_gather" | "reduce_scatter":
            once = received if demand.kind == "all_gather" else sent
            assert once.tolist() == [total - 4 * own for own in demand.elements]
        case "all_to_all":
            np.testing.assert_array_equal([sent, received], exchanged_bytes(demand))
        case "send_recv":
            sizes = [4 * size if ranks > 1 else 0 for size in demand.elements]
            assert (sent.tolist(), received.tolist()) == (sizes, [sizes[-1], *sizes[:-1]])
        case "barrier":
            assert not sent.any()


@pytest.mark.parametrize(
    "text", [*ALGORITHMS.names(), *(pytest.param(text, marks=pytest.mark.slow) for text in OPTIONS)]
)
@given(data=st.data())
def test_values_bytes_times_and_bounds(text, data):
    demand = data.draw(demands(ALGORITHMS.get(text.partition(":")[0]).kinds))
    even = demand.kind == "all_to_all" and not demand.blocks
    # There no switch sums in a node.
    topologies = {*TOPOLOGIES} - ({"leaf-spine"} if text in IN_SWITCHES else set())
    topology = data.draw(st.sampled_from(sorted(topologies)))
    placement = data.draw(st.sampled_from(["linear", "round-robin"]))
    algorithm = make_algorithm(text, demand.kind)
    cluster = cluster_for(algorithm, demand.ranks, topology, placement)
    try:
        schedule = algorithm.schedule(demand, cluster)
    except OptionError:
        return
    assert make_algorithm(schedule.algorithm, demand.kind).schedule(demand, cluster).algorithm == schedule.algorithm

    if demand.buffer_elements < 10_000:
        check_schedule(schedule)

    sent, received = schedule.traffic()
    check_traffic(text, demand, sent, received)
    if text not in IN_SWITCHES:  # there a round counts what a rank sends, once for all
        # Shares that were cut evenly count their nominal bytes, off by less than an element at either end.
        nominal = sum(step.times * step.round.bytes.sum() for step in schedule.steps)
        messages = sum(step.times * step.round.pattern.messages for step in schedule.steps)
        assert nominal == pytest.approx(sent.sum(), rel=1e-9, abs=8 * messages if even else 0)

    timed = Timer(cluster, text).time(demand)
    assert timed.schedule.algorithm == schedule.algorithm
    assert timed.duration_ps == simulate_ps(schedule, cluster)
    terms = schedule_terms(timed, cluster)
    assert all(term.ps >= 0 for term in terms)
    assert sum(term.ps for term in terms) == timed.duration_ps
    times = RoundTimes(cluster, schedule.release)
    assert duration_floor_ps(schedule, times) <= timed.duration_ps + schedule.rounds
    assert timed.duration_ps / PS >= lower_bound([demand], cluster.cuts(), assisted=schedule.assisted).seconds
    try:
        expected_s = closed_form_s(schedule, cluster)
    except ContendedError:
        assert topology != "single-switch" or text.startswith(SHARE_PORTS)
        return
    assert timed.duration_ps / PS == pytest.approx(expected_s, rel=1e-6, abs=max(schedule.rounds, 1) / PS)


@pytest.mark.parametrize("text", OPTIONS)
def test_no_option_is_always_refused(text):
    """Else the property above would have no case."""
    algorithm = make_algorithm(text, ALGORITHMS.get(text.partition(":")[0]).kinds[0])
    demand = Demand(algorithm.kinds[0], (64,) * 16, 4)
    assert algorithm.schedule(demand, cluster_for(algorithm, 16)).rounds > 0
