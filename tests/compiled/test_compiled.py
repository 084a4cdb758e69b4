"""The extra ``numba``: the same bits as NumPy gives."""

import tracemalloc

import numpy as np
import pytest

from s2sim.codecs.bitmap import CHUNK_ELEMENTS
from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.payload import Payload, make_codec
from s2sim.gradients.gradient import to_dense
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.testing.codecs import check_codec, example_vector
from s2sim.testing.reducer_properties import example_gradients

pytest.importorskip("numba")

from s2sim.codecs import count_sketch


def bits(array):
    return array.view(np.uint32)


@pytest.mark.parametrize("n", [0, 1, 5000, 5 * CHUNK_ELEMENTS + 77])
@pytest.mark.parametrize("density", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 16])
def test_cells_bitmap_and_estimates(n, density, rows):
    array = example_vector(n, density=density)
    columns = 20_011
    plain, compiled = CountSketch(rows, columns, 3), CountSketch(rows, columns, 3, backend="numba")
    cells, bitmap = plain.encode_dense(array)
    compiled_cells, compiled_bitmap = compiled.encode_dense(array)
    assert np.array_equal(compiled_bitmap, bitmap)
    assert np.array_equal(bits(compiled_cells), bits(cells))
    decoded = plain.decode_dense(cells, bitmap, n)
    assert np.array_equal(bits(compiled.decode_dense(cells, bitmap, n)), bits(decoded))


def test_keys_and_rows():
    generator = np.random.default_rng(1)
    row_ids = np.sort(generator.choice(1 << 20, 3000, replace=False))
    values = generator.standard_normal((3000, 64), np.float32)
    plain, compiled = CountSketch(3, 100_000), CountSketch(3, 100_000, backend="numba")
    cells = plain.encode_rows(row_ids, values, offset=17)
    assert np.array_equal(bits(compiled.encode_rows(row_ids, values, offset=17)), bits(cells))
    decoded = plain.decode_rows(cells, row_ids, 64, offset=17)
    assert np.array_equal(bits(compiled.decode_rows(cells, row_ids, 64, offset=17)), bits(decoded))
    keys = generator.permutation(1 << 18).astype(np.uint32)
    spread = generator.standard_normal(len(keys), np.float32)
    assert np.array_equal(bits(compiled.encode_keys(keys, spread)), bits(plain.encode_keys(keys, spread)))
    assert np.array_equal(bits(compiled.decode_keys(cells, keys)), bits(plain.decode_keys(cells, keys)))


def test_values_that_are_not_finite_travel_alike():
    array = np.array([np.inf, 1.0, np.nan, -np.inf, -2.0], np.float32)
    plain, compiled = CountSketch(3, 4), CountSketch(3, 4, backend="numba")
    cells, bitmap = plain.encode_dense(array)
    assert np.array_equal(compiled.encode_dense(array)[0], cells, equal_nan=True)
    decoded = plain.decode_dense(cells, bitmap, 5)
    assert np.array_equal(compiled.decode_dense(cells, bitmap, 5), decoded, equal_nan=True)


def test_payloads_are_the_same_and_either_reads_them():
    array = example_vector(5000, density=0.1)
    plain, compiled = make_codec("count-sketch:seed=4"), make_codec("count-sketch:seed=4,backend=numba")
    data = compiled.encode(array).to_bytes()
    assert data == plain.encode(array).to_bytes()
    assert np.array_equal(
        plain.decode(Payload.from_bytes(data, plain)), compiled.decode(Payload.from_bytes(data, compiled))
    )


def test_the_codec_conforms():
    check_codec(make_codec("count-sketch:backend=numba"))


@pytest.mark.slow
@pytest.mark.parametrize("density", [0.01, 0.25, 1.0])
def test_memory_stays_within_output_and_eight_megabytes(density):
    array = example_vector(3_000_000, density=density)
    sketch = CountSketch(3, 20_000, backend="numba")
    sketch.decode_dense(*sketch.encode_dense(array), len(array))
    tracemalloc.start()
    cells, bitmap = sketch.encode_dense(array)
    encode_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    decoded = sketch.decode_dense(cells, bitmap, len(array))
    decode_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert encode_peak <= cells.nbytes + bitmap.nbytes + 8e6
    assert decode_peak <= cells.nbytes + bitmap.nbytes + decoded.nbytes + 8e6


@pytest.mark.slow
def test_a_run_takes_what_pays_and_gets_the_same_bits(monkeypatch):
    assert count_sketch.backend_for(10**6) == "numpy"
    assert count_sketch.backend_for(10**9) == "numba"
    gradients = example_gradients(3)
    plain, _ = run_group(make_instances(make_reducer("s2"), 3), gradients)
    monkeypatch.setattr(count_sketch, "_WORTHWHILE", 0)
    taken = []
    monkeypatch.setattr(count_sketch, "add_rows", lambda *a, add=count_sketch.add_rows: taken.append(a) or add(*a))
    found, _ = run_group(make_instances(make_reducer("s2"), 3), gradients)
    assert taken
    for left, right in zip(plain[0].mean.layers, found[0].mean.layers, strict=True):
        assert np.array_equal(bits(to_dense(left)), bits(to_dense(right)))
