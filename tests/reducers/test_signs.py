"""Systems that send signs: oracles, bounds, bytes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.script import chunk_bounds

RANKS = 5


def arrays(count=1003, ranks=RANKS):
    rng = np.random.default_rng(2)
    return [(rng.standard_normal(count) + 0.1).astype(np.float32) for _ in range(ranks)]


def naive_scaled_sign(vector):
    return np.where(vector >= 0, 1, -1) * np.abs(vector).mean(dtype=np.float64)


def naive_two_means(vector, column):
    decoded = np.zeros(len(vector))
    for start in range(0, len(vector), column):
        part = vector[start : start + column].astype(np.float64)
        for chosen in (part < 0, part >= 0):
            if chosen.any():
                decoded[start : start + column][chosen] = part[chosen].mean()
    return decoded


@pytest.mark.parametrize(("wire", "size"), [("packed", 126), ("byte", 1003)])
def test_ef_signsgd(wire, size):
    gradients = arrays()
    once = reduce_once(f"ef-signsgd:wire={wire}", gradients)
    assert once.values[0] == pytest.approx(np.mean([naive_scaled_sign(each) for each in gradients], axis=0), rel=1e-5)
    assert once.bytes_sent == [(size + 4) * (RANKS - 1)] * RANKS


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=30))
def test_contraction_of_the_scaled_sign(values):
    vector = np.array(values, np.float32)
    found = reduce_once("ef-signsgd", [vector]).values[0].astype(np.float64)
    exact = vector.astype(np.float64)
    square = (exact**2).sum()
    bound = square - np.abs(exact).sum() ** 2 / len(exact)
    assert ((found - exact) ** 2).sum() <= bound + 1e-6 * square


@pytest.mark.parametrize("column", [0, 100, 1003, 5000])
@pytest.mark.parametrize(("wire", "size"), [("packed", 126), ("byte", 1003)])
def test_one_bit_sgd_gathered(column, wire, size):
    gradients = arrays()
    once = reduce_once(f"onebit-sgd:column={column},aggregate=gather,wire={wire}", gradients)
    column = column or 1003
    expected = np.mean([naive_two_means(each, column) for each in gradients], axis=0)
    assert once.values[0] == pytest.approx(expected, rel=1e-5)
    assert once.bytes_sent == [(size + 8 * -(-1003 // column)) * (RANKS - 1)] * RANKS


def test_one_bit_sgd_sends_one_bit_both_ways():
    gradients = arrays()
    once = reduce_once("onebit-sgd", gradients)
    expected = np.zeros(1003)
    cuts = chunk_bounds(1003, RANKS)
    for start, stop in pairwise(cuts):
        total = sum(naive_two_means(each[start:stop], stop - start) for each in gradients)
        expected[start:stop] = naive_two_means(total.astype(np.float32), stop - start) / RANKS
    assert once.values[0] == pytest.approx(expected, rel=1e-5)
    sizes = -(-np.diff(cuts) // 8) + 8
    # Codes for all owners but oneself; then all sums but that of the next rank on the ring.
    assert once.bytes_sent == (2 * sizes.sum() - sizes - np.roll(sizes, -1)).tolist()


@pytest.mark.parametrize("text", ["ef-signsgd", "onebit-sgd", "onebit-sgd:aggregate=gather,column=3"])
def test_values_of_every_size(text):
    for values in ([0.0] * 9, [-0.0, 1e-45], [3e38] * 9, [-1.0], [5.0, 5.0]):
        vector = np.array(values, np.float32)
        found = reduce_once(text, [vector]).values[0]
        assert np.isfinite(found).all()
        assert found.sum(dtype=np.float64) == pytest.approx(vector.sum(dtype=np.float64), rel=1e-5)


@pytest.mark.parametrize("aggregate", ["two-phase", "server", "gather"])
@pytest.mark.parametrize("ranks", [1, 4, 5])
def test_majority_vote(aggregate, ranks):
    gradients = [np.round(each) for each in arrays(ranks=ranks)]
    once = reduce_once(f"signsgd-vote:aggregate={aggregate}", gradients)
    # A bit has no third value: zeros vote for 1, and ties are 1.
    votes = np.sum([np.where(each >= 0, 1, -1) for each in gradients], axis=0)
    assert np.array_equal(once.values[0], np.where(votes >= 0, 1, -1))


def test_bits_of_a_vote():
    gradients = arrays(8000, ranks=4)
    assert reduce_once("signsgd-vote", gradients).bytes_sent == [2 * 250 * 3] * 4
    # A bit up and a bit down; the server sends down alone, and the last of the ring does not pass it on.
    assert reduce_once("signsgd-vote:aggregate=server", gradients).bytes_sent == [1000, 2000, 2000, 1000]
    assert reduce_once("signsgd-vote:wire=int8", gradients).bytes_sent == [2 * 6000] * 4


def test_a_vote_of_bytes_knows_zeros_and_ties():
    gradients = [np.array(values, np.float32) for values in ([1, -2, 0, 0], [-3, -1, 4, 0])]
    assert reduce_once("signsgd-vote:wire=int8", gradients).values[0].tolist() == [0, -1, 1, 0]
    assert reduce_once("signsgd-vote", gradients).values[0].tolist() == [1, -1, 1, 1]


def test_a_vote_of_more_bytes_than_int8_holds_is_refused():
    with pytest.raises(OptionError, match="128 ranks' votes do not fit"):
        reduce_once("signsgd-vote:wire=int8", [np.ones(3, np.float32)] * 128)


def test_an_all_reduce_of_votes_has_nobody_who_counts():
    with pytest.raises(OptionError, match="leave it out, or give wire=packed"):
        make_reducer("signsgd-vote:wire=int8,aggregate=server")
