"""Ranks beyond the recorded ones: drawn by the law, with values like the recorded ones, the same in any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from s2sim.errors import TraceError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.law import ExtrapolatedRanks, fit_law
from s2sim.gradients.statistics import count_holders, trace_statistics
from s2sim.gradients.synthetic import load_trace


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


def test_a_drawn_rank_has_as_many_rows_as_its_parent_and_its_dense_layers(more):
    recorded = [more.gradient(0, rank) for rank in range(64)]
    drawn = more.gradient(0, 100)
    assert drawn.names == recorded[0].names
    parents = [
        rank
        for rank, gradient in enumerate(recorded)
        if all(np.array_equal(a, b) for a, b in zip(gradient.layers[2:], drawn.layers[2:], strict=True))
    ]
    assert len(parents) == 1
    for index in range(2):
        layer = drawn.layers[index]
        assert len(layer.rows) == len(recorded[parents[0]].layers[index].rows)
        assert (np.diff(layer.rows) > 0).all()


@dataclass
class Signal:
    """Ranks that hold every row, with a mean and noise of their own in each; the last row is held by rank 0 alone."""

    world_size: int
    mean: float
    noise: float
    steps: int = 1

    def gradient(self, step, rank):
        generator = np.random.default_rng([step, rank])
        values = (self.mean + self.noise * generator.standard_normal((200, 8))).astype(np.float32)
        rows = np.arange(200 if rank == 0 else 199)
        return Gradient(("table",), (RowSparse(rows, values[: len(rows)], (200, 8)),))


def more_of(source, ranks, seed=0):
    return ExtrapolatedRanks("signal", None, source, fit_law(source), ranks, seed)


@pytest.mark.parametrize(("mean", "noise"), [(1.0, 0.0), (1.0, 0.5), (0.3, 1.0), (0.0, 1.0)])
def test_a_sum_over_drawn_ranks_is_as_long_as_one_over_recorded_ranks(mean, noise):
    drawn, truth = more_of(Signal(32, mean, noise), 128), Signal(128, mean, noise)
    lengths = [
        np.linalg.norm(sum(source.gradient(0, rank).layers[0].to_dense()[:199] for rank in range(128)))
        for source in (drawn, truth)
    ]
    # Copies of the recorded values would be 2.6 times as long where there is no mean: sqrt((1 + 3)^2 + 3) / sqrt(4).
    assert lengths[0] == pytest.approx(lengths[1], rel=0.35 if mean == 0 else 0.1)
    for rank in (0, 100):
        spread = drawn.gradient(0, rank).layers[0].values.std()
        assert spread == pytest.approx(noise, rel=0.15, abs=1e-6)


def test_a_row_that_one_rank_holds_is_taken_with_either_sign():
    source = Signal(8, 1.0, 0.3)
    recorded = source.gradient(0, 0).layers[0].values[199]
    drawn = more_of(source, 400)
    layers = [drawn.gradient(0, rank).layers[0] for rank in range(8, 400)]
    found = [layer.values[-1] for layer in layers if layer.rows[-1] == 199]
    assert len(found) > 10
    signs = {bool((values == recorded).all()) for values in found}
    assert signs == {True, False}
    assert all((np.abs(values) == np.abs(recorded)).all() for values in found)


def test_a_row_that_no_rank_holds_takes_the_values_of_a_rare_one(more):
    recorded = [more.gradient(0, rank) for rank in range(64)]
    (counts, *_) = count_holders(recorded)
    rare = {
        np.abs(values).tobytes()
        for gradient in recorded
        for row, values in zip(gradient.layers[0].rows, gradient.layers[0].values, strict=True)
        if counts[row] == counts[counts > 0].min()
    }
    unseen = 0
    for rank in range(64, 80):
        table = more.gradient(0, rank).layers[0]
        for values in table.values[counts[table.rows] == 0]:
            assert np.abs(values).tobytes() in rare
            unseen += 1
    assert unseen > 0


@pytest.mark.slow
def test_the_union_of_drawn_ranks_grows_as_the_law_says(more):
    unions = trace_statistics(more)
    for index, (name, spread) in enumerate(unions.layers.items()):
        law = more.law[index]
        if law is not None:
            assert spread.union_density[-1] == pytest.approx(law.union_density(192), rel=0.02)
            assert unions.layers[name].density == pytest.approx(law.union_density(1), rel=0.02)


@pytest.mark.slow
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
