"""Rounds of algorithms on 1 to 33 ranks, and closed forms, which mixed ways refuse."""

from math import ceil, log2

import pytest

from s2sim.collectives.algorithms.registry import ALGORITHMS, make_algorithm
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand, barrier
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.errors import ContendedError


def doublings(ranks):
    """Return the rounds of doubling over the largest power of two, and before and after them one for ranks beyond."""
    exponent = ranks.bit_length() - 1
    return exponent + (2 if ranks != 2**exponent else 0)


def both_halves(ranks):
    return doublings(ranks) + ranks.bit_length() - 1


HALVING = {"all_reduce": both_halves, "all_gather": doublings, "reduce_scatter": doublings}
ROUNDS = {
    "binary-tree": {"all_reduce": lambda ranks: 2 * int(log2(ranks))},
    "bruck": dict.fromkeys(ALGORITHMS.get("bruck").kinds, lambda ranks: ceil(log2(ranks))),
    "recursive-doubling": dict.fromkeys(ALGORITHMS.get("recursive-doubling").kinds, doublings),
    "halving-doubling": HALVING,
    "halving-doubling:distance=near-first": HALVING,
    "halving-doubling:distance=far-first": HALVING,
}


@pytest.mark.parametrize(("text", "kind"), [(text, kind) for text, kinds in ROUNDS.items() for kind in kinds])
def test_rounds_are_those_of_the_formula(clusters, text, kind):
    for ranks, cluster in clusters.items():
        shared = Demand(kind, (0,), 4).shared
        sizes = (101,) * ranks if shared else tuple(7 * rank % 13 for rank in range(ranks))
        demand = barrier(ranks) if kind == "barrier" else Demand(kind, sizes, 4)
        schedule = make_algorithm(text, kind).schedule(demand, cluster)
        check_schedule(schedule)
        assert schedule.rounds == ROUNDS[text][kind](ranks), ranks


@pytest.mark.parametrize(
    "text", ["binomial", "binary-tree", "chain", "bruck", "pat", "recursive-doubling", "halving-doubling"]
)
def test_closed_forms_take_one_latency_and_one_rate(text):
    kind = ALGORITHMS.get(text).kinds[0]
    mixed = Hops((Hop(1e-6, 1e11),), (Hop(2e-6, 1e10),), 2)
    with pytest.raises(ContendedError, match="one latency and one rate"):
        make_algorithm(text, kind).closed_form_s(Demand(kind, (8,) * 4, 4), mixed)
