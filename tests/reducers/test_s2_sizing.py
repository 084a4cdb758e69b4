"""A sketch sized for an error has it: by the law for one row, by measurement for more."""

from __future__ import annotations

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.reducers.error_bound import count_sketch_bound
from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.reducers.measure import mean_float64
from s2sim.reducers.once import reduce_once
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.sketching.sizing import size_for_error
from s2sim.testing.reducers import example_gradients


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


@pytest.mark.slow
@pytest.mark.parametrize("tail", ["gauss", "heavy"])
@pytest.mark.parametrize("target", [0.5, 0.2])
def test_the_error_is_about_the_one_asked_for(tail, target):
    arrays = drawn(tail)
    made = make_reducer(f"s2:error={target}")
    # What a first step estimates of the union is within some per cent, and so is the median of five seeds.
    found = np.median([error_of(reduce_once(made, arrays, seed=seed).values[0], arrays) for seed in range(5)])
    assert found == pytest.approx(target, rel=0.12)


def test_one_row_follows_the_law():
    values = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    sizing = size_for_error(values, 0.25, rows=(1,))
    assert (sizing.rows, sizing.cells, sizing.expected) == (1, 16.0, 0.25)
    assert count_sketch_bound(1, 80_000, 5000).relative_l2 == 0.25
    assert sizing.low <= 0.25 <= sizing.high
    assert count_sketch_bound(1, 300, 1).element == pytest.approx(0.1)


def test_heavy_tails_take_fewer_cells_by_more_rows():
    values = np.concatenate([np.abs(array[array != 0]) for array in drawn("heavy")])
    one, more = size_for_error(values, 0.2, rows=(1,)), size_for_error(values, 0.2)
    assert more.rows > 1
    assert more.cells < one.cells / 3


def test_rows_that_are_given_stay_and_the_choice_is_told():
    arrays = drawn("gauss", count=500, size=5000)
    sized = make_reducer("s2:error=0.3,rows=1").fitted(example_gradients(3), 0)
    assert sized.settings.rows == 1
    assert sized.settings.cells == pytest.approx(1 / 0.09)
    assert "sized to 1 row" in sized.notes()[0]
    assert sized.options()["error"] == 0.3
    assert error_of(reduce_once("s2:error=0.3,rows=1", arrays).values[0], arrays) < 0.6


def test_refusals():
    for text in ("s2:error=0", "s2:error=1.5", "s2:error=0.1,cells=2", "s2:error=0.1,columns=100"):
        with pytest.raises(OptionError, match="s2: error="):
            make_reducer(text)
    with pytest.raises(OptionError, match="send the union exactly"):
        reduce_once("s2:error=0.0001,rows=1", drawn("gauss", count=50, size=500))
    gradients = example_gradients(2)
    assert mean_float64(gradients)
    with pytest.raises(OptionError, match="sized on gradients first"):
        run_group(make_instances(make_reducer("s2:error=0.1"), 2), gradients)
