"""dense, fp16, topk and union against naive oracles, and their bytes against formulas."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.top_k import elements_kept
from s2sim.errors import CodecError, OptionError, S2SimWarning
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse, to_dense
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.script import Work
from s2sim.reducers.systems.topk import TopK
from s2sim.testing.reducer_properties import example_gradients

from .naive import flat, labels, top


def reduce(text, gradients):
    reducer = make_reducer(text)
    results, recording = run_group(make_instances(reducer, len(gradients)), gradients)
    return results, recording


def relative_l2(found, exact):
    return np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact)


def test_dense_sends_every_byte_in_one_call():
    gradients = example_gradients(4)
    _, recording = reduce("dense", gradients)
    (call,) = recording.calls
    assert call.bytes_by_rank == (4 * flat(gradients[0]).size,) * 4
    assert call.op == "sum"


def test_fp16_divides_rounds_sums_in_single_precision_and_rounds_once():
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(500, np.float32) * np.float32(10.0 ** rng.integers(-4, 3)) for _ in range(7)]
    once = reduce_once("fp16", arrays)
    total = np.zeros(500, np.float32)
    for array in arrays:
        total += (array / np.float32(7)).astype(np.float16).astype(np.float32)
    expected = total.astype(np.float16).astype(np.float32)
    assert np.array_equal(once.values[0], expected)
    assert once.recording.calls[0].itemsize == 2
    assert sum(once.bytes_sent) == 2 * 6 * 500 * 2


def naive_bfloat16(values):
    """Return values rounded to 8 significant bits, to nearest and ties to even, in float64."""
    places = 2.0 ** (np.maximum(np.floor(np.log2(np.abs(values))), -126) - 7)
    return (np.round(values.astype(np.float64) / places) * places).astype(np.float32)


def test_dense_in_bf16_divides_rounds_sums_in_single_precision_and_rounds_once():
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(500, np.float32) * np.float32(10.0 ** rng.integers(-4, 30)) for _ in range(7)]
    once = reduce_once("dense:dtype=bf16", arrays)
    total = np.zeros(500, np.float32)
    for array in arrays:
        total += naive_bfloat16(array / np.float32(7))
    assert np.array_equal(once.values[0], naive_bfloat16(total))
    assert (once.recording.calls[0].dtype, once.recording.calls[0].itemsize) == ("bfloat16", 2)
    assert sum(once.bytes_sent) == 2 * 6 * 500 * 2


def test_dense_in_fp16_is_fp16_without_a_cast():
    gradients = example_gradients(5)
    (as_held, _), (cast, _) = (reduce(text, gradients) for text in ("dense:dtype=fp16", "fp16"))
    assert np.array_equal(flat(as_held[0].mean), flat(cast[0].mean))
    assert np.array_equal(flat(as_held[2].sent()), flat(cast[2].sent()))
    assert not [step for step in reduce("dense:dtype=fp16", gradients)[1].scripts[0] if isinstance(step, Work)]


def test_bf16_casts_what_is_held_in_float32_as_fp16_does():
    gradients = example_gradients(3)
    (_, narrow), (_, half) = (reduce(text, gradients) for text in ("bf16", "fp16"))
    works = [[step for step in recording.scripts[0] if isinstance(step, Work)] for recording in (narrow, half)]
    assert works[0] == works[1]
    assert [work.phase for work in works[0]] == ["encode", "decode"]
    held = make_instances(make_reducer("bf16").with_dtype("bf16"), 3)
    assert not [step for step in run_group(held, gradients)[1].scripts[0] if isinstance(step, Work)]


def test_fp16_keeps_row_sparse_layers_out_of_dense_memory_but_sends_them_densely():
    gradients = example_gradients(3)
    _, recording = reduce("fp16", gradients)
    assert recording.calls[0].bytes_by_rank == (2 * flat(gradients[0]).size,) * 3


def test_fp16_divides_first_so_that_large_values_fit():
    values = [np.array([120_000.0], np.float32), *[np.zeros(1, np.float32)] * 3]
    assert reduce_once("fp16", values).values[0][0] == 30_000


def test_fp16_overflow_is_an_error():
    with pytest.raises(CodecError, match="half precision"):
        reduce_once("fp16", [np.array([1e6], np.float32)])
    # Each share fits, their sum does not.
    with pytest.raises(CodecError, match="half precision"):
        reduce_once("fp16", [np.array([100_000.0], np.float32)] * 2)


@given(st.integers(1, 5), st.integers(0, 60), st.floats(0.01, 1), st.integers(0, 2**32))
def test_top_k_equals_sorting(ranks, n, density, seed):
    rng = np.random.default_rng(seed)
    # Few distinct values, so that ties and zeros abound.
    arrays = [rng.integers(-3, 4, n).astype(np.float32) for _ in range(ranks)]
    k = elements_kept(n, density)
    once = reduce_once(TopK(density), arrays)
    expected = np.zeros(n, np.float32)
    for array in arrays:
        expected += top(array, k)
    assert np.array_equal(once.values[0], expected / np.float32(ranks))
    assert once.recording.calls[0].bytes_by_rank == (8 * k,) * ranks
    assert once.bytes_sent == [8 * k * (ranks - 1)] * ranks
    assert not once.recording.calls[0].size_from_data


def test_top_k_selects_over_all_layers_in_layer_order():
    gradients = example_gradients(5)
    results, _ = reduce("topk:density=0.05", gradients)
    k = elements_kept(gradients[0].size, 0.05)
    expected = np.mean([top(flat(gradient), k) for gradient in gradients], axis=0)
    np.testing.assert_allclose(flat(results[0].mean), expected, rtol=1e-6)
    for gradient, result in zip(gradients, results, strict=True):
        assert np.array_equal(flat(result.sent()), top(flat(gradient), k))


def test_top_k_fills_up_where_fewer_elements_are_stored_than_sent():
    arrays = [np.zeros(10, np.float32) for _ in range(2)]
    arrays[0][[0, 7]] = 2.0, 4.0
    once = reduce_once("topk:density=0.5", arrays)
    assert once.values[0].tolist() == [1, 0, 0, 0, 0, 0, 0, 2, 0, 0]
    assert once.bytes_sent == [40, 40]


@pytest.mark.parametrize(("density", "n", "k"), [(0.29, 100, 29), (0.01, 99, 1), (1, 7, 7), (0.5, 5, 2), (0.01, 0, 0)])
def test_top_k_rounds_down_but_keeps_one(density, n, k):
    assert elements_kept(n, density) == k


@pytest.mark.parametrize("density", [0, -0.1, 1.01, float("nan")])
def test_top_k_refuses_a_density_out_of_range(density):
    with pytest.raises(OptionError, match="density"):
        TopK(density)


def test_union_sends_one_bit_a_row_and_one_cell_a_value_of_the_union():
    gradients = example_gradients(5)
    _, recording = reduce("union", gradients)
    tables = [index for index, layer in enumerate(gradients[0].layers) if isinstance(layer, RowSparse)]
    cells = sum(
        np.any([to_dense(g.layers[i]) for g in gradients], axis=0).reshape(g0.shape[0], g0.width).any(axis=1).sum()
        * g0.width
        for i in tables
        if (g0 := gradients[0].layers[i]).size
    )
    dense_size = sum(layer.size for i, layer in enumerate(gradients[0].layers) if i not in tables)
    assert labels(recording) == ["support", "values", "dense layers"]
    sizes = {call.label: (call.op, call.bytes_by_rank[0], call.size_from_data) for call in recording.calls}
    assert sizes == {
        "dense layers": ("sum", 4 * dense_size, False),
        "support": ("or", sum((gradients[0].layers[i].shape[0] + 7) // 8 for i in tables), False),
        "values": ("sum", 4 * cells, True),
    }


@pytest.mark.parametrize(("bitmap", "op", "bytes_a_row"), [("byte", "max", 1), ("float32", "sum", 4)])
def test_bitmaps_of_whole_bytes(bitmap, op, bytes_a_row):
    arrays = [np.eye(13, dtype=np.float32)[rank] for rank in range(3)]
    call = reduce_once(f"union:bitmap={bitmap}", arrays).recording.calls[0]
    assert (call.label, call.op, call.bytes_by_rank[0]) == ("support", op, 13 * bytes_a_row)


def test_union_of_all_layers_takes_dense_ones_by_element():
    gradients = [Gradient(("w",), (np.eye(4, dtype=np.float32) * (rank + 1),)) for rank in range(3)]
    results, recording = reduce("union:layers=all", gradients)
    assert np.array_equal(results[0].mean.layers[0], np.eye(4) * 2)
    assert [call.elements[0] for call in recording.calls] == [2, 4]


@pytest.mark.parametrize(
    "text", ["union", "union:prefetch=true", "owner-reduce", "gather-rows", "s2", "s2:preset=authors-lstm"]
)
def test_without_a_row_sparse_layer_all_goes_densely_and_a_warning_says_so(text):
    gradients = [Gradient(("w",), (np.full(3, rank, np.float32),)) for rank in range(3)]
    with pytest.warns(S2SimWarning, match="layers=all") as caught:
        results, recording = reduce(text, gradients)
    assert len(caught) == 1
    assert results[0].mean.layers[0].tolist() == [1, 1, 1]
    assert len(recording.calls) == 1


def test_with_a_row_sparse_layer_nothing_is_warned_of():
    table = as_row_sparse(np.eye(3, dtype=np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, recording = reduce("union", [Gradient(("e",), (table,))] * 2)
    assert labels(recording) == ["support", "values"]
