"""Rounding at random: the grid, the mean over draws, and what theorems say of the spread."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.floats import from_powers, to_powers
from s2sim.codecs.quantize import bucket_norms, from_levels, largest_magnitude, to_levels
from s2sim.errors import CodecError

DRAWS = 4000


def drawn(vector, scales, bucket, levels):
    rng = np.random.default_rng(3)
    many = np.tile(vector, DRAWS)
    numbers = to_levels(many, np.tile(scales, DRAWS), bucket, levels, rng)
    return from_levels(numbers, np.tile(scales, DRAWS), bucket, levels).reshape(DRAWS, -1)


@pytest.mark.parametrize(("levels", "dtype"), [(1, np.uint8), (7, np.uint8), (127, np.uint8), (32767, np.uint16)])
@pytest.mark.parametrize(("count", "bucket"), [(1000, 64), (3, 512), (70_000, 40_000), (0, 8)])
def test_every_value_goes_to_a_level_beside_it(levels, dtype, count, bucket):
    vector = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    vector[5:9] = 0
    norms = bucket_norms(vector, bucket)
    cuts = range(0, count, bucket)
    expected = [np.linalg.norm(vector[cut : cut + bucket].astype(np.float64)) for cut in cuts]
    assert norms == pytest.approx(np.array(expected), rel=1e-6)
    numbers = to_levels(vector, norms, bucket, levels, np.random.default_rng(1))
    assert numbers.dtype == dtype
    exact = levels * (vector / norms[np.arange(count) // bucket].astype(np.float64)) + levels
    assert (np.abs(numbers - exact) < 1 + 1e-3).all()
    assert (numbers[5:9] == levels).all()
    decoded = from_levels(numbers, norms, bucket, levels)
    grid = norms[np.arange(count) // bucket] * ((numbers.astype(np.float64) - levels) / levels)
    np.testing.assert_allclose(decoded, grid, rtol=1e-6)


@pytest.mark.parametrize("levels", [1, 3, 15])
def test_the_mean_over_draws_is_the_value(levels):
    vector = np.random.default_rng(5).standard_normal(24).astype(np.float32)
    scales = np.array([np.abs(vector).max()], np.float32)
    found = drawn(vector, scales, len(vector), levels)
    # A draw is at most one level off, so its standard deviation is half a level at most.
    spread = scales[0] / levels / 2 / np.sqrt(DRAWS)
    assert np.abs(found.mean(axis=0) - vector).max() < 5 * spread


@pytest.mark.parametrize("levels", [1, 3, 15, 127])
def test_variance_of_qsgd_keeps_its_bound(levels):
    """D. Alistarh et al., QSGD, lemma 3.1: the variance is at most min(n / s^2, sqrt(n) / s) of the squared norm."""
    for values in (np.random.default_rng(5).standard_normal(32), np.eye(1, 32)[0], np.ones(32)):
        vector = values.astype(np.float32)
        norms = bucket_norms(vector, 32)
        errors = np.square(drawn(vector, norms, 32, levels) - vector).sum(axis=1)
        bound = min(32 / levels**2, np.sqrt(32) / levels) * float(norms[0]) ** 2
        assert errors.mean() <= bound * (1 + 5 / np.sqrt(DRAWS))


def test_zeros_huge_and_subnormal_values():
    for values in (np.zeros(10), np.full(10, 3.4e38), np.full(10, 1e-44), np.array([1e-45])):
        vector = values.astype(np.float32)
        found = drawn(vector, bucket_norms(vector, 4), 4, 7)
        assert np.isfinite(found).all()
        assert found.astype(np.float64).mean() == pytest.approx(vector.astype(np.float64).mean(), rel=0.05)


def test_too_many_levels_are_refused():
    with pytest.raises(CodecError, match="32768 levels"):
        to_levels(np.zeros(1, np.float32), np.zeros(1, np.float32), 1, 32768, np.random.default_rng(0))


def test_largest_magnitude():
    assert largest_magnitude(np.array([1, -3, 2], np.float32)) == 3
    assert largest_magnitude(np.empty(0, np.float32)) == 0


@given(st.floats(-(2.0**127), 2.0**127, width=32, allow_nan=False))
def test_powers_of_two_beside_a_value(value):
    vector = np.full(20, value, np.float32)
    found = from_powers(to_powers(vector, np.random.default_rng(0)))
    magnitude = abs(value)
    below = 2.0 ** np.floor(np.log2(magnitude)) if magnitude >= 2.0**-126 else 0.0
    above = max(2 * below, 2.0**-126)
    assert (np.sign(found) * np.sign(value) >= 0).all()
    assert set(np.abs(found).tolist()) <= ({below} if magnitude in (below, 0) else {below, above})


def test_powers_of_two_are_right_on_average_and_squares_grow_by_an_eighth_at_most():
    """S. Horvath et al., Natural Compression, theorem 1: E x = x, and E x^2 <= 9/8 x^2, met by 4/3 of a power."""
    values = np.array([1.0, 4 / 3, 1.9, -0.7, 3e-40, 1e30], np.float32)
    found = from_powers(to_powers(np.repeat(values, 40_000), np.random.default_rng(1))).reshape(len(values), -1)
    means, exact = found.mean(axis=1, dtype=np.float64), values.astype(np.float64)
    assert means == pytest.approx(exact, rel=0.01 * 3)
    normal = np.abs(values) >= 2.0**-126
    growth = np.square(found[normal], dtype=np.float64).mean(axis=1) / exact[normal] ** 2
    assert (growth <= 9 / 8 * 1.01).all()
    assert growth[1] == pytest.approx(9 / 8, rel=0.01)


def test_a_value_without_a_power_of_two_above_it_is_refused():
    with pytest.raises(CodecError, match="above 2\\^127"):
        to_powers(np.full(100, 3.4e38, np.float32), np.random.default_rng(0))


def test_square_of_ternary_values():
    """W. Wen et al., TernGrad: what is drawn is s, the largest magnitude, or 0: E ||Q(g)||^2 = s ||g||_1."""
    vector = np.random.default_rng(5).standard_normal(32).astype(np.float32)
    scale = np.array([largest_magnitude(vector)], np.float32)
    squares = np.square(drawn(vector, scale, 32, 1)).sum(axis=1)
    expected = scale[0] * np.abs(vector).sum()
    assert squares.mean() == pytest.approx(expected, abs=5 * squares.std() / np.sqrt(DRAWS))


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_few_levels_leave_few_elements(levels):
    """D. Alistarh et al., QSGD, lemma 3.1: at most s (s + sqrt(n)) elements are not zero, in expectation."""
    vector = np.random.default_rng(5).standard_normal(400).astype(np.float32)
    left = np.count_nonzero(drawn(vector, bucket_norms(vector, 400), 400, levels), axis=1)
    assert left.mean() <= levels * (levels + 20)
