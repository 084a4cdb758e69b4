"""Exact S2: its accuracy, its rounds cold and warm, and what goes in the second message."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.peeling import PeelTable
from s2sim.errors import CodecError, OptionError, S2SimWarning
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse
from s2sim.gradients.synthetic import load_trace
from s2sim.reducers.measure import mean_float64, worst_error
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer, option_string
from s2sim.reducers.run import reduce_once, reduce_steps
from s2sim.reducers.script import HostSync, Post, Wait, Work
from s2sim.testing.reducer_properties import example_gradients

from .naive import drawn_arrays, labels, relative_error

AGAIN = "rows sent again"
MAGNITUDES = "largest magnitudes"


def gradient_of(array):
    return Gradient(("table",), (as_row_sparse(array),))


def run_steps(text, steps):
    """Return, for each step's arrays, the mean as every rank ends with it, the recording, and the first instance."""
    instances = make_instances(make_reducer(text), len(steps[0]))
    outcome = []
    for step, arrays in enumerate(steps):
        results, recording = run_group(instances, [gradient_of(array) for array in arrays], step=step)
        assert all(result.mean is results[0].mean for result in results)
        outcome.append((results[0].mean.layers[0].to_dense(), recording))
    return outcome, instances[0]


@pytest.mark.parametrize("ranks", [1, 2, 7, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_nothing_is_lost_but_rounding(ranks, overlap, width, dtype):
    arrays = drawn_arrays(ranks, overlap, width=width)
    once = reduce_once(f"s2-exact:dtype={dtype}", arrays)
    # Float32 cells gather rounding errors along chains of subtractions.
    assert relative_error(once.values[0], arrays) <= (5e-6 if dtype == "float32" else 1e-6)
    assert np.array_equal(once.values[0] != 0, np.any([array != 0 for array in arrays], axis=0))


@pytest.mark.parametrize("ranks", [1, 64])
@pytest.mark.parametrize(("dtype", "limit"), [("int32", 1e-5), ("int64", 1e-6)])
def test_heavy_tails(ranks, dtype, limit):
    arrays = drawn_arrays(ranks, 0.3, rows=60_000, held=40_000, tail="heavy")
    assert relative_error(reduce_once(f"s2-exact:dtype={dtype}", arrays).values[0], arrays) <= limit


@pytest.mark.parametrize(("dtype", "lost"), [("int32", 0.19), ("int64", 0.0)])
def test_one_huge_element_takes_small_ones_of_its_group_and_not_the_norm(dtype, lost):
    array = np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
    array[3] = 1e9
    once = reduce_once(f"s2-exact:dtype={dtype}", [array])
    assert relative_error(once.values[0], [array]) < 1e-7
    assert np.mean(once.values[0] == 0) == pytest.approx(lost, abs=0.01)
    (note,) = once.notes
    bound = float(note.split("at most ")[1].split(",")[0])
    assert "smaller ones may come back as 0" in note
    assert np.abs(array[once.values[0] == 0]).max(initial=0) <= bound
    rest = np.abs(array) < 1e8
    assert np.abs(once.values[0] - array)[rest].max() <= bound * 1.01 + 1e-6


@pytest.mark.parametrize("trace", ["lstm-lm", "ncf"])
@pytest.mark.parametrize("text", ["s2-exact", "s2-exact:dtype=int64"])
def test_shipped_traces(trace, text):
    loaded = load_trace(trace, workers=8)
    gradients = [loaded.gradient(0, rank) for rank in range(8)]
    results, recording = run_group(make_instances(make_reducer(text), 8), gradients)
    errors = worst_error(results, mean_float64(gradients), make_reducer(text).compresses(gradients[0]))
    assert errors.compressed.relative_l2 <= 1e-6
    assert AGAIN not in labels(recording)


@given(st.integers(1, 6), st.integers(0, 300), st.integers(1, 5), st.floats(0, 1), st.integers(0, 2**32))
def test_any_support_and_scale(ranks, rows, width, density, seed):
    rng = np.random.default_rng(seed)
    arrays = [
        (rng.standard_normal((rows, width)) * (rng.random((rows, 1)) < density) * 10.0 ** rng.integers(-9, 9)).astype(
            np.float32
        )
        for _ in range(ranks)
    ]
    exact = np.mean([array.astype(np.float64) for array in arrays], axis=0)
    found = reduce_once("s2-exact:dtype=int64", arrays).values[0]
    assert np.linalg.norm(found - exact) <= 1e-6 * np.linalg.norm(exact)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sums_are_the_same_bits_in_any_order_of_ranks(dtype):
    steps = [drawn_arrays(9, 0.4, width=3, tail="heavy", seed=seed) for seed in (1, 2)]
    order = np.random.default_rng(0).permutation(9)
    shuffled = [[arrays[rank] for rank in order] for arrays in steps]
    text = f"s2-exact:dtype={dtype}"
    for (one, first), (other, second) in zip(run_steps(text, steps)[0], run_steps(text, shuffled)[0], strict=True):
        assert AGAIN not in labels(first) + labels(second)
        assert np.array_equal(one, other)


def test_rounds_and_bytes_cold_and_warm():
    arrays = drawn_arrays(5, 0.5, width=4)
    ((_, cold), (_, warm)), instance = run_steps("s2-exact:margin=1.25", [arrays, arrays])
    union = int(np.any([array.any(axis=1) for array in arrays], axis=0).sum())
    assert instance.carried[0].union == union
    assert [(call.label, call.op, call.dtype, call.size_from_data) for call in cold.calls] == [
        ("union estimate", "max", "uint8", False),
        (MAGNITUDES, "sum", "float64", False),
        ("support", "or", "uint8", False),
        ("cells", "sum", "int32", True),
    ]
    assert [(call.label, call.op, call.dtype, call.size_from_data) for call in warm.calls] == [
        ("support", "or", "uint8", False),
        ("cells", "sum", "int32", False),
    ]
    # Warm, one number for the single group of units travels with the cells.
    table = PeelTable.for_keys(union * 1.25)
    assert warm.calls[1].elements[0] == 4 * table.cells + 1
    assert warm.calls[0].bytes_by_rank[0] == 6_000 // 8
    assert cold.calls[1].elements[0] == 1


def test_bitmap_and_cells_are_in_flight_together_and_the_order_is_found_meanwhile():
    arrays = drawn_arrays(3, 0.5, width=4)
    (_, (_, warm)), _ = run_steps("s2-exact", [arrays, arrays])
    kinds = [type(step) if isinstance(step, Work) else step for step in warm.scripts[0]]
    assert kinds == [Work, Post(0), Work, Post(1), Wait((0,)), Work, Wait((1,)), Work, HostSync()]
    order, read = [step for step in warm.scripts[0] if isinstance(step, Work)][2:]
    # Compaction of the bitmap, clearing, counting, a last look; then two kernels a round here, and one there.
    assert order.launches == 2 + 2 + 1 + 2 * read.launches
    assert read.launches > 3
    # Sectors of 32 bytes: one read, two read and written; a row of four values and three numbers.
    assert read.bytes_moved == 600 * (5 * 32 + 4 * 4 + 8 + 2 * 4)


def test_the_table_never_provides_for_more_rows_than_there_are():
    arrays = drawn_arrays(2, 1.0, rows=4_000, held=4_000)
    (_, (_, warm)), _ = run_steps("s2-exact:margin=3", [arrays, arrays])
    assert warm.calls[1].elements[0] == PeelTable.for_keys(4_000).cells + 1


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_a_union_that_outgrows_its_table_goes_in_a_second_message(dtype):
    small, large = (drawn_arrays(4, 0.5, width=3, held=held, seed=held) for held in (300, 3_000))
    (_, (mean, grown), (_, later)), instance = run_steps(f"s2-exact:dtype={dtype}", [small, large, large])
    again = grown.calls[-1]
    assert (again.label, again.op, again.dtype, again.size_from_data) == (AGAIN, "sum", "float32", True)
    # Far below the threshold hardly anything can be peeled.
    assert 2_000 * 3 < again.elements[0] <= 3_000 * 3
    assert relative_error(mean, large) <= 1e-6
    assert AGAIN not in labels(later)
    assert instance.carried[0].union == 3_000


def test_rows_sent_again_are_plain_float32_sums():
    small, large = (drawn_arrays(4, 0.5, width=3, held=held, seed=held) for held in (100, 5_000))
    (_, (mean, grown)), _ = run_steps("s2-exact", [small, large])
    total = np.zeros_like(large[0])
    for array in large:
        total += array
    rows = grown.calls[-1].elements[0] // 3
    assert (mean == total / np.float32(4)).all(axis=1).sum() >= 1_000 + rows


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("factor", [1e6, 1e-6, 1e-15])
def test_values_that_leave_the_range_are_sent_again(dtype, factor):
    first = drawn_arrays(4, 0.5, width=3, seed=1)
    then = [(array * np.float32(factor)).astype(np.float32) for array in first]
    outcome, _ = run_steps(f"s2-exact:dtype={dtype}", [first, then, then, then])
    assert [AGAIN in labels(recording) for _, recording in outcome] == [False, True, False, False]
    # After units have failed they are agreed on anew; the size of the union is not.
    assert [MAGNITUDES in labels(recording) for _, recording in outcome] == [True, False, True, False]
    assert [len(recording.calls) for _, recording in outcome] == [4, 3, 3, 2]
    assert outcome[1][1].calls[-1].elements[0] == 600 * 3
    for mean, _ in outcome[1:]:
        assert relative_error(mean, then) <= 1e-6


def test_one_large_value_sends_its_group_again_and_no_other():
    rows = 120_000
    rng = np.random.default_rng(5)
    first = [rng.standard_normal(rows).astype(np.float32) for _ in range(2)]
    then = [array.copy() for array in first]
    then[1][77] = 1e9
    (_, (mean, recording)), instance = run_steps("s2-exact", [first, then])
    groups = PeelTable.for_keys(rows).blocks
    assert groups == 4
    assert labels(recording)[-1] == AGAIN
    assert recording.calls[-1].elements[0] == pytest.approx(rows / groups, rel=0.05)
    exact = np.mean(np.array(then, np.float64), axis=0)
    # Also the others are right, next to a value that dwarfs them.
    others = np.arange(rows) != 77
    assert np.linalg.norm((mean - exact)[others]) <= 1e-6 * np.linalg.norm(exact[others])
    assert instance.carried[0].maxima is None


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.6, 1.0, 3.0])
def test_values_that_drift_need_no_second_message(factor):
    arrays = drawn_arrays(64, 0.5, width=8, seed=3)
    steps = [[(array * np.float32(factor**step)).astype(np.float32) for array in arrays] for step in range(6)]
    outcome, _ = run_steps("s2-exact", steps)
    for step, (mean, recording) in enumerate(outcome):
        assert labels(recording)[-1] == "cells"
        assert (MAGNITUDES in labels(recording)) == (step == 0)
        assert relative_error(mean, steps[step]) <= 1e-6


