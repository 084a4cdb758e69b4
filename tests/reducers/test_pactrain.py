"""PacTrain: a mask that all know, and an all-reduce of what it leaves."""

import numpy as np
import pytest

import s2sim
from s2sim.errors import OptionError, S2SimError
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once

RANKS, SIZE = 4, 400


def arrays():
    return [np.random.default_rng(rank).standard_normal(SIZE).astype(np.float32) for rank in range(RANKS)]


def test_what_is_left_is_exact_and_all_else_zero():
    mean = np.mean(arrays(), axis=0, dtype=np.float64)
    for mask in ("random", "magnitude"):
        found = reduce_once(f"pactrain:mask={mask}", arrays())
        value = found.values[0]
        kept = np.flatnonzero(value)
        assert len(kept) == SIZE // 5
        np.testing.assert_allclose(value[kept], mean[kept], rtol=1e-5)
        # 8 (1-s) n (P-1)/P.
        assert found.bytes_sent == [8 * (SIZE // 5) * (RANKS - 1) // RANKS] * RANKS
    assert kept.tolist() == sorted(np.argsort(-np.abs(mean))[: SIZE // 5])


def test_the_mask_is_drawn_once_by_the_seed():
    first, again, other = (np.flatnonzero(reduce_once("pactrain", arrays(), seed=seed).values[0]) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


@pytest.mark.slow
def test_ternary_values_are_unbiased_and_a_byte_each():
    exact = reduce_once("pactrain", arrays()).values[0]
    kept = np.flatnonzero(exact)
    # With one mask for all seeds: that of largest magnitude.
    text = "pactrain:mask=magnitude"
    exact, kept = reduce_once(text, arrays()).values[0], np.flatnonzero(reduce_once(text, arrays()).values[0])
    found = [reduce_once(f"{text},ternary=true", arrays(), seed=seed) for seed in range(300)]
    scale = max(np.abs(array[kept]).max() for array in arrays())
    assert np.isclose(np.abs(found[0].values[0]) * RANKS / scale % 1, 0, atol=1e-4).all()
    gap = np.mean([once.values[0] for once in found], axis=0) - exact
    assert np.abs(gap).max() < 5 * scale / 2 / np.sqrt(300 * RANKS)
    # Chunks of the bytes, and four bytes of scale, by rings.
    assert max(found[0].bytes_sent) <= 2 * (SIZE // 5) * (RANKS - 1) / RANKS + 2 * 4
    assert min(found[0].bytes_sent) >= 2 * (SIZE // 5) * (RANKS - 1) / RANKS


def test_what_makes_no_sense_is_refused():
    for text, said in (
        ("pactrain:pruned=1", r"not in \[0, 1\)"),
        ("pactrain:mask=none", "not one of random, magnitude"),
        ("pactrain:ef=true", "loses nothing if 80% of the weights are pruned"),
    ):
        with pytest.raises(OptionError, match=said):
            make_reducer(text)


@pytest.mark.slow
def test_a_verdict_says_what_it_assumes():
    text = "pactrain:mask=magnitude"
    result = s2sim.run("fat-tree", workers=16, reducers=[text])
    (row,) = (each for each in result.rows if not each.baseline)
    assert row.assumes == "80% of the weights are pruned, and those of this mask"
    assert result.verdict.assumes == row.assumes
    assert row.assumes in " ".join(str(result).split())


def test_a_mask_of_gradients_whose_sum_overflows_is_refused():
    with pytest.raises(S2SimError, match="overflows"):
        reduce_once("pactrain:mask=magnitude", [np.full(9, 3e38, np.float32)] * 2)
