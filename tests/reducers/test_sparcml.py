"""sparcml against a sum of sorted elements, its bytes between their bounds, and its choice of algorithm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, as_row_sparse
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.script import count_rounds
from s2sim.reducers.systems.sparcml import expected_union

from .naive import top

ALGORITHMS = ("rec-dbl", "split", "dense-split")


@given(st.sampled_from(ALGORITHMS), st.integers(1, 9), st.integers(0, 50), st.floats(0.02, 1), st.integers(0, 2**32))
def test_it_averages_the_largest_elements_of_all_ranks(algorithm, ranks, n, density, seed):
    rng = np.random.default_rng(seed)
    # Whole numbers, whose sums are the same in any order.
    arrays = [rng.integers(-3, 4, n).astype(np.float32) for _ in range(ranks)]
    once = reduce_once(f"sparcml:density={density!r},algorithm={algorithm}", arrays)
    k = elements_kept(n, density)
    expected = np.sum([top(array, k) for array in arrays], axis=0, dtype=np.float32) / np.float32(ranks)
    for values in once.values:
        assert np.array_equal(values, expected)


def streams(ranks, k, *, overlap):
    """Return k elements of each rank, spread evenly: the same of all, or of no two."""
    n = ranks * k * ranks
    arrays = np.zeros((ranks, n), np.float32)
    for rank in range(ranks):
        arrays[rank, np.arange(k) * (n // k) + (0 if overlap else rank)] = 1
    return list(arrays), n


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_bytes_lie_at_the_published_bounds(ranks):
    k = 5 * ranks
    for overlap, doubling, split in (
        (True, 8 * k * (ranks.bit_length() - 1), 16 * k * (ranks - 1) / ranks),
        (False, 8 * k * (ranks - 1), 8 * k * (ranks - 1) / ranks + 8 * k * (ranks - 1)),
    ):
        arrays, n = streams(ranks, k, overlap=overlap)
        sent = {
            name: max(reduce_once(f"sparcml:density={k / n!r},algorithm={name}", arrays).bytes_sent)
            for name in ALGORITHMS
        }
        dense = (8 * k + 4 * n) * (ranks - 1) / ranks
        assert sent == {"rec-dbl": doubling, "split": split, "dense-split": dense}
        assert split <= 8 * k * ranks


@pytest.mark.parametrize(("ranks", "rounds"), [(1, 0), (2, 1), (3, 3), (7, 4), (8, 3)])
def test_doubling_takes_a_round_for_each_distance_and_two_for_ranks_beyond_a_power_of_two(ranks, rounds):
    arrays = [np.ones(20, np.float32)] * ranks
    once = reduce_once("sparcml:density=0.2,algorithm=rec-dbl", arrays)
    assert count_rounds(once.recording).after_gradient == rounds


def test_the_expected_union_is_that_of_streams_at_random():
    n, k, ranks = 1000, 50, 12
    rng = np.random.default_rng(0)
    unions = [len(set().union(*(rng.choice(n, k, replace=False).tolist() for _ in range(ranks)))) for _ in range(200)]
    assert abs(np.mean(unions) - expected_union(n, k, ranks)) < 4 * np.std(unions) / np.sqrt(len(unions))


@pytest.mark.parametrize(
    ("density", "n", "ranks", "taken"),
    [
        (0.01, 100_000, 8, "rec-dbl"),  # 8 kB
        (0.01, 200_000, 8, "split"),
        (0.01, 200_000, 64, "split"),
        (0.01, 200_000, 69, "dense-split"),  # 1 - 0.99^69 = 0.5002
        (0.5, 100, 1, "dense-split"),
        (0.1, 100, 6, "rec-dbl"),
        (0.1, 100, 7, "dense-split"),
    ],
)
def test_auto_goes_by_the_expected_union_and_by_the_length_of_streams(density, n, ranks, taken):
    gradients = [Gradient(("w",), (np.ones(n, np.float32),))] * ranks
    fitted = make_reducer(f"sparcml:density={density}").fitted(gradients, 0)
    assert fitted.options()["algorithm"] == taken
    assert fitted.notes() == (f"auto took {taken}",)


def test_auto_knows_how_long_streams_are_that_are_sparse_already():
    table = as_row_sparse(np.eye(100, dtype=np.float32)[0])
    fitted = make_reducer("sparcml:density=1").fitted([Gradient(("e",), (table,))] * 4, 0)
    assert fitted.options()["algorithm"] == "rec-dbl"
    assert fitted.traits.lossless


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_dense_sums_may_travel_in_few_bits(bits):
    ranks, n = 4, 4 * 1024
    arrays = [np.random.default_rng(rank).standard_normal(n, np.float32) for rank in range(ranks)]
    text = "sparcml:density=0.25,algorithm=dense-split"
    whole, once = reduce_once(text, arrays), reduce_once(f"{text},bits={bits}", arrays)
    # A bucket of 1024 and its norm, in place of 1024 values, for three ranges of four.
    assert [more - less for more, less in zip(whole.bytes_sent, once.bytes_sent, strict=True)] == [
        3 * (4 * 1024 - 4 - 128 * bits)
    ] * ranks
    # Each element is off by less than a level of its range's norm.
    ranges = whole.values[0].reshape(ranks, 1024)
    level = np.linalg.norm(ranges, axis=1) / (2 ** (bits - 1) - 1)
    off = np.abs(once.values[0].reshape(ranks, 1024) - ranges)
    assert (off < 1.001 * level[:, np.newaxis]).all()
    assert off.any()


@pytest.mark.parametrize("options", ["bits=4", "algorithm=split,bits=8", "algorithm=dense-split,bits=3"])
def test_bits_are_of_the_dense_sums(options):
    with pytest.raises(OptionError, match="bits"):
        make_reducer(f"sparcml:{options}")


def test_a_threshold_that_nothing_is_compared_with_is_refused():
    with pytest.raises(OptionError, match="small=5 changes nothing"):
        make_reducer("sparcml:algorithm=split,small=5")