def test_units_are_agreed_on_again_after_a_step_without_values():
    arrays = drawn_arrays(3, 0.5, width=2)
    tiny = [array * np.float32(1e-12) for array in arrays]
    zeros = [np.zeros_like(array) for array in arrays]
    outcome, _ = run_steps("s2-exact", [zeros, tiny, tiny])
    assert [MAGNITUDES in labels(recording) for _, recording in outcome] == [True, True, False]
    assert not outcome[0][0].any()
    for mean, _ in outcome[1:]:
        assert relative_error(mean, tiny) <= 1e-6


def test_units_follow_a_union_that_changes_its_number_of_groups():
    steps = [drawn_arrays(2, 0.5, rows=250_000, held=held, seed=held) for held in (150_000, 110_000, 60_000, 66_000)]
    outcome, instance = run_steps("s2-exact", steps)
    assert len({call.elements for _, recording in outcome for call in recording.calls if call.label == "cells"}) == 4
    for (mean, recording), arrays in zip(outcome[1:], steps[1:], strict=True):
        assert labels(recording)[-1] == "cells"
        assert MAGNITUDES not in labels(recording)
        assert relative_error(mean, arrays) <= 1e-6
    assert len(instance.carried[0].maxima) == PeelTable.for_keys(60_000 * 1.1).blocks


