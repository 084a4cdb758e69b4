"""Law 6: what is published on the count sketch's error holds for this one."""

import numpy as np
import pytest

from s2sim.codecs.count_sketch import CountSketch, rms_relative_error, tail_probability


def relative_errors(sketch_of_seed, keys, values, seeds):
    """Return the relative L2 error of each seed, float64 of shape (seeds,)."""
    errors = []
    for seed in range(seeds):
        sketch = sketch_of_seed(seed)
        decoded = sketch.decode_keys(sketch.encode_keys(keys, values), keys)
        errors.append(np.linalg.norm(decoded - values) / np.linalg.norm(values))
    return np.array(errors)


def embedding_keys(rows, width, seed=0):
    """Return the element keys of random rows, uint32 of shape (rows * width,)."""
    row_ids = np.sort(np.random.default_rng(seed).choice(50 * rows, rows, replace=False))
    return (row_ids[:, None] * width + np.arange(width)).ravel().astype(np.uint32)


@pytest.mark.parametrize("cells_per_key", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_one_gaussian_row_follows_the_law_for_every_seed(cells_per_key):
    keys = embedding_keys(800, 64)
    values = np.random.default_rng(1).standard_normal(len(keys), np.float32)
    columns = round(cells_per_key * len(keys))
    errors = relative_errors(lambda seed: CountSketch(1, columns, seed), keys, values, 5)
    assert np.abs(errors / rms_relative_error(len(keys), columns) - 1).max() < 0.05


@pytest.mark.parametrize("cells_per_key", [0.1, 16.0])
def test_one_gaussian_row_follows_the_law_as_rms_over_seeds(cells_per_key):
    """With few cells, or few collisions, ideal random functions scatter by 2 to 3 % about the law too."""
    keys = embedding_keys(200, 64)
    values = np.random.default_rng(1).standard_normal(len(keys), np.float32)
    columns = round(cells_per_key * len(keys))
    errors = relative_errors(lambda seed: CountSketch(1, columns, seed), keys, values, 20)
    assert abs(np.sqrt(np.mean(errors**2)) / rms_relative_error(len(keys), columns) - 1) < 0.05


@pytest.mark.parametrize(("ranks", "overlap"), [(1, 1.0), (8, 0.0), (8, 0.5), (8, 1.0)])
def test_what_counts_is_the_union(ranks, overlap):
    generator = np.random.default_rng(ranks)
    per_rank = 12_800
    shared = generator.choice(1 << 20, round(overlap * per_rank), replace=False)
    total = np.zeros(1 << 20, np.float32)
    sketch = CountSketch(1, 30_000)
    cells = sketch.empty()
    for _ in range(ranks):
        own = generator.choice(1 << 20, per_rank - len(shared), replace=False)
        keys = np.unique(np.concatenate((shared, own))).astype(np.uint32)
        values = generator.standard_normal(len(keys), np.float32)
        total[keys] += values
        cells += sketch.encode_keys(keys, values)
    union = np.flatnonzero(total).astype(np.uint32)
    decoded = sketch.decode_keys(cells, union)
    error = np.linalg.norm(decoded - total[union]) / np.linalg.norm(total)
    assert abs(error / rms_relative_error(len(union), 30_000) - 1) < 0.05


def test_heavy_tails_follow_the_law_as_rms_over_seeds():
    keys = embedding_keys(32, 64)
    values = np.random.default_rng(2).pareto(1.5, len(keys)).astype(np.float32)
    errors = relative_errors(lambda seed: CountSketch(1, 2048, seed), keys, values, 400)
    assert abs(np.sqrt(np.mean(errors**2)) / rms_relative_error(2048, 2048) - 1) < 0.15


def ideal_squared_error(keys, values, rows, columns, generator):
    """Return the relative squared error of a sketch whose hash functions are tables of random numbers."""
    estimates = []
    for _ in range(rows):
        buckets = generator.integers(0, columns, len(keys))
        signs = generator.integers(0, 2, len(keys)) * 2 - 1
        estimates.append(signs * np.bincount(buckets, signs * values, columns)[buckets])
    return np.sum((np.median(estimates, axis=0) - values) ** 2) / np.sum(values.astype(np.float64) ** 2)


@pytest.mark.parametrize("support", ["contiguous", "stride 64", "rows of 64"])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_as_good_as_ideal_random_functions(rows, support):
    keys = {
        "contiguous": np.arange(12_800, dtype=np.uint32),
        "stride 64": np.arange(12_800, dtype=np.uint32) * np.uint32(64),
        "rows of 64": embedding_keys(200, 64),
    }[support]
    generator = np.random.default_rng(6)
    values = generator.standard_normal(len(keys), np.float32)
    for ratio in (0.25, 1, 3):
        columns = round(ratio * len(keys))
        squared = relative_errors(lambda seed, columns=columns: CountSketch(rows, columns, seed), keys, values, 8) ** 2
        ideal = np.mean([ideal_squared_error(keys, values, rows, columns, generator) for _ in range(8)])
        assert np.mean(squared) == pytest.approx(ideal, rel=0.15)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (1, {0.25: 4.01, 1: 0.98, 2: 0.51, 3: 0.33, 7: 0.14}),
        (3, {0.25: 1.55, 1: 0.26, 2: 0.085, 3: 0.042, 7: 0.0094}),
        (5, {0.25: 0.93, 1: 0.11, 2: 0.024, 3: 0.0091}),
    ],
)
def test_sum_of_eight_ranks_with_zipf_rows(rows, expected):
    """Relative squared error against columns in each row over keys, by an independent simulation.

    Eight ranks, a table of 2000 rows of 64 and Gaussian values, so that the sum's variance differs from row to row.
    """
    generator = np.random.default_rng(0)
    frequencies = 1 / np.arange(1, 2001)
    table = np.zeros((2000, 64), np.float32)
    for _ in range(8):
        touched = np.unique(generator.choice(2000, 150, p=frequencies / frequencies.sum()))
        table[touched] += generator.standard_normal((len(touched), 64), np.float32)
    keys = np.flatnonzero(table).astype(np.uint32)
    values = table.ravel()[keys]
    for ratio, squared_error in expected.items():
        columns = round(ratio * len(keys))
        errors = relative_errors(lambda seed, columns=columns: CountSketch(rows, columns, seed), keys, values, 6)
        assert np.mean(errors**2) == pytest.approx(squared_error, rel=0.15)


