import statistics
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.bitmap import CHUNK_ELEMENTS, pack_nonzero, pack_positions
from s2sim.codecs.count_sketch import CountSketch, _compiled, median
from s2sim.codecs.hashing import hash_rows
from s2sim.errors import CodecError, OptionError, S2SimError
from s2sim.testing.codecs import example_vector

KINDS = ["mix", "modulo", "product"]


def naive_hashes(sketch, key):
    """Return (column, sign) of one key in each row."""
    single = np.array([key], np.uint32)
    return [
        (int(columns[0]), -1.0 if sign_bits[0] else 1.0)
        for columns, sign_bits in hash_rows(sketch.hash, single, sketch.rows, sketch.columns, sketch.seed)
    ]


def naive_encode(sketch, keys, values):
    cells = [[np.float32(0)] * sketch.columns for _ in range(sketch.rows)]
    for key, value in zip(keys, values, strict=True):
        for row, (column, sign) in enumerate(naive_hashes(sketch, key)):
            cells[row][column] += np.float32(sign) * value
    return np.array(cells, np.float32)


def naive_decode(sketch, cells, keys):
    estimates = [
        [sign * float(cells[row, column]) for row, (column, sign) in enumerate(naive_hashes(sketch, key))]
        for key in keys
    ]
    return np.array([statistics.median(estimate) for estimate in estimates], np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7])
def test_equals_the_naive_sketch(rows, kind):
    generator = np.random.default_rng(rows)
    sketch = CountSketch(rows, 60, seed=rows, hash=kind)
    keys = generator.choice(1 << 32, 200, replace=False).astype(np.uint32)
    values = generator.standard_normal(200, np.float32)
    cells = sketch.encode_keys(keys, values)
    assert np.array_equal(cells, naive_encode(sketch, keys, values))
    assert np.array_equal(sketch.decode_keys(cells, keys), naive_decode(sketch, cells, keys))


@pytest.mark.parametrize("n", [0, 1, 9, 5000, CHUNK_ELEMENTS + 77])
@pytest.mark.parametrize("density", [0.0, 0.01, 0.6])
def test_dense_equals_keys(n, density):
    array = example_vector(n, density=density)
    sketch = CountSketch(3, 1001)
    keys = np.flatnonzero(array).astype(np.uint32)
    cells, bitmap = sketch.encode_dense(array)
    assert np.array_equal(bitmap, pack_nonzero(array))
    assert np.array_equal(cells, sketch.encode_keys(keys, array[keys]))
    expected = np.zeros(n, np.float32)
    expected[keys] = sketch.decode_keys(cells, keys)
    assert np.array_equal(sketch.decode_dense(cells, bitmap, n), expected)


@pytest.mark.parametrize("width", [1, 3, 64, 70_000, 140_000])
@pytest.mark.parametrize("offset", [0, 12_345])
def test_rows_equal_keys(width, offset):
    generator = np.random.default_rng(width)
    row_ids = np.sort(generator.choice(100, 5, replace=False))
    values = generator.standard_normal((5, width), np.float32)
    keys = (offset + row_ids[:, None] * width + np.arange(width)).ravel().astype(np.uint32)
    sketch = CountSketch(3, 500)
    cells = sketch.encode_rows(row_ids, values, offset=offset)
    # Wide rows are cut into blocks of columns, which changes the order of float32 additions.
    np.testing.assert_allclose(cells, sketch.encode_keys(keys, values.ravel()), atol=1e-4)
    decoded = sketch.decode_rows(cells, row_ids, width, offset=offset)
    assert np.array_equal(decoded.ravel(), sketch.decode_keys(cells, keys))


def test_many_rows_are_streamed():
    generator = np.random.default_rng(3)
    row_ids = np.arange(0, 9000, 3)
    values = generator.integers(-5, 6, (3000, 64)).astype(np.float32)
    sketch = CountSketch(2, 4096)
    keys = (row_ids[:, None] * 64 + np.arange(64)).ravel().astype(np.uint32)
    assert np.array_equal(sketch.encode_rows(row_ids, values), sketch.encode_keys(keys, values.ravel()))


def test_layers_add_into_one_sketch():
    sketch = CountSketch(3, 100)
    first, second = np.ones((2, 4), np.float32), np.full((1, 8), 2.0, np.float32)
    cells = sketch.encode_rows(np.array([0, 5]), first)
    assert sketch.encode_rows(np.array([1]), second, offset=40, out=cells) is cells
    keys = np.array([0, 1, 2, 3, 20, 21, 22, 23, *range(48, 56)], np.uint32)
    assert np.array_equal(cells, sketch.encode_keys(keys, np.array([1] * 8 + [2] * 8, np.float32)))


def test_no_rows():
    sketch = CountSketch(3, 100)
    cells = sketch.encode_rows(np.empty(0, np.int64), np.empty((0, 4), np.float32))
    assert not cells.any()
    assert sketch.decode_rows(cells, np.empty(0, np.int64), 4).shape == (0, 4)