def test_every_element_is_as_close_as_its_bound_says():
    arrays = drawn_arrays(8, 0.5, width=3, tail="heavy")
    for dtype in ("int32", "int64"):
        outcome, instance = run_steps(f"s2-exact:dtype={dtype}", [arrays, arrays])
        exact = np.mean(np.array(arrays, np.float64), axis=0)
        for mean, _ in outcome:
            rounding = np.abs(exact) * 3 * 2.0**-24
            assert (np.abs(mean - exact) <= instance.last_error_bounds[0] + rounding).all()
        largest = float(np.sum([np.abs(array).max() for array in arrays]))
        # Half a unit; the range is used but for two bits of headroom, one of rounding up, and one for the sum.
        assert instance.last_error_bounds[0] <= largest * 2.0 ** (3 - np.iinfo(dtype).bits + 1)
    assert run_steps("s2-exact:dtype=float32", [arrays])[1].last_error_bounds is None


def test_a_table_of_rows_without_elements_beside_another():
    tables = (
        RowSparse(np.array([1, 4]), np.ones((2, 0), np.float32), (5, 0)),
        as_row_sparse(np.eye(3, dtype=np.float32)),
    )
    results, _ = run_group(
        make_instances(make_reducer("s2-exact:ef=true"), 2), [Gradient(("none", "some"), tables)] * 2
    )
    assert results[0].mean.layers[0].shape == (5, 0)
    assert np.array_equal(results[0].mean.layers[1].to_dense(), np.eye(3))


