"""EmbRace: each rank ends with its own part of tables, which together are the mean; bytes by hand."""

import numpy as np
import pytest

import s2sim
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.reducers.measure import final_results, mean_float64, worst_error
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import chunk_bounds, count_rounds, ring_bytes
from s2sim.reducers.shared.row_sparse import COUNT_BYTES, key_bytes
from s2sim.reducers.shared.sparse_split import RowOwners

ROWS, WIDTH, RANKS, HELD = 500, 10, 4, 60


def tables():
    generator = np.random.default_rng(2)
    held = [np.sort(generator.choice(ROWS, HELD, replace=False)) for _ in range(RANKS)]
    return [RowSparse(rows, generator.standard_normal((HELD, WIDTH), np.float32), (ROWS, WIDTH)) for rows in held]


def gradients_of(layers):
    return [Gradient(("table", "bias"), (table, np.full(6, rank, np.float32))) for rank, table in enumerate(layers)]


@pytest.mark.parametrize("shards", ["columns", "rows"])
def test_each_rank_ends_with_what_it_owns(shards):
    gradients = gradients_of(tables())
    reducer = make_reducer(f"embrace:shards={shards}")
    ran = run_reducer(reducer, gradients)
    exact = to_dense(mean_float64(gradients).layers[0])
    cuts = chunk_bounds(WIDTH, RANKS)
    order = RowOwners(ROWS, RANKS)
    for rank, result in enumerate(ran.results):
        owned = np.zeros((ROWS, WIDTH), bool)
        if shards == "columns":
            owned[:, cuts[rank] : cuts[rank + 1]] = True
        else:
            owned[order.rows_in_order()[order.cuts[rank] : order.cuts[rank + 1]]] = True
        np.testing.assert_allclose(to_dense(result.mean.layers[0]), np.where(owned, exact, 0), atol=1e-6)
        np.testing.assert_array_equal(result.mean.layers[1], np.full(6, 1.5))
    (whole,) = final_results(ran.results, reducer.traits)
    assert worst_error([whole], mean_float64(gradients), (0,)).whole.relative_l2 < 1e-6


def test_bytes_are_values_of_held_rows_twice_and_their_numbers():
    own = tables()
    recording = run_reducer(make_reducer("embrace"), gradients_of(own)).recording
    found = {call.label: ring_bytes(call) for call in recording.calls}
    message = COUNT_BYTES + key_bytes(HELD, ROWS)
    assert set(found["row numbers of the batch"][0]) == {(RANKS - 1) * message}
    columns = np.diff(chunk_bounds(WIDTH, RANKS))
    assert found["gradients of rows to their owners"][0].tolist() == [4 * HELD * (WIDTH - each) for each in columns]
    # What comes back is as much, the other way.
    assert found["rows of the next batch"][1].tolist() == [4 * HELD * (WIDTH - each) for each in columns]
    assert count_rounds(recording) == (1, 2, 1)


def test_a_run_tells_that_no_rank_ends_with_the_mean():
    result = s2sim.run("fat-tree", workers=8, reducers=["union", "embrace"], trace="ncf", break_even=False)
    row = next(row for row in result.rows if row.reducer == "embrace")
    assert row.estimates == "shards"
    assert not row.agrees
    assert row.error.relative_l2 < 1e-6
    assert result.verdict.best != "embrace"
    assert any("columns of tables that it owns" in note for note in result.notes)


def test_parts_cannot_be_gathered_in_nodes():
    with pytest.raises(OptionError, match="ranks end with parts"):
        make_reducer("embrace:hierarchical=true")


def test_steps_follow_all_parts_together():
    result = s2sim.run("fat-tree", workers=4, reducers=["embrace"], trace="lstm-lm-steps", steps=2, break_even=False)
    row = next(row for row in result.rows if row.reducer == "embrace")
    assert all(step.error < 1e-6 for step in row.steps)
    assert row.steps[-1].error_so_far < 1e-6
