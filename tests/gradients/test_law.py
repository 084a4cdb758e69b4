"""The law of more ranks: the distribution that rows were drawn from is found again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import TraceError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.law import fit_law, fit_layer, forecast
from s2sim.gradients.statistics import count_holders, occupancy
from s2sim.gradients.synthetic import load_trace


@dataclass
class Known:
    """Ranks that hold row i with probability ``probabilities[i]``, and one dense layer."""

    probabilities: np.ndarray
    world_size: int
    steps: int = 1

    def gradient(self, step, rank):
        rows = np.flatnonzero(np.random.default_rng([step, rank]).random(len(self.probabilities)) < self.probabilities)
        table = RowSparse(rows, np.ones((len(rows), 1), np.float32), (len(self.probabilities), 1))
        return Gradient(("table", "dense"), (table, np.ones(3, np.float32)))


def zipf(rows, exponent, batch):
    shares = np.arange(1, rows + 1) ** -exponent
    return -np.expm1(-batch * shares / shares.sum())


@pytest.mark.parametrize(
    "probabilities",
    [
        np.full(20_000, 0.02),
        np.where(np.arange(20_000) < 300, 1.0, 0.01),
        np.where(np.arange(20_000) < 5_000, 0.05, 0.0),
        zipf(20_000, 1.0, 500),
        zipf(20_000, 0.5, 800),
    ],
    ids=["equal", "shared by all", "never held", "words", "items"],
)
def test_the_union_at_four_times_the_ranks_is_that_of_the_distribution_drawn_from(probabilities):
    law = fit_law(Known(probabilities, 16))[0]
    for ranks, tolerance in ((16, 0.02), (32, 0.03), (64, 0.06)):
        expected = (1 - (1 - probabilities) ** ranks).mean()
        assert law.union_density(ranks) == pytest.approx(expected, rel=tolerance)
    assert law.union_density(1) == pytest.approx(probabilities.mean(), rel=0.03)


@pytest.mark.slow
@given(st.lists(st.integers(0, 1000), min_size=3, max_size=12).filter(any))
def test_unions_grow_and_never_exceed_the_table(rows_by_count):
    counts = np.array(rows_by_count)
    law = fit_layer(counts)
    assert law.weights.sum() == pytest.approx(1)
    assert (law.weights >= 0).all()
    unions = [law.union_density(ranks) for ranks in (1, 2, 5, 50, 10**6)]
    assert unions == sorted(unions)
    assert unions[-1] <= 1 + 1e-12


def test_known_probabilities_make_what_a_row_shows_count():
    law = fit_law(Known(np.where(np.arange(4000) < 200, 1.0, 0.02), 8))[0]
    counts = np.array([0] * 500 + [1] * 500 + [8] * 500)
    drawn = law.draw(counts, 8, np.random.default_rng(0))
    assert drawn[1000:].min() > 0.95
    assert 0.01 < drawn[:500].mean() < drawn[500:1000].mean() < 0.04


@pytest.mark.slow
def test_all_steps_count():
    one, many = (fit_law(Known(np.full(300, 0.1), 4, steps))[0] for steps in (1, 50))
    expected = 1 - 0.9**16
    assert abs(many.union_density(16) - expected) < abs(one.union_density(16) - expected)


def test_occupancy_counts_holders():
    source = Known(zipf(50, 1.0, 20), 5, 2)
    table, dense = occupancy(source, 5)
    assert dense is None
    naive = np.zeros(6, int)
    for step in range(2):
        rows = [set(source.gradient(step, rank).layers[0].rows.tolist()) for rank in range(5)]
        for row in range(50):
            naive[sum(row in held for held in rows)] += 1
    assert table.tolist() == naive.tolist()
    assert count_holders([source.gradient(0, 0)])[0].max() == 1


def test_one_rank_tells_nothing():
    with pytest.raises(TraceError, match="record at least 4"):
        fit_law(Known(np.full(10, 0.5), 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "within"), [("lstm-lm", {32: 0.02, 16: 0.05}), ("ncf", {32: 0.02, 16: 0.05}), ("lstm-lm-steps", {2: 0.03})]
)
def test_shipped_traces_are_predicted_from_part_of_their_ranks(name, within):
    found = forecast(load_trace(name, workers=1))
    for layer in found.layers.values():
        for few, tolerance in within.items():
            assert abs(layer.errors[few]) < tolerance
        densities = list(layer.union_density.values())
        assert densities == sorted(densities)


def test_a_forecast_needs_ranks_and_dense_layers_have_none():
    assert forecast(Known(np.full(10, 0.5), 3)) is None
    assert list(forecast(Known(np.full(10, 0.5), 4)).layers) == ["table"]
    assert forecast(load_trace("cnn", workers=1)).layers == {}