def test_tables_of_several_dimensions_keep_their_shape():
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    table = RowSparse(np.array([3, 8]), values, (10, 3, 4))
    results, _ = run_group(make_instances(make_reducer("s2-exact"), 2), [Gradient(("t",), (table,))] * 2)
    assert results[0].mean.layers[0].values.shape == (2, 3, 4)
    np.testing.assert_allclose(results[0].mean.layers[0].values, values, atol=1e-7)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_an_error_in_any_step(value):
    good = drawn_arrays(2, 0.5)
    bad = [array.copy() for array in good]
    bad[1][np.flatnonzero(bad[1])[0]] = value
    for steps in ([bad], [good, bad]):
        with pytest.raises(CodecError, match="infinite or not a number"):
            run_steps("s2-exact", steps)


def test_feedback_keeps_what_rounding_lost():
    ranks = 3
    instances = make_instances(make_reducer("s2-exact:ef=true"), ranks)
    # Small values beside large ones have more bits than their unit.
    gradients = [gradient.map(lambda values: values**3 / np.float32(3)) for gradient in example_gradients(ranks)]
    results, _ = run_group(instances, gradients)
    for gradient, result, instance in zip(gradients, results, instances, strict=True):
        table, sent, left = (item.layers[0].to_dense() for item in (gradient, result.sent(), instance.residual))
        np.testing.assert_allclose(sent + left, table, rtol=1e-6)
        assert left.any()
        assert np.abs(left).max() <= instance.inner.last_error_bounds[0]


def wide_range():
    """Return values that no cell holds together: the small ones are below half a unit of the largest."""
    return np.array([1e20, 1, 1e-5, 3], np.float32)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_rank_claims_to_have_sent_only_what_arrived(dtype):
    (gradient,) = (Gradient(("t",), (as_row_sparse(wide_range()),)),)
    results, _ = run_group(make_instances(make_reducer(f"s2-exact:dtype={dtype}"), 1), [gradient])
    for layer in (results[0].mean.layers[0], results[0].sent().layers[0]):
        assert layer.to_dense().tolist() == [np.float32(1e20), 0, 0, 0]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_what_rounding_takes_from_small_values_feedback_delivers(dtype):
    other = np.array([1, 0, 0, 0], np.float32)
    once, later = reduce_steps(f"s2-exact:dtype={dtype},ef=true", [[wide_range()], [other]])
    assert once.values[0].tolist()[1:] == [0, 0, 0]
    assert later.values[0].tolist() == [1, 1, np.float32(1e-5), 3]
    assert "off by at most" in once.notes[0]
    assert float(once.notes[0].split("at most ")[1].split(",")[0]) >= 3


def test_int64_loses_nothing_of_values_within_its_range():
    rng = np.random.default_rng(7)
    values = np.ldexp(rng.uniform(1, 2, 500), rng.integers(-36, 0, 500)).astype(np.float32)
    assert np.array_equal(reduce_once("s2-exact:dtype=int64", [values]).values[0], values)
    assert not np.array_equal(reduce_once("s2-exact", [values]).values[0], values)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_it_rounds_and_says_so(dtype):
    traits = make_reducer(f"s2-exact:dtype={dtype}").traits
    assert (traits.lossless, traits.rounds_only) == (False, True)


def test_without_a_row_sparse_layer_all_goes_densely_and_a_warning_says_so():
    gradients = [Gradient(("w",), (np.full(3, rank, np.float32),)) for rank in range(3)]
    with pytest.warns(S2SimWarning, match="layers=all"):
        results, recording = run_group(make_instances(make_reducer("s2-exact"), 3), gradients)
    assert results[0].mean.layers[0].tolist() == [1, 1, 1]
    assert len(recording.calls) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("s2-exact:cells=1.2", "1.2 cells a key"),
        ("s2-exact:cells=nan", "nan cells a key"),
        ("s2-exact:cells=inf", "inf cells a key"),
        ("s2-exact:margin=0", "margin=0"),
        ("s2-exact:margin=inf", "margin=inf"),
        ("s2-exact:dtype=int16", "int32, int64, float32"),
        ("s2-exact:bitmap=bits", "packed, byte, float32"),
        ("s2-exact:layers=none", "sparse, all"),
        ("s2-exact:row=3", "no option 'row'"),
    ],
)
def test_options_out_of_range_are_refused(text, complaint):
    with pytest.raises(OptionError, match=complaint):
        make_reducer(text)


def test_options_and_state():
    made = make_reducer("s2-exact:cells=1.4,dtype=int64")
    assert option_string(made) == "s2-exact:cells=1.4,dtype=int64"
    assert made.options() == {"cells": 1.4, "dtype": "int64", "margin": 1.1, "bitmap": "packed", "layers": "sparse"}
    instances = make_instances(made, 2)
    run_group(instances, example_gradients(2))
    assert made.carried is None
    assert instances[0].fresh().carried is None
