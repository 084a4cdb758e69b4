"""Synthetic gradients have the density, overlap and tail that were asked for, and the same values every time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError, TraceError, UnknownNameError
from s2sim.gradients.statistics import trace_statistics
from s2sim.gradients.synthetic import SyntheticOptions, SyntheticTrace, load_trace


@given(
    rows=st.integers(50, 2000),
    density=st.floats(0.02, 1),
    overlap=st.floats(0, 1),
    ranks=st.integers(1, 6),
    seed=st.integers(0, 2**40),
)
def test_density_and_overlap_are_exact(rows, density, overlap, ranks, seed):
    options = SyntheticOptions(density=density, overlap=overlap, rows=rows, width=2)
    trace = SyntheticTrace(options, ranks, seed)
    held = [trace.gradient(0, rank).layers[0].rows for rank in range(ranks)]
    count = round(density * rows)
    for row_numbers in held:
        assert len(row_numbers) == count
        assert (np.diff(row_numbers) > 0).all()
        assert row_numbers[0] >= 0
        assert row_numbers[-1] < rows
    assert len(set.intersection(*(set(r.tolist()) for r in held))) >= round(overlap * count)


def test_union_grows_as_independent_rows_do():
    # n rows, k of them common; each other row is held with probability p = (m - k) / (n - k), independently by rank:
    # the union of W ranks is k + (n - k) (1 - (1 - p)^W) in the mean.
    options = SyntheticOptions(density=0.05, overlap=0.4, rows=40_000, width=1)
    statistics = trace_statistics(SyntheticTrace(options, 16, 7))
    n, m, k = 40_000, 2000, 800
    expected = [(k + (n - k) * (1 - (1 - (m - k) / (n - k)) ** w)) / n for w in statistics.union_ranks]
    assert statistics.layers["sparse0"].union_density == pytest.approx(expected, rel=0.01)
    full = SyntheticTrace(SyntheticOptions(density=0.05, overlap=1, rows=1000, width=1), 8, 7)
    assert set(trace_statistics(full).layers["sparse0"].union_density) == {0.05}


@pytest.mark.slow
def test_own_rows_are_spread_evenly_over_those_that_are_not_common():
    trace = SyntheticTrace(SyntheticOptions(density=0.2, overlap=0.5, rows=100, width=1), 2000, 1)
    counts = np.zeros(100)
    for rank in range(2000):
        counts[trace.gradient(0, rank).layers[0].rows] += 1
    common = counts == 2000
    assert common.sum() == 10
    # Each of the other 90 rows is drawn with probability 1/9: 222 times, standard deviation 14.
    assert (np.abs(counts[~common] - 2000 / 9) < 5 * 14.1).all()


def test_gaussian_tail():
    values = SyntheticTrace(SyntheticOptions(density=0.5, rows=4000, width=32), 1, 3).gradient(0, 0).layers[0].values
    assert values.std() == pytest.approx(1, rel=0.02)
    assert (values.astype(float) ** 4).mean() == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("exponent", [0.5, 1.5, 3.0])
def test_power_law_tail_has_its_exponent(exponent):
    options = SyntheticOptions(tail=str(exponent), density=0.5, rows=4000, width=32)
    values = SyntheticTrace(options, 1, 3).gradient(0, 0).layers[0].values.astype(float)
    assert (np.abs(values) >= 1).all()
    # Hill's estimator over all values of a pure power law: 1 / mean(log |x|), relative deviation 1 / sqrt(n).
    assert 1 / np.log(np.abs(values)).mean() == pytest.approx(exponent, rel=0.02)
    assert (values > 0).mean() == pytest.approx(0.5, abs=0.01)


def test_same_seed_same_values_in_any_order_and_for_any_number_of_ranks():
    text = "synthetic:density=0.1,rows=200,width=3,layers=2,dense=5,steps=2"
    few, many = load_trace(text, workers=4, seed=9), load_trace(text, workers=500, seed=9)
    other = load_trace(text, workers=4, seed=10)
    forward = {key: few.gradient(*key) for key in [(s, r) for s in (0, 1) for r in range(4)]}
    many.gradient(1, 499)
    for key in reversed(list(forward)):
        for a, b, c in zip(
            forward[key].layers[:2], many.gradient(*key).layers, other.gradient(*key).layers, strict=False
        ):
            np.testing.assert_array_equal(a.rows, b.rows)
            np.testing.assert_array_equal(a.values, b.values)
            assert not np.array_equal(a.values, c.values)
        np.testing.assert_array_equal(forward[key].layers[2], many.gradient(*key).layers[2])
    assert not np.array_equal(forward[0, 0].layers[0].values, forward[1, 0].layers[0].values)
    assert not np.array_equal(forward[0, 0].layers[0].values, forward[0, 1].layers[0].values)


def test_marked_and_named_by_its_options():
    trace = load_trace("synthetic:density=0.02,tail=1.5,dense=7", workers=3)
    assert trace.manifest.kind == "synthetic"
    assert trace.world_size == 3
    assert trace.layer_names == ("sparse0", "dense")
    again = load_trace(trace.name, workers=3)
    assert again.options == trace.options
    assert [layer.shape for layer in trace.manifest.layers] == [layer.shape for layer in trace.gradient(0, 0).layers]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("density=0", "density=0.0 is not"),
        ("density=1.5", "density=1.5 is not"),
        ("density=nan", "density=nan is not"),
        ("density=1e-9", "less than one row"),
        ("overlap=-0.1", "overlap=-0.1"),
        ("tail=heavy", "neither gaussian nor"),
        ("tail=-1", "neither gaussian nor"),
        ("tail=inf", "neither gaussian nor"),
        ("rows=0", "rows=0 is less than 1"),
        ("dense=-1", "dense=-1 is less than 0"),
        ("densty=0.1", "did you mean 'density'"),
        ("rows=many", "not a whole number"),
    ],
)
def test_bad_options_are_refused(options, text):
    with pytest.raises(OptionError, match=text):
        load_trace(f"synthetic:{options}", workers=2)


def test_rank_beyond_the_workers_is_refused():
    with pytest.raises(TraceError, match="ranks are 0 to 1"):
        load_trace("synthetic", workers=2).gradient(0, 2)


def test_wrong_workers_seeds_and_names_are_refused():
    assert load_trace("lstm-lm", workers=64).world_size == 64
    with pytest.raises(TraceError, match="at least 1"):
        load_trace("lstm-lm", workers=0)
    with pytest.raises(TraceError, match="seed=-1"):
        load_trace("synthetic", workers=1, seed=-1)
    with pytest.raises(UnknownNameError, match="lstm-lm"):
        load_trace("lstm", workers=1)
