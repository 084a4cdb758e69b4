from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.bitmap import pack_nonzero
from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.sketch_error import rms_relative_error
from s2sim.codecs.windows import SEGMENT_ELEMENTS, WindowedSketch, Windows, segment_counts
from s2sim.errors import CodecError, OptionError

N = 4 * SEGMENT_ELEMENTS + 77


def sparse_vector(densities, seed=0):
    """Return a vector whose segments have these densities, with small integers, so that sums are exact."""
    generator = np.random.default_rng(seed)
    density = np.repeat(densities, SEGMENT_ELEMENTS)[:N]
    return (generator.integers(1, 9, len(density)) * (generator.random(len(density)) < density)).astype(np.float32)


UNEVEN = [0.2, 0.01, 0.2, 0.15, 0.15]


def windows_of(array, columns):
    return Windows.proportional(segment_counts(pack_nonzero(array)), columns)


@given(
    st.lists(st.integers(0, SEGMENT_ELEMENTS), min_size=1, max_size=40),
    st.sampled_from([1, 2, 5, 1000, 12_345, 1 << 20, (1 << 32) - 1]),
)
def test_columns_are_proportional_to_keys(counts, columns):
    windows = Windows.proportional(np.array(counts), columns)
    assert windows.bounds[-1] == columns
    first = [*(key // SEGMENT_ELEMENTS for key in windows.first_keys), len(counts)]
    assert all(key % SEGMENT_ELEMENTS == 0 for key in windows.first_keys)
    for left, right, start, stop in zip(first, first[1:], windows.bounds, windows.bounds[1:], strict=False):
        keys = sum(counts[left:right])
        assert stop - start >= 1
        assert len(first) == 2 or keys >= 1 << 15
        assert abs((stop - start) - columns * keys / max(1, sum(counts))) <= len(counts) + 1 or len(first) == 2


def test_counts_are_those_of_the_segments():
    array = sparse_vector(UNEVEN)
    expected = [np.count_nonzero(array[start : start + SEGMENT_ELEMENTS]) for start in range(0, N, SEGMENT_ELEMENTS)]
    assert segment_counts(pack_nonzero(array)).tolist() == expected


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", ["mix", "modulo", "product"])
def test_each_window_is_a_sketch_of_its_own(rows, kind):
    array = sparse_vector(UNEVEN)
    columns = 60_001
    windows = windows_of(array, columns)
    assert windows.first_keys == (0, SEGMENT_ELEMENTS, 3 * SEGMENT_ELEMENTS)
    sketch = WindowedSketch(rows, columns, seed=5, hash=kind, windows=windows)
    cells, bitmap = sketch.encode_dense(array)
    keys = np.flatnonzero(array).astype(np.uint32)
    decoded = sketch.decode_dense(cells, bitmap, N)
    window_of_key = np.searchsorted(windows.first_keys, keys, side="right") - 1
    for window, (start, stop) in enumerate(zip(windows.bounds, windows.bounds[1:], strict=False)):
        own = keys[window_of_key == window]
        alone = CountSketch(rows, stop - start, seed=5, hash=kind)
        assert np.array_equal(cells[:, start:stop], alone.encode_keys(own, array[own]))
        assert np.array_equal(decoded[own], alone.decode_keys(cells[:, start:stop], own))
    assert np.array_equal(decoded != 0, (decoded != 0) & (array != 0))


def test_all_ways_to_encode_and_decode_agree():
    array = sparse_vector(UNEVEN)[: 4 * SEGMENT_ELEMENTS]
    sketch = WindowedSketch(3, 50_000, windows=windows_of(array, 50_000))
    cells, bitmap = sketch.encode_dense(array)
    keys = np.flatnonzero(array).astype(np.uint32)
    assert np.array_equal(sketch.encode_keys(keys, array[keys]), cells)
    row_ids = np.flatnonzero(array.reshape(-1, 64).any(axis=1))
    assert np.array_equal(sketch.encode_rows(row_ids, array.reshape(-1, 64)[row_ids]), cells)
    decoded = sketch.decode_dense(cells, bitmap, len(array))
    assert np.array_equal(sketch.decode_keys(cells, keys), decoded[keys])
    by_rows = sketch.decode_rows(cells, row_ids, 64)
    assert np.array_equal(by_rows[array.reshape(-1, 64)[row_ids] != 0], decoded[keys])


def test_sketches_of_agreed_windows_add_up():
    ranks = [sparse_vector(UNEVEN, seed) for seed in range(3)]
    counts = sum(segment_counts(pack_nonzero(rank)) for rank in ranks)
    sketch = WindowedSketch(2, 30_000, windows=Windows.proportional(counts, 30_000))
    summed = sum(sketch.encode_dense(rank)[0] for rank in ranks)
    assert np.array_equal(summed, sketch.encode_dense(sum(ranks))[0])


@pytest.mark.parametrize("rows", [1, 3])
def test_error_is_that_of_a_sketch_without_windows(rows):
    generator = np.random.default_rng(0)
    array = sparse_vector([0.3, 0.002, 0.002, 0.3, 0.3])
    array[array != 0] = generator.standard_normal(np.count_nonzero(array), np.float32)
    keys = np.flatnonzero(array)
    columns = 2 * len(keys)
    errors = []
    for sketch in (CountSketch(rows, columns), WindowedSketch(rows, columns, windows=windows_of(array, columns))):
        decoded = sketch.decode_dense(*sketch.encode_dense(array), N)
        errors.append(np.linalg.norm(decoded - array) / np.linalg.norm(array))
    assert errors[1] == pytest.approx(errors[0], rel=0.03)
    if rows == 1:
        assert errors[1] == pytest.approx(rms_relative_error(len(keys), columns), rel=0.05)


def test_keys_beyond_the_segments_go_to_the_last_window():
    sketch = WindowedSketch(1, 300, windows=Windows((0, 100), (0, 100, 300)))
    cells = sketch.encode_keys(np.array([99, 100, (1 << 32) - 1], np.uint32), np.ones(3, np.float32))
    assert np.count_nonzero(cells[0, :100]) == 1
    assert np.count_nonzero(cells[0, 100:]) == 2


def test_values_that_are_not_finite_stay_in_their_windows():
    sketch = WindowedSketch(1, 300, windows=Windows((0, 100), (0, 100, 300)))
    keys = np.arange(50, 150, dtype=np.uint32)
    values = np.where(keys < 100, np.float32(np.nan), np.float32(1))
    cells = sketch.encode_keys(keys, values)
    assert np.isnan(cells[0, :100]).any()
    assert np.isfinite(cells[0, 100:]).all()
    assert np.isnan(sketch.decode_keys(cells, keys))[:50].all()


@pytest.mark.parametrize("keys", [[3, 2], [1, 1]])
def test_keys_out_of_order_are_refused(keys):
    sketch = WindowedSketch(1, 10, windows=Windows((0, 2), (0, 5, 10)))
    ids = np.array(keys, np.uint32)
    with pytest.raises(CodecError, match="increase"):
        sketch.encode_keys(ids, np.ones(2, np.float32))
    with pytest.raises(CodecError, match="increase"):
        sketch.decode_keys(sketch.empty(), ids)
    with pytest.raises(CodecError, match="increase"):
        sketch.encode_rows(ids.astype(np.int64), np.ones((2, 4), np.float32))
    with pytest.raises(CodecError, match="increase"):
        sketch.decode_rows(sketch.empty(), ids.astype(np.int64), 4)


@pytest.mark.parametrize(
    ("first_keys", "bounds"),
    [((), (0,)), ((1,), (0, 5)), ((0,), (1, 5)), ((0,), (0,)), ((0, 8, 8), (0, 1, 2, 3)), ((0, 8), (0, 3, 3))],
)
def test_impossible_windows_are_refused(first_keys, bounds):
    with pytest.raises(OptionError):
        Windows(first_keys, bounds)


@pytest.mark.parametrize("counts", [[], [3, -1], [[3]]])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(OptionError, match="each segment"):
        Windows.proportional(np.array(counts, np.int64), 10)


def test_windows_of_another_sketch_are_refused():
    with pytest.raises(OptionError, match="10 columns do not fit a sketch of 11"):
        WindowedSketch(1, 11, windows=Windows((0,), (0, 10)))
