from itertools import combinations

import numpy as np
import pytest

from s2sim.codecs.hashing import MAX_ROWS, MERSENNE_61, _polynomial_constants, as_keys, hash_rows, mix32
from s2sim.errors import CodecError

KEYS = 20_000

SUPPORTS = {
    "contiguous": np.arange(KEYS, dtype=np.uint32),
    "offset": np.arange(KEYS, dtype=np.uint32) + np.uint32(3_000_000_000),
    "stride 64": np.arange(KEYS, dtype=np.uint32) * np.uint32(64),
    "stride 65536": np.arange(KEYS, dtype=np.uint32) * np.uint32(1 << 16),
    "rows of 64": (
        np.random.default_rng(1).choice(500_000, KEYS // 64, replace=False)[:, None] * 64 + np.arange(64)
    ).ravel().astype(np.uint32),
    "random": np.random.default_rng(2).choice(1 << 32, KEYS, replace=False).astype(np.uint32),
}  # fmt: skip


def hashes(kind, keys, rows, columns, seed=0):
    """Return all rows at once: columns int64 (rows, k) and signs +-1 int64 (rows, k)."""
    buckets, sign_bits = zip(*hash_rows(kind, keys, rows, columns, seed), strict=True)
    return np.array(buckets), 1 - 2 * (np.array(sign_bits) >> 31).astype(np.int64)


@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("columns", [1_000, 20_011, 1 << 17])
def test_collisions_are_as_many_as_random_functions_make(support, columns):
    keys = SUPPORTS[support]
    pairs = len(keys) * (len(keys) - 1) / 2
    expected = pairs / columns
    for seed in range(3):
        buckets, _ = hashes("mix", keys, 3, columns, seed)
        assert buckets.min() >= 0
        assert buckets.max() < columns
        for row in buckets:
            load = np.bincount(row, minlength=columns)
            collisions = (load * (load - 1) / 2).sum()
            assert abs(collisions - expected) < 6 * np.sqrt(expected)


@pytest.mark.parametrize("support", SUPPORTS)
def test_signs_are_balanced_and_independent_of_other_rows_and_of_the_column(support):
    keys = SUPPORTS[support]
    for seed in range(3):
        buckets, signs = hashes("mix", keys, MAX_ROWS, 1 << 10, seed)
        limit = 6 * np.sqrt(len(keys))
        assert np.abs(signs.sum(axis=1)).max() < limit
        assert max(abs(int(signs[i] @ signs[j])) for i, j in combinations(range(MAX_ROWS), 2)) < limit
        # In each half of the columns, of any row, signs must be balanced too.
        upper = buckets >= 1 << 9
        assert np.abs(upper.astype(np.int64) @ signs.T).max() < limit


def pairs_sharing(cells):
    """Return how many pairs of keys share a cell."""
    _, load = np.unique(cells, return_counts=True)
    return (load * (load - 1) / 2).sum()


@pytest.mark.parametrize("support", ["contiguous", "stride 64", "random"])
@pytest.mark.parametrize(("count", "columns", "rows"), [(100_000, 65_537, 2), (10_000, 200, 3)])
def test_rows_collide_independently(support, count, columns, rows):
    """Pairs that share a cell in some rows share one in another as often as ideal functions do, seed by seed.

    Chi-square of the pairs that share cells in all of ``rows``, over all choices of rows: rows that are multiples of
    each other have the right mean, but ten times its variance.
    """
    keys = {
        "contiguous": np.arange(count, dtype=np.uint32),
        "stride 64": np.arange(count, dtype=np.uint32) * np.uint32(64),
        "random": np.random.default_rng(2).choice(1 << 32, count, replace=False).astype(np.uint32),
    }[support]
    expected = count * (count - 1) / 2 / columns**rows
    squares, shared = [], []
    for seed in range(3):
        buckets, _ = hashes("mix", keys, 6, columns, seed)
        for chosen in combinations(range(6), rows):
            cells = buckets[chosen[0]]
            for row in chosen[1:]:
                cells = cells * columns + buckets[row]
            shared.append(pairs_sharing(cells))
            squares.append((shared[-1] - expected) ** 2 / expected)
    assert np.mean(squares) < 1.8
    assert np.mean(shared) == pytest.approx(expected, rel=5 / np.sqrt(expected * len(shared)))
    assert max(shared) < expected + 5 * np.sqrt(expected) + 5


@pytest.mark.parametrize("kind", ["mix", "modulo", "product"])
def test_colliding_pairs_have_equal_and_opposite_signs_alike(kind):
    keys, columns = SUPPORTS["random"], 2_000
    agreement = 0
    for seed in range(5):
        buckets, signs = hashes(kind, keys, 3, columns, seed)
        for row, sign in zip(buckets, signs, strict=True):
            total, load = np.bincount(row, sign, columns), np.bincount(row, minlength=columns)
            agreement += (total**2 - load).sum()
    # A sum over 15 rows of +-1 for every colliding pair.
    pairs = 15 * len(keys) ** 2 / 2 / columns
    assert abs(agreement / 2) < 6 * np.sqrt(pairs)


@pytest.mark.slow
def test_mix_is_bijective_on_a_block():
    mixed = mix32(np.arange(1 << 20, dtype=np.uint32), np.uint32(77))
    assert len(np.unique(mixed)) == 1 << 20


def test_seeds_and_rows_give_different_functions():
    keys = SUPPORTS["contiguous"]
    first, _ = hashes("mix", keys, 3, 1 << 20, seed=1)
    second, _ = hashes("mix", keys, 3, 1 << 20, seed=2)
    for a, b in [(first[0], second[0]), (first[0], first[1]), (first[1], first[2]), (first[1], second[1])]:
        assert (a == b).mean() < 0.001


def test_a_sketch_of_fewer_rows_is_the_beginning_of_one_of_more():
    keys = SUPPORTS["random"]
    assert np.array_equal(hashes("mix", keys, 5, 999)[0][:2], hashes("mix", keys, 2, 999)[0])


def wrap(value):
    """Return ``value`` as wrapping 64-bit arithmetic has it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@pytest.mark.parametrize("kind", ["modulo", "product"])
def test_published_variants_against_python_integers(kind):
    keys, columns = np.array([0, 1, 2, 1000, 32317 * 1024 - 1, (1 << 32) - 1], np.uint32), 165_463
    buckets, signs = hashes(kind, keys, 3, columns, seed=42)
    for row, constants in enumerate(_polynomial_constants(3, 42).tolist()):
        a0, a1, a2, a3, a4, a5 = constants
        for column, token in enumerate(keys.tolist()):
            product = wrap(wrap(a0 * token) * a1) % MERSENNE_61 % columns
            assert buckets[row, column] == (token % columns if kind == "modulo" else product)
            cubic = wrap(wrap(wrap(wrap(wrap(wrap(a2 * token) + a3) * token) + a4) * token) + a5)
            assert signs[row, column] == cubic % MERSENNE_61 % 2 * 2 - 1
    if kind == "product":
        assert (buckets[:, 0] == 0).all()


@pytest.mark.parametrize("keys", [[-1], [1 << 32]])
def test_keys_of_more_than_32_bits_are_refused(keys):
    with pytest.raises(CodecError, match="32 bits"):
        as_keys(np.array(keys))


def test_keys_that_are_no_integers_are_refused():
    with pytest.raises(CodecError, match="integers"):
        as_keys(np.array([1.0]))