@given(
    st.integers(1, 5),
    st.integers(1, 200),
    st.sampled_from(KINDS),
    st.lists(st.lists(st.integers(-100, 100), min_size=50, max_size=50), min_size=1, max_size=5),
)
def test_sum_of_sketches_is_the_sketch_of_the_sum(rows, columns, kind, ranks):
    sketch = CountSketch(rows, columns, seed=1, hash=kind)
    arrays = [np.array(rank, np.float32) for rank in ranks]
    summed = sum(sketch.encode_dense(array)[0] for array in arrays)
    assert np.array_equal(summed, sketch.encode_dense(sum(arrays))[0])


@pytest.mark.parametrize("density", [0.0, 0.01, 0.4])
def test_stretches_without_keys_decode_to_zeros(density):
    n = 3 * CHUNK_ELEMENTS + 77
    array = example_vector(n, density=density)
    # Stretches without keys before, between and behind batches of keys.
    array[:1000] = array[n // 2 : n // 2 + 300_000] = array[-1000:] = 0
    sketch = CountSketch(3, 5000)
    cells, bitmap = sketch.encode_dense(array)
    decoded = sketch.decode_dense(cells, bitmap, n)
    assert not decoded[array == 0].any()
    held = np.flatnonzero(array).astype(np.uint32)
    assert np.array_equal(decoded[held], sketch.decode_keys(cells, held))


def test_few_keys_in_many_columns_are_exact():
    array = example_vector(100_000, density=0.0005)
    sketch = CountSketch(5, 50_000)
    assert np.array_equal(sketch.decode_dense(*sketch.encode_dense(array), len(array)), array)


def test_support_beyond_the_keys_decodes_to_noise_around_zero():
    sketch = CountSketch(3, 10_000)
    cells = sketch.encode_keys(np.arange(10, dtype=np.uint32), np.ones(10, np.float32))
    decoded = sketch.decode_dense(cells, pack_positions(np.arange(1000), 1000), 1000)
    assert np.array_equal(decoded[:10], np.ones(10))
    assert not decoded[10:].any()


@given(st.integers(1, 16), st.integers(0, 1000))
def test_median_is_numpys(count, seed):
    estimates = np.random.default_rng(seed).integers(-3, 4, (count, 50)).astype(np.float32)
    assert np.array_equal(median(list(estimates.copy())), np.median(estimates, axis=0))


@pytest.mark.slow
def test_memory_stays_within_output_and_eight_megabytes():
    n = 3_000_000
    for density in (0.01, 0.25, 1.0):
        array = example_vector(n, density=density)
        sketch = CountSketch(3, 20_000)
        tracemalloc.start()
        cells, bitmap = sketch.encode_dense(array)
        encode_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        decoded = sketch.decode_dense(cells, bitmap, n)
        decode_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        results = cells.nbytes + bitmap.nbytes
        assert encode_peak <= results + 8e6
        assert decode_peak <= results + decoded.nbytes + 8e6


@pytest.mark.parametrize(
    "options",
    [
        {"rows": 0},
        {"rows": 17},
        {"columns": 0},
        {"columns": 1 << 32},
        {"seed": -1},
        {"hash": "crc"},
        {"backend": "cupy"},
        {"backend": "numba", "hash": "product"},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(OptionError):
        CountSketch(**({"rows": 3, "columns": 10} | options))


def test_misfits_are_refused():
    sketch = CountSketch(3, 10)
    cells = sketch.empty()
    with pytest.raises(CodecError, match="32 bits"):
        sketch.encode_rows(np.array([1 << 26]), np.zeros((1, 64), np.float32))
    with pytest.raises(CodecError, match="32 bits"):
        sketch.encode_rows(np.array([-1]), np.zeros((1, 64), np.float32))
    with pytest.raises(CodecError, match="float32"):
        sketch.encode_dense(np.zeros(5))
    with pytest.raises(CodecError, match="2 rows"):
        sketch.encode_rows(np.array([1, 2]), np.zeros((3, 4), np.float32))
    with pytest.raises(CodecError, match="2 keys"):
        sketch.encode_keys(np.array([1, 2], np.uint32), np.zeros(3, np.float32))
    with pytest.raises(CodecError, match="shape"):
        sketch.decode_keys(cells[:2], np.array([1], np.uint32))
    with pytest.raises(CodecError, match="shape"):
        sketch.encode_rows(np.array([1]), np.zeros((1, 4), np.float32), out=cells.T)
    with pytest.raises(CodecError, match="bitmap of 16 elements is 2 bytes"):
        sketch.decode_dense(cells, np.zeros(3, np.uint8), 16)


def test_without_numba_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    _compiled.cache_clear()
    with pytest.raises(S2SimError, match=r"pip install 's2sim\[numba\]'"):
        CountSketch(3, 10, backend="numba").encode_dense(np.ones(8, np.float32))


def test_last_possible_keys():
    sketch = CountSketch(1, 1000)
    row = np.array([(1 << 26) - 1])
    values = np.arange(64, dtype=np.float32)[None]
    cells = sketch.encode_rows(row, values)
    keys = ((1 << 32) - 64 + np.arange(64)).astype(np.uint32)
    assert np.array_equal(cells, sketch.encode_keys(keys, values[0]))
