"""Pairwise exchange: partners, closed forms, and rounds that are made when asked for."""

import tracemalloc

import numpy as np
import pytest

from s2sim.collectives.algorithms.all_to_all import Pairwise
from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.timing.bounds import simulate_ps
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import ContendedError, OptionError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

RATE_BPS = 50 * 2**30
PS = 1e12


@pytest.mark.parametrize("partners", ["shift", "xor"])
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_latency_is_paid_once_a_round_or_once(ranks, partners, make_cluster, switch_fabric):
    cluster = make_cluster(ranks, switch_fabric)
    demand = Demand("all_to_all", (1_000_000,) * ranks, 4)
    busy_s = (ranks - 1) * 4e6 / ranks / RATE_BPS
    for release, latencies in (("delivered", ranks - 1), ("sent", 1)):
        timed = Timer(cluster, f"pairwise:partners={partners},release={release}").time(demand)
        assert timed.duration_ps / PS == pytest.approx(latencies * 1e-6 + busy_s, rel=1e-6)


def test_partners():
    cluster = build_cluster(load_shape("single-switch"), 4)
    demand = Demand("all_to_all", (8,) * 4, 4)
    shift, xor = (Pairwise(partners=which).schedule(demand, cluster) for which in ("shift", "xor"))
    assert [step.round.pattern.dst.tolist() for step in shift.steps] == [[1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]]
    assert [step.round.pattern.dst.tolist() for step in xor.steps] == [[1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]]
    # Rank 2's block for rank 0 begins its stretch.
    pieces = shift.stage.pieces(1, 0)
    assert (pieces.start[2], pieces.stop[2]) == (16, 18)


def test_the_option_string_reads_back(clusters):
    demand = Demand("all_to_all", (8,) * 4, 4)
    schedule = Pairwise(partners="xor", release="sent").schedule(demand, clusters[4])
    assert schedule.algorithm == "pairwise:partners=xor,release=sent"
    assert make_algorithm(schedule.algorithm, "all_to_all") == Pairwise(partners="xor", release="sent")
    assert Pairwise().schedule(demand, clusters[4]).algorithm == "pairwise"


@pytest.mark.parametrize("release", ["delivered", "sent"])
def test_rounds_share_contended_links_as_in_the_network(release):
    """Several GPUs share an interface here, so that rounds go through the fluid network."""
    for ranks in (3, 8, 13):
        cluster = build_cluster(load_shape("fat-tree", ("node.gpus=4",)), ranks)
        demand = Demand("all_to_all", tuple(1000 * (rank % 5) for rank in range(ranks)), 4)
        schedule = Pairwise(release=release).schedule(demand, cluster)
        assert Timer(cluster, schedule.algorithm).time(demand).duration_ps == simulate_ps(schedule, cluster)


def test_a_thousand_ranks_never_hold_all_pairs():
    ranks = 1024
    cluster = build_cluster(load_shape("single-switch"), ranks)
    schedule = Pairwise().schedule(Demand("all_to_all", (ranks,) * ranks, 4), cluster)
    tracemalloc.start()
    pairs = sum(step.round.pattern.messages for step in schedule.steps)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pairs == ranks * (ranks - 1)
    assert peak < pairs


def test_refusals(clusters):
    with pytest.raises(OptionError, match="power of two of ranks, found 6: take partners=shift"):
        Pairwise(partners="xor").schedule(Demand("all_to_all", (8,) * 6, 4), clusters[6])
    with pytest.raises(OptionError, match="partners=ring is not one of shift, xor"):
        Pairwise(partners="ring")
    with pytest.raises(OptionError, match="release=never is not one of delivered, sent"):
        Pairwise(release="never")
    with pytest.raises(OptionError, match="does not run all_reduce"):
        make_algorithm("pairwise", "all_reduce")
    mixed = Hops((Hop(1e-6, 1e11),), (Hop(2e-6, 1e10),), 2)
    with pytest.raises(ContendedError, match="one latency and one rate"):
        Pairwise().closed_form_s(Demand("all_to_all", (8,) * 4, 4), mixed)
    assert np.isclose(
        Pairwise().closed_form_s(Demand("all_to_all", (8,) * 4, 4), mixed.between_nodes()), 3 * 2e-6, rtol=0.01
    )
