import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs import quantize as fp
from s2sim.errors import CodecError

INTEGERS = ["int32", "int64"]
FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


def one_group(values):
    return np.zeros(len(values), np.int64)


@given(st.lists(FLOATS, min_size=1, max_size=16), st.integers(0, 4))
@pytest.mark.parametrize("dtype", INTEGERS)
def test_any_sum_over_ranks_fits_and_is_within_the_bound(dtype, values, headroom):
    """One key, one value a rank."""
    ranks = [np.array([[value]], np.float32) for value in values]
    maxima = sum(fp.group_maxima(rank, one_group(rank), 1) for rank in ranks)
    exponents = fp.exponents_for(maxima, dtype, headroom)
    total = sum(int(fp.to_fixed(rank, exponents, dtype)[0, 0]) for rank in ranks)
    assert abs(total) <= np.iinfo(dtype).max >> headroom
    exact = float(np.sum(np.array(values, np.float64)))
    got = float(fp.from_fixed(np.array([[total]], dtype), exponents)[0, 0])
    assert abs(got - exact) <= fp.error_bound(exponents, len(ranks))[0] + abs(exact) * 2**-23 + 2.0**-126


@given(FLOATS)
def test_the_unit_is_as_fine_as_the_range_allows(value):
    maxima = np.array([abs(value)], np.float32).astype(np.float64)
    (exponent,) = fp.exponents_for(maxima, "int32").astype(int)
    if value and exponent < fp.MAX_EXPONENT:
        assert np.ldexp(maxima[0], exponent) >= 2**30 * (1 - 2**-15)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_sum_in_the_last_part_of_the_range_gets_twice_the_unit(dtype):
    """Else the largest value would be cut off at the end of the range, and be marked as one that does not fit."""
    values = np.array([[np.nextafter(np.float32(2), np.float32(0))]])
    maxima = fp.group_maxima(values, one_group(values), 1)
    exponents = fp.exponents_for(maxima, dtype)
    assert not fp.overflowed(fp.range_usage(maxima, exponents, dtype)).any()
    assert fp.from_fixed(fp.to_fixed(values, exponents, dtype), exponents) == pytest.approx(values, abs=2.0**-23, rel=0)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_sums_are_the_same_bits_in_any_order(dtype):
    generator = np.random.default_rng(0)
    ranks = generator.standard_cauchy((64, 100, 3)).astype(np.float32)
    exponents = fp.exponents_for(sum(fp.group_maxima(rank, one_group(rank), 1) for rank in ranks), dtype)
    parts = [fp.to_fixed(rank, exponents, dtype) for rank in ranks]
    expected = sum(parts)
    for _ in range(5):
        generator.shuffle(parts)
        assert np.array_equal(sum(parts), expected)


def test_values_that_int64_holds_exactly_come_back_exactly():
    values = np.random.default_rng(0).standard_normal((1000, 2), np.float32)
    exponents = fp.exponents_for(fp.group_maxima(values, one_group(values), 1), "int64")
    assert np.array_equal(fp.from_fixed(fp.to_fixed(values, exponents, "int64"), exponents), values)


@pytest.mark.parametrize("width", [1, 4])
def test_each_group_has_its_own_maximum(width):
    values = np.zeros((6, width), np.float32)
    values[:, -1] = [1, -5, 2, 0, 3, -4]
    maxima = fp.group_maxima(values, np.array([0, 0, 2, 2, 2, 0]), 4)
    assert maxima.tolist() == [5, 0, 3, 0]
    assert fp.group_maxima(values[:0], np.empty(0, np.int64), 2).tolist() == [0, 0]


def test_groups_without_values_are_as_coarse_as_the_coarsest():
    assert fp.exponents_for(np.array([0.0, 1.5, 6.0]), "int32").tolist() == [28, 30, 28]
    assert fp.exponents_for(np.zeros(2), "int32").tolist() == [0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad):
    for width in (1, 3):
        values = np.full((2, width), bad, np.float32)
        with pytest.raises(CodecError, match="float32 cells"):
            fp.group_maxima(values, one_group(values), 1)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_extreme_magnitudes(dtype):
    largest = np.finfo(np.float32).max
    for magnitude in (largest, np.float32(1e-45), np.float32(1e-38)):
        values = np.array([[magnitude], [-magnitude]], np.float32)
        exponents = fp.exponents_for(64 * fp.group_maxima(values, one_group(values), 1), dtype)
        got = fp.from_fixed(fp.to_fixed(values, exponents, dtype), exponents)
        assert np.abs(got - values).max() <= fp.error_bound(exponents, 1)[0]


@given(st.lists(st.floats(0, 100, width=32), min_size=1, max_size=64), st.floats(0.125, 100))
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_unit_that_is_too_small_is_noticed_by_all_ranks(dtype, maxima, earlier):
    """A sum that might not fit is always marked; one with room to spare never is."""
    exponents = fp.exponents_for(np.array([earlier]), dtype, headroom=fp.HEADROOM)
    own = [fp.range_usage(np.array([value], np.float64), exponents, dtype) for value in maxima]
    assert all(part.dtype == dtype for part in own)
    marked = bool(fp.overflowed(sum(own))[0])
    limit = np.ldexp(1.0, np.iinfo(dtype).bits - 1 - int(exponents[0]))
    total = float(np.sum(np.array(maxima, np.float64)))
    if total + fp.error_bound(exponents, len(maxima))[0] >= limit:
        assert marked
    if total < limit * (1 - (len(maxima) + 1) / fp.RANGE_PARTS):
        assert not marked
        bound = fp.maxima_from_usage(sum(own), exponents)[0]
        assert total <= bound <= total + len(maxima) * limit / fp.RANGE_PARTS


def test_headroom_lets_sums_grow():
    exponents = fp.exponents_for(np.array([0.99]), "int32", headroom=2)
    grown = fp.range_usage(np.array([3.9]), exponents, "int32")
    assert not fp.overflowed(grown)[0]
    assert fp.overflowed(fp.range_usage(np.array([4.1]), exponents, "int32"))[0]
    assert fp.range_usage(np.array([1e30]), exponents, "int32").tolist() == [fp.RANGE_PARTS]


def test_values_beyond_the_range_end_at_its_end():
    exponents = np.array([30], np.int16)
    values = np.array([[3.0, -3e38, 0.5]], np.float32)
    assert fp.to_fixed(values, exponents, "int32").tolist() == [[2**31 - 2**15, 2**15 - 2**31, 2**29]]


def test_error_is_half_a_unit_a_rank():
    assert fp.error_bound(np.array([3, -2], np.int16), 8).tolist() == [0.5, 16.0]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("scale", [1e-45, 1e-40, 1e-38, 1e-33, 1e-30, 1.0, 1e30])
def test_values_of_any_size_keep_their_bits(dtype, scale):
    values = (np.random.default_rng(1).standard_normal((100, 2)) * scale).astype(np.float32)
    exponents = fp.exponents_for(fp.group_maxima(values, one_group(values), 1), dtype)
    got = fp.from_fixed(fp.to_fixed(values, exponents, dtype), exponents)
    assert np.linalg.norm((got - values).astype(np.float64)) <= 1e-6 * np.linalg.norm(values.astype(np.float64))
