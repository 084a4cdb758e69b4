"""A sketch sized for an error has it: by the law for one row, by measurement for more."""

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, as_row_sparse
from s2sim.reducers.measure import mean_float64
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.shared.sketch_settings import measured_errors, size_for_error
from s2sim.reducers.systems.s2 import count_sketch_bound
from s2sim.testing.reducer_properties import example_gradients


def drawn(tail, count=4000, ranks=4, size=100_000):
    rng = np.random.default_rng(tail == "heavy")
    arrays = []
    for _ in range(ranks):
        array = np.zeros(size, np.float32)
        values = rng.normal(size=count) if tail == "gauss" else rng.pareto(1.5, count) * rng.choice([-1, 1], count)
        array[rng.choice(size, count, replace=False)] = values
        arrays.append(array)
    return arrays


def error_of(found, arrays):
    exact = np.mean([array.astype(np.float64) for array in arrays], axis=0)
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def pareto(index, count=4000, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.pareto(index, count) * rng.choice([-1, 1], count)).astype(np.float32)


def kept(values, text, *, seeds=200):
    """Return the share of first steps, by fresh seeds, whose error is no more than asked for, and the reducer."""
    array = np.zeros(4 * len(values), np.float32)
    array[::4] = values
    gradients = [Gradient(("g",), (as_row_sparse(part),)) for part in (array / 4, array * np.float32(0.75))]
    sized = make_reducer(text).fitted(gradients, 0)
    errors = []
    for seed in range(1, seeds + 1):
        results, _ = run_group(make_instances(sized, 2), gradients, seed=seed)
        errors.append(error_of(results[0].mean.layers[0].to_dense(), [layer_of(each) for each in gradients]))
    return np.mean(np.array(errors) <= sized.error), sized


def layer_of(gradient):
    return gradient.layers[0].to_dense()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        pytest.param(pareto(1.0), "s2:error=0.3", marks=pytest.mark.slow),
        pytest.param(pareto(1.0, seed=1), "s2:error=0.3", marks=pytest.mark.slow),
        pytest.param(pareto(1.0, seed=2), "s2:error=0.3,rows=3", marks=pytest.mark.slow),
        pytest.param(np.ones(2), "s2:error=0.1", marks=pytest.mark.slow),
        (np.array([5.0, 1.0]), "s2:error=0.1,rows=1"),
        pytest.param(np.random.default_rng(0).normal(size=3000), "s2:error=0.2", marks=pytest.mark.slow),
        pytest.param(np.random.default_rng(0).normal(size=3000), "s2:error=0.3,rows=1", marks=pytest.mark.slow),
    ],
)
def test_95_percent_of_the_seeds_keep_the_error(values, text):
    share, _ = kept(values, text)
    assert share >= 0.95


@pytest.mark.slow
def test_the_bound_costs_little_where_the_error_hardly_scatters_and_much_where_it_does():
    """The size is no larger than it must be: half of the seeds keep the error with the one told for that."""
    for values, most in ((np.random.default_rng(0).normal(size=3000), 1.5), (np.ones(2), 20)):
        _, sized = kept(values, "s2:error=0.2", seeds=1)
        size = sized.sizing
        assert 1 < size.cells / size.median_cells < most
        errors = measured_errors([values.astype(np.float32)], size.rows, size.median_cells, 99, seeds=99)
        assert 0.2 < np.mean(errors <= 0.2) < 0.95
        assert size.low <= size.median <= size.high <= size.error
        note = sized.notes()[0]
        assert "95 % of hash seeds keep an error of 0.2" in note
        assert f"{size.median_cells:.3g} would do" in note


def test_of_several_tables_the_whole_keeps_the_error():
    rng = np.random.default_rng(4)
    tables = [(scale * rng.normal(size=2000)).astype(np.float32) for scale in (1, 30)]
    shared, equal = (size_for_error(tables, 0.2, floor=floor) for floor in (0.5, 1.0))
    assert shared.cells < 0.9 * equal.cells
    errors = measured_errors(tables, shared.rows, shared.cells, 5, seeds=100, floor=0.5)
    assert np.mean(errors <= 0.2) >= 0.95


def test_one_row_follows_the_law():
    values = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    sizing = size_for_error([values], 0.25, rows=(1,))
    # RMS and median of normal values are much the same.
    assert sizing.median_cells == pytest.approx(16, rel=0.1)
    assert 16 < sizing.cells < 24
    assert count_sketch_bound(1, [80_000], [5000]).relative_l2 == (0.25,)
    assert count_sketch_bound(1, [300], [1]).element == pytest.approx((0.1,))


@pytest.mark.slow
def test_heavy_tails_take_fewer_cells_by_more_rows():
    values = np.concatenate([np.abs(array[array != 0]) for array in drawn("heavy")])
    one, more = size_for_error([values], 0.2, rows=(1,)), size_for_error([values], 0.2)
    assert more.rows > 1
    assert more.cells < one.cells / 3


def test_rows_that_are_given_stay_and_the_choice_is_told():
    arrays = drawn("gauss", count=500, size=5000)
    sized = make_reducer("s2:error=0.3,rows=1").fitted(example_gradients(3), 0)
    assert sized.settings.rows == 1
    assert sized.settings.cells == sized.sizing.cells
    once = reduce_once("s2:error=0.3,rows=1", arrays)
    assert "sized to 1 row" in once.notes[0]
    assert sized.options()["error"] == 0.3
    assert error_of(once.values[0], arrays) < 0.3
    assert reduce_once("s2", arrays).notes == ()


def test_zeros_need_no_size():
    once = reduce_once("s2:error=0.1", [np.zeros(9, np.float32)] * 2)
    assert not once.values[0].any()
    assert once.notes == ()


def test_refusals():
    for text in ("s2:error=0", "s2:error=1.5", "s2:error=0.1,cells=2", "s2:error=0.1,columns=100"):
        with pytest.raises(OptionError, match="error="):
            make_reducer(text)
    with pytest.raises(OptionError, match="send the union exactly"):
        reduce_once("s2:error=0.0001,rows=1", drawn("gauss", count=50, size=500))
    gradients = example_gradients(2)
    assert mean_float64(gradients)
    with pytest.raises(OptionError, match="sized on gradients first"):
        run_group(make_instances(make_reducer("s2:error=0.1"), 2), gradients)