def test_identity_hashing_gains_little_from_rows():
    """With h(t) = t mod c all rows collide alike and only signs differ (the authors' GNMT setting)."""
    generator = np.random.default_rng(4)
    keys = (np.sort(generator.choice(2000, 700, replace=False))[:, None] * 64 + np.arange(64)).ravel()
    keys = keys.astype(np.uint32)
    values = generator.standard_normal(len(keys), np.float32)
    squared = {}
    for kind in ("mix", "modulo"):
        for rows in (1, 5):
            errors = relative_errors(
                lambda seed, rows=rows, kind=kind: CountSketch(rows, len(keys), seed, kind), keys, values, 5
            )
            squared[kind, rows] = np.mean(errors**2)
    assert squared["mix", 5] < 0.15 * squared["mix", 1]
    assert squared["modulo", 5] > 0.5 * squared["modulo", 1]


@pytest.mark.parametrize("tail", ["gauss", "pareto"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_per_coordinate_bound_holds(rows, tail):
    generator = np.random.default_rng(5)
    n, columns = 4000, 300
    values = (generator.standard_normal(n) if tail == "gauss" else generator.pareto(1.5, n)).astype(np.float32)
    keys = np.arange(n, dtype=np.uint32)
    norm = np.linalg.norm(values)
    sketches = [CountSketch(rows, columns, seed) for seed in range(20)]
    errors = np.concatenate([np.abs(s.decode_keys(s.encode_keys(keys, values), keys) - values) for s in sketches])
    for relative_error in (0.06, 0.1, 0.15, 0.25):
        bound = tail_probability(rows, columns, relative_error)
        assert (errors > relative_error * norm).mean() <= bound


def test_bound_falls_with_rows_and_never_exceeds_one():
    bounds = [tail_probability(rows, 400, 0.1) for rows in (1, 3, 5, 7, 9)]
    assert bounds == sorted(bounds, reverse=True)
    assert tail_probability(3, 400, 0.01) == 1.0
