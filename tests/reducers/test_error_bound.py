import numpy as np
import pytest

from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.measure import error_of, mean_float64, norm, share_within
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.systems.s2 import count_sketch_bound
from s2sim.testing.reducer_properties import example_gradients


def gaussian(ranks=2, keys=4000):
    generator = np.random.default_rng(3)
    rows = np.arange(0, 4 * keys, 4)
    return [
        Gradient(("g",), (RowSparse(rows, generator.standard_normal(keys, np.float32), (4 * keys,)),))
        for _ in range(ranks)
    ]


@pytest.mark.parametrize(("rows", "share"), [(1, 2 / 3), (3, 20 / 27), (5, 192 / 243)])
def test_the_median_fails_only_if_half_of_the_rows_do(rows, share):
    bound = count_sketch_bound(rows, [300, 1200], [10, 10])
    assert bound.share == pytest.approx(share)
    assert bound.element == pytest.approx((0.1, 0.05))


def test_with_an_even_number_of_rows_half_of_them_may_spoil_the_middle():
    # Both middle estimates have to be within: at most none of two rows, and one of four, may be off.
    assert count_sketch_bound(2, [300], [10]).share == pytest.approx(4 / 9)
    assert count_sketch_bound(4, [300], [10]).share == pytest.approx(16 / 81 + 4 * 8 / 81)


@pytest.mark.parametrize("text", ["s2:rows=1,cells=1", "s2:rows=3,cells=2", "s2:rows=5,cells=2"])
def test_the_theorem_of_the_sketch_holds(text):
    gradients = gaussian()
    ran = run_reducer(make_reducer(text), gradients)
    bound, exact, mean = ran.instances[0].error_bound(), mean_float64(gradients), ran.results[0].mean
    length = norm(exact, [0])
    assert length == pytest.approx(np.linalg.norm(exact.layers[0].values))
    (limit,) = (element * length for element in bound.element)
    found = share_within(mean, exact, {0: limit})
    assert bound.share <= found <= 1
    away = np.abs(mean.layers[0].to_dense() - exact.layers[0].to_dense())[::4]
    assert found == pytest.approx(np.mean(away <= limit), abs=1e-3)
    assert error_of(mean, exact, (0,)).whole.largest == pytest.approx(away.max() / length)
    if bound.relative_l2 is not None:
        assert error_of(mean, exact, (0,)).whole.relative_l2 == pytest.approx(bound.relative_l2[0], rel=0.1)


def test_only_one_row_has_a_law():
    assert count_sketch_bound(1, [100, 400], [400, 100]).relative_l2 == (2.0, 0.5)
    assert count_sketch_bound(3, [100], [400]).relative_l2 is None


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_no_element_of_an_exact_sketch_is_further_off_than_half_a_unit(dtype):
    gradients = gaussian(ranks=5)
    ran = run_reducer(make_reducer(f"s2-exact:dtype={dtype}"), gradients)
    bound = ran.instances[0].error_bound()
    assert not bound.relative
    assert bound.share == 1
    mean, exact = ran.results[0].mean, mean_float64(gradients)
    rounding = 2.0**-23 * np.abs(exact.layers[0].values).max()
    assert share_within(mean, exact, {0: bound.element[0] + rounding}) == 1
    assert share_within(mean, exact, {0: rounding / 10}) < 1


def test_rows_that_are_sent_again_are_float32_sums_of_which_no_bound_is_known():
    few, many = gaussian(keys=40), gaussian(keys=4000)
    ran = run_reducer(make_reducer("s2-exact:warm=true"), many, others=lambda _: few)
    assert ran.recording.calls[-1].label == "rows sent again"
    assert ran.instances[0].error_bound() is None
    assert run_reducer(make_reducer("s2-exact:warm=true"), many).instances[0].error_bound() is not None


def test_zeros_of_a_dense_layer_do_not_count():
    zeros = np.zeros(900)
    exact = Gradient(("a",), (np.concatenate([zeros, np.ones(100)]),))
    mean = Gradient(("a",), (np.concatenate([zeros, np.ones(50), np.full(50, 2.0)]),))
    assert share_within(mean, exact, {0: 0.5}) == 0.5


@pytest.mark.parametrize("text", ["dense", "topk:density=0.1", "s2-exact:dtype=float32", "s2:preset=authors-lstm"])
def test_where_nothing_is_known_nothing_is_said(text):
    assert run_reducer(make_reducer(text), example_gradients(2)).instances[0].error_bound() is None


def test_elements_that_nobody_holds_do_not_count():
    exact = Gradient(("a", "b"), (np.zeros((4, 1)), np.array([1.0, 3.0])))
    mean = Gradient(("a", "b"), (RowSparse(np.array([1]), np.full((1, 1), 0.5), (4, 1)), np.array([1.0, 2.0])))
    assert share_within(mean, exact, {0: 0.4}) == 0
    assert share_within(mean, exact, {0: 0.6, 1: 0.6}) == pytest.approx(2 / 3)
    assert share_within(mean, exact, {}) == 1
