"""Ranks beyond the recorded ones: drawn by the law, with recorded values, the same whatever is drawn before."""

from __future__ import annotations

import numpy as np
import pytest

from s2sim.errors import TraceError
from s2sim.gradients.law_ranks import SomeRanks
from s2sim.gradients.load import load_trace
from s2sim.gradients.statistics import trace_statistics


@pytest.fixture(scope="module")
def more():
    return load_trace("ncf", workers=192, seed=3)


def test_recorded_ranks_come_first_as_they_are(more):
    recorded = load_trace("ncf", workers=64)
    assert (more.world_size, more.steps, more.name) == (192, 1, "ncf")
    for rank in (0, 63):
        for a, b in zip(more.gradient(0, rank).layers[:2], recorded.gradient(0, rank).layers, strict=False):
            np.testing.assert_array_equal(a.rows, b.rows)
            np.testing.assert_array_equal(a.values, b.values)


def test_a_drawn_rank_has_rows_values_and_layers_of_recorded_ones(more):
    recorded = [more.gradient(0, rank) for rank in range(64)]
    drawn = more.gradient(0, 100)
    assert drawn.names == recorded[0].names
    parents = [
        rank
        for rank, gradient in enumerate(recorded)
        if all(np.array_equal(a, b) for a, b in zip(gradient.layers[2:], drawn.layers[2:], strict=True))
    ]
    assert len(parents) == 1
    unseen = 0
    for index in range(2):
        layer = drawn.layers[index]
        assert len(layer.rows) == len(recorded[parents[0]].layers[index].rows)
        assert (np.diff(layer.rows) > 0).all()
        held = {}
        for gradient in recorded:
            table = gradient.layers[index]
            for row, values in zip(table.rows.tolist(), table.values, strict=True):
                held.setdefault(row, []).append(values.tobytes())
        rarest = min(map(len, held.values()))
        rare = {values for every in held.values() if len(every) == rarest for values in every}
        for row, values in zip(layer.rows.tolist(), layer.values, strict=True):
            assert values.tobytes() in held.get(row, rare)
            unseen += row not in held
    assert unseen > 0


def test_the_union_of_drawn_ranks_grows_as_the_law_says(more):
    unions = trace_statistics(more)
    for index, (name, spread) in enumerate(unions.layers.items()):
        law = more.law.layers[index]
        if law is not None:
            assert spread.union_density[-1] == pytest.approx(law.union_density(192), rel=0.02)
            assert unions.layers[name].density == pytest.approx(law.union_density(1), rel=0.02)


def test_a_rank_does_not_depend_on_how_many_there_are_or_on_the_order(more):
    few, other = load_trace("ncf", workers=66, seed=3), load_trace("ncf", workers=66, seed=4)
    a, b, c = more.gradient(0, 65), few.gradient(0, 65), other.gradient(0, 65)
    np.testing.assert_array_equal(a.layers[1].rows, b.layers[1].rows)
    np.testing.assert_array_equal(a.layers[1].values, b.layers[1].values)
    assert not np.array_equal(a.layers[1].rows, c.layers[1].rows)
    assert not np.array_equal(a.layers[1].rows, more.gradient(0, 66).layers[1].rows)


def test_a_rank_that_nobody_asked_for_is_refused(more):
    with pytest.raises(TraceError, match="ranks are 0 to 191"):
        more.gradient(0, 192)


def test_a_trace_with_too_few_ranks_for_a_law_is_refused(written):
    assert load_trace(written.directory, workers=3).world_size == 3
    with pytest.raises(TraceError, match=r"too few recorded ranks, 3, .* use --workers 3 or fewer"):
        load_trace(written.directory, workers=4)


def test_some_ranks_of_a_source_are_changed_alike(source):
    few = SomeRanks(source, 2, lambda gradient: gradient.map(lambda values: 2 * values))
    assert (few.world_size, few.steps) == (2, source.steps)
    np.testing.assert_array_equal(few.gradient(1, 1).layers[3], 2 * source.gradient(1, 1).layers[3])
