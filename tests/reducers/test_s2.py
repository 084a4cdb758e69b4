"""S2: its error law, its sizes, its presets, and the options it refuses."""

import tracemalloc
from math import ceil, sqrt

import numpy as np
import pytest

from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.hashing import HyperLogLog
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.script import Post, Wait, Work
from s2sim.testing.reducer_properties import example_gradients

from .naive import drawn_arrays, relative_error


@pytest.mark.parametrize("ranks", [1, 8, 64])
@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("width", [1, 8])
def test_one_row_errs_by_the_root_of_keys_over_columns(ranks, overlap, width):
    arrays = drawn_arrays(ranks, overlap, width=width, rows=60_000 // width, held=12_000 // width)
    keys = 12_000
    for columns in (3_000, 24_000):
        once = reduce_once(f"s2:rows=1,columns={columns}", arrays)
        assert relative_error(once.values[0], arrays) == pytest.approx(sqrt(keys / columns), rel=0.05)


@pytest.mark.slow
def test_heavy_tails_obey_the_law_as_a_root_mean_square_over_hash_functions():
    rng = np.random.default_rng(2)
    keys, columns = 2_000, 1_000
    arrays = []
    for _ in range(4):
        magnitudes = (1 - rng.random(keys)) ** (-1 / 1.5)
        arrays.append((magnitudes * rng.choice([-1, 1], keys)).astype(np.float32))
    reducer = f"s2:rows=1,columns={columns}"
    squares = [relative_error(reduce_once(reducer, arrays, seed=seed).values[0], arrays) ** 2 for seed in range(250)]
    assert sqrt(np.mean(squares)) == pytest.approx(sqrt(keys / columns), rel=0.15)


def test_more_rows_help_heavy_tails():
    rng = np.random.default_rng(3)
    array = ((1 - rng.random(5_000)) ** (-1 / 1.5)).astype(np.float32)
    root_mean_squares = []
    for rows in (1, 3):
        text = f"s2:rows={rows},columns={6_000 // rows}"
        errors = [relative_error(reduce_once(text, [array], seed=seed).values[0], [array]) for seed in range(40)]
        root_mean_squares.append(sqrt(np.mean(np.square(errors))))
    one, three = root_mean_squares
    assert three < one / 2


def test_the_sketches_of_all_ranks_are_not_alive_at_once():
    table = RowSparse(np.array([3]), np.ones((1, 4), np.float32), (50, 4))
    gradients = [Gradient(("e",), (table,))] * 32
    reducer = make_reducer("s2:rows=1,columns=250000")
    tracemalloc.start()
    try:
        run_group(make_instances(reducer, 32), gradients)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # One sketch is 1 MB; the running sum, the first rank's and the one being added are.
    assert peak < 4e6


def test_a_row_bitmap_reads_the_zeros_of_held_rows_too():
    # A value in every fourth column only: four keys are read for each non-zero, and each of them is noisy.
    arrays = drawn_arrays(4, 0.5, width=8, rows=7_500, held=1_500)
    for array in arrays:
        array[:, np.arange(8) % 4 != 0] = 0
    once = reduce_once("s2:rows=1,columns=12000", arrays)
    assert relative_error(once.values[0], arrays) == pytest.approx(1.0, rel=0.05)


def test_cells_are_per_non_zero_of_the_union():
    arrays = drawn_arrays(8, 0.25, width=8, rows=7_500, held=1_500)
    once = reduce_once("s2:rows=1,cells=4", arrays)
    # The union is estimated, with a standard error of 1.04 / sqrt(4096) = 1.6 %; four of them and the law's 5 %.
    assert relative_error(once.values[0], arrays) == pytest.approx(sqrt(1 / 4), rel=0.05 + 0.5 * 4 * 0.016)
    cells = next(call for call in once.recording.calls if call.label == "cells")
    assert cells.elements[0] == pytest.approx(4 * 12_000, rel=4 * 0.016)


@pytest.mark.parametrize("hash_kind", ["mix", "modulo", "product"])
def test_the_mean_is_the_decoded_sum_of_encoded_arrays(hash_kind, monkeypatch):
    """A naive oracle: a sketch of each layer, read where any rank holds the row."""
    gradients = example_gradients(3)
    reducer = make_reducer(f"s2:rows=3,columns=60,hash={hash_kind}")
    results, _ = run_group(make_instances(reducer, 3), gradients, seed=9)
    # The sketches of the program, caught by what it must have made them with.
    made = []
    original = CountSketch.__post_init__
    monkeypatch.setattr(CountSketch, "__post_init__", lambda self: made.append(self) or original(self))
    run_group(make_instances(reducer, 3), gradients, seed=9)
    monkeypatch.undo()
    # Columns are shared by size: 1,015 and 101 elements.
    assert [sketch.columns for sketch in made] == [54, 6]
    for index, sketch in zip(tables_of(gradients[0]), made, strict=True):
        layer = gradients[0].layers[index]
        arrays = [gradient.layers[index].to_dense().reshape(-1) for gradient in gradients]
        keys = np.arange(layer.size, dtype=np.uint32)
        cells = sum(sketch.encode_keys(keys[array != 0], array[array != 0]) for array in arrays)
        expected = (sketch.decode_keys(cells, keys) / np.float32(3)).reshape(layer.shape)
        held = np.zeros(layer.shape[0], bool)
        for gradient in gradients:
            held[gradient.layers[index].rows] = True
        expected[~held] = 0
        np.testing.assert_allclose(results[0].mean.layers[index].to_dense(), expected, rtol=1e-5, atol=1e-6)


def tables_of(gradient):
    return [i for i, layer in enumerate(gradient.layers) if isinstance(layer, RowSparse) and layer.size]


def calls_of(text, gradients, steps=1):
    instances = make_instances(make_reducer(text), len(gradients))
    return [run_group(instances, gradients, step=step)[1] for step in range(steps)]


def union_keys(gradients):
    return sum(
        len(set().union(*(gradient.layers[i].rows.tolist() for gradient in gradients))) * layer.width
        for i, layer in enumerate(gradients[0].layers)
        if isinstance(layer, RowSparse)
    )


def test_the_first_step_estimates_the_union_and_later_ones_take_the_last():
    gradients = example_gradients(5)
    first, second = calls_of("s2:rows=3,cells=2,margin=1.25", gradients, steps=2)
    tables = tables_of(gradients[0])
    counter = HyperLogLog()
    estimate = 0.0
    for index in tables:
        shape = gradients[0].layers[index]
        merged = np.max([counter.registers(g.layers[index].rows.astype(np.uint32)) for g in gradients], axis=0)
        estimate += min(counter.estimate(merged), shape.shape[0]) * shape.width
    assert [(call.label, call.op) for call in first.calls] == [
        ("union estimate", "max"),
        ("energies of tables", "sum"),
        ("cells", "sum"),
        ("support", "or"),
        ("dense layers", "sum"),
    ]
    assert [call.bytes_by_rank[0] for call in first.calls[:2]] == [4096 * len(tables), 8 * len(tables)]
    assert first.calls[2].elements[0] == 3 * ceil(2 * estimate / 3)
    assert [call.label for call in second.calls] == ["cells", "support", "dense layers"]
    assert second.calls[0].elements[0] == 3 * ceil(2 * 1.25 * union_keys(gradients) / 3)
    # Only the estimate makes the host wait for data.
    assert [call.size_from_data for call in first.calls] == [False, False, True, False, False]
    assert not any(call.size_from_data for call in second.calls)


def test_columns_are_taken_as_they_are():
    (recording,) = calls_of("s2:rows=2,columns=17,bitmap=byte", example_gradients(3))
    sizes = {call.label: call.bytes_by_rank[0] for call in recording.calls}
    assert sizes["cells"] == 2 * 17 * 4
    assert sizes["support"] == sum(
        layer.shape[0] for layer in example_gradients(1)[0].layers if isinstance(layer, RowSparse)
    )
    assert "union estimate" not in sizes


def test_cells_support_and_dense_layers_are_in_flight_together():
    (recording,) = calls_of("s2:columns=20", example_gradients(3))
    steps = [step for step in recording.scripts[0] if not isinstance(step, Work)]
    assert steps == [Post(0), Post(1), Post(2), Wait((0, 1)), Wait((2,))]


@pytest.mark.parametrize(
    ("preset", "density", "multiplier"), [("authors-gnmt", 0.02, 0.25), ("authors-lstm", 0.01, 0.001)]
)
def test_presets_have_the_published_sizes_and_order(preset, density, multiplier):
    shapes = [(3000, 40), (777, 13)]
    rng = np.random.default_rng(0)
    gradients = [
        Gradient(
            ("encoder", "decoder", "rest"),
            (
                *(
                    RowSparse(np.array([rank, 9]), rng.standard_normal((2, shape[1]), np.float32), shape)
                    for shape in shapes
                ),
                np.ones(5, np.float32),
            ),
        )
        for rank in range(4)
    ]
    (recording,) = calls_of(f"s2:preset={preset}", gradients)
    columns = sum(max(1, int(rows * width * density * multiplier)) for rows, width in shapes)
    assert [(call.label, call.op, call.bytes_by_rank[0]) for call in recording.calls] == [
        ("cells", "sum", 4 * columns),
        ("support", "sum", 4 * (3000 + 777)),
        ("dense layers", "sum", 4 * 5),
    ]
    steps = [step for step in recording.scripts[0] if not isinstance(step, Work)]
    assert steps == [Post(0), Wait((0,)), Post(1), Wait((1,)), Post(2), Wait((0, 1)), Wait((2,))]
    # What that code was measured by is known beside the work of kernels.
    work = [step for step in recording.scripts[0] if isinstance(step, Work)]
    tables_bytes = sum(4 * rows * width for rows, width in shapes)
    assert [(step.phase, step.dense_encode_bytes, step.dense_decode_bytes) for step in work] == [
        ("encode", tables_bytes, 0),
        ("decode", 0, tables_bytes),
    ]
    assert all(step.bytes_moved for step in work)


def test_the_gnmt_preset_sends_what_the_published_code_sends():
    """1.324 MB of cells and 0.259 MB of bitmap for two tables of 32317 x 1024."""
    empty = RowSparse(np.empty(0, np.int64), np.empty((0, 1024), np.float32), (32317, 1024))
    (recording,) = calls_of("s2:preset=authors-gnmt", [Gradient(("a", "b"), (empty, empty))] * 2)
    assert [call.elements[0] for call in recording.calls] == [2 * 165_463, 2 * 32_317]


def test_presets_keep_their_hash_seed_over_steps_and_seeds():
    arrays = [np.ones((40, 50), np.float32)]
    first, other = (reduce_once("s2:preset=authors-gnmt", arrays, seed=seed).values[0] for seed in (0, 1))
    assert np.array_equal(first, other)


def test_hash_functions_change_from_step_to_step():
    gradients = example_gradients(2)
    instances = make_instances(make_reducer("s2:columns=20"), 2)
    first, second = (run_group(instances, gradients, step=step)[0][0].mean.layers[0] for step in (0, 1))
    assert np.array_equal(first.rows, second.rows)
    assert not np.array_equal(first.values, second.values)


def test_work_follows_its_formula():
    table = RowSparse(np.array([1, 5]), np.ones((2, 8), np.float32), (100, 8))
    other = RowSparse(np.array([5, 7]), np.ones((2, 8), np.float32), (100, 8))
    (recording,) = calls_of("s2:rows=3,columns=10", [Gradient(("e",), (layer,)) for layer in (table, other)])
    encode, decode = (step for step in recording.scripts[0] if isinstance(step, Work))
    bitmap, keys, union = 13, 16, 24
    assert encode.bytes_moved == (bitmap + 2 * (8 + 64)) + (30 * 4 + 2 * 8 + keys * (4 + 3 * 64))
    assert decode.bytes_moved == (bitmap + 3 * 8) + union * (3 * 32 + 4)
    assert (encode.launches, decode.launches) == (4, 3)


def test_options_show_what_is_in_effect():
    assert make_reducer("s2").options() == {
        "rows": 3,
        "cells": 2.0,
        "columns": None,
        "bitmap": "packed",
        "hash": "mix",
        "layers": "sparse",
        "margin": 1.1,
        "floor": 0.9,
        "preset": None,
        "error": None,
    }
    assert make_reducer("s2:preset=authors-gnmt").options() == {
        "rows": 1,
        "cells": None,
        "columns": None,
        "bitmap": "float32",
        "hash": "modulo",
        "layers": "sparse",
        "margin": None,
        "floor": None,
        "preset": "authors-gnmt",
        "error": None,
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        # Also with the value that is the default.
        ("s2:columns=9,cells=2", "cells changes nothing"),
        ("s2:columns=9,margin=1.1", "margin changes nothing"),
        ("s2:columns=9,floor=0.9", "floor changes nothing"),
        ("s2:floor=1.5", "floor=1.5"),
        ("s2:floor=-0.1", "floor=-0.1"),
        ("s2:preset=authors-gnmt,rows=3", "fixes rows"),
        ("s2:preset=authors-gnmt,hash=modulo,bitmap=packed", "fixes bitmap, hash"),
        ("s2:preset=authors-lstm,columns=9", "fixes columns"),
        ("s2:preset=authors-gnm", "authors-gnmt"),
        ("s2:rows=0", "rows=0"),
        ("s2:rows=17", r"not in \[1, 16\]"),
        ("s2:columns=0", "columns=0"),
        ("s2:columns=5000000000", "4294967295"),
        ("s2:cells=0", "cells=0.0"),
        ("s2:cells=nan", "cells=nan"),
        ("s2:cells=inf", "cells=inf"),
        ("s2:margin=-1", "margin=-1"),
        ("s2:bitmap=bits", "packed, byte, float32"),
        ("s2:hash=md5", "mix, modulo, product"),
        ("s2:layers=none", "sparse, all"),
        ("s2:row=3", "did you mean 'rows'"),
    ],
)
def test_options_out_of_range_or_without_effect_are_refused(text, complaint):
    with pytest.raises(OptionError, match=complaint):
        make_reducer(text)
