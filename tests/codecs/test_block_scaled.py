"""Microscaling formats against lists of all values of their elements, written from the standard's tables."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.quantize import BLOCK, ELEMENTS, from_block_scaled, to_block_scaled
from s2sim.errors import CodecError
from s2sim.reducers.run import reduce_once

# Exponent bits, mantissa bits, bias, largest magnitude, and its exponent.
FLOATS = {
    "e4m3": (4, 3, 7, 448, 8),
    "e5m2": (5, 2, 15, 57344, 15),
    "e3m2": (3, 2, 3, 28, 4),
    "e2m3": (2, 3, 1, 7.5, 2),
    "e2m1": (2, 1, 1, 6, 2),
    "e3m0": (3, 0, 3, 16, 4),
}


def magnitudes(form):
    """Return all finite values that are not negative, in the order of their codes."""
    if form == "int8":
        return [number / 64 for number in range(128)]
    exponent_bits, mantissa_bits, bias, largest, _ = FLOATS[form]
    values = []
    for exponent in range(1 << exponent_bits):
        for mantissa in range(1 << mantissa_bits):
            part = mantissa / (1 << mantissa_bits)
            values.append(part * 2.0 ** (1 - bias) if exponent == 0 else (1 + part) * 2.0 ** (exponent - bias))
    return [value for value in values if value <= largest]


def naive(vector, form):
    """Return what a vector is rounded to, block by block, by search."""
    values, top = magnitudes(form), 0 if form == "int8" else FLOATS[form][4]
    # IEEE 754, 4.3.1: ties to even or, where a number has one digit, to the larger one.
    ties = [-(at > 1) * at for at in range(len(values))] if form == "e3m0" else [at % 2 for at in range(len(values))]
    found = []
    for start in range(0, len(vector), BLOCK):
        block = [float(value) for value in vector[start : start + BLOCK]]
        largest = max(map(abs, block))
        exponent = -127 if not largest else min(max(math.frexp(largest)[1] - 1 - top, -127), 127)
        for value in block:
            share = abs(value) / 2.0**exponent
            code = min(range(len(values)), key=lambda at: (abs(values[at] - share), ties[at]))
            found.append(math.copysign(values[code] * 2.0**exponent, value))
    return np.array(found, np.float32)


@pytest.mark.parametrize("form", ELEMENTS)
@pytest.mark.parametrize("count", [1, 31, 32, 33, 200])
def test_every_element_is_the_nearest(form, count):
    generator = np.random.default_rng(count)
    vector = (generator.standard_normal(count) * np.exp(generator.uniform(-20, 20, count))).astype(np.float32)
    scales, codes = to_block_scaled(vector, form)
    assert (scales.dtype, scales.shape, codes.dtype, codes.shape) == (np.uint8, (-(-count // 32),), np.uint8, (count,))
    assert codes.max() < 1 << ELEMENTS[form].bits
    assert np.array_equal(from_block_scaled(scales, codes, form), naive(vector, form))


@pytest.mark.parametrize("form", ELEMENTS)
def test_all_values_of_a_type_survive(form):
    values = np.array([*magnitudes(form), *(-value for value in magnitudes(form))], np.float32)
    # A block has the scale 1 where its largest value has the exponent of the type's.
    top = np.float32(max(magnitudes(form)))
    blocks = np.concatenate([np.append(values[at : at + 31], top) for at in range(0, len(values), 31)])
    assert np.array_equal(from_block_scaled(*to_block_scaled(blocks, form), form), blocks)


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=70),
    st.sampled_from(sorted(ELEMENTS)),
)
def test_any_floats(values, form):
    vector = np.array(values, np.float32)
    assert np.array_equal(from_block_scaled(*to_block_scaled(vector, form), form), naive(vector, form))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_refused(value):
    with pytest.raises(CodecError, match="infinite or not a number"):
        to_block_scaled(np.array([1, value], np.float32), "e2m1")


@pytest.mark.parametrize("form", ELEMENTS)
@pytest.mark.parametrize(("ranks", "n"), [(1, 40), (3, 192), (4, 256)])
def test_the_reducer_sums_in_float32_and_rounds_once_more(form, ranks, n):
    vectors = [np.random.default_rng(rank).standard_normal(n).astype(np.float32) for rank in range(ranks)]
    found = reduce_once(f"mx:form={form}", vectors)
    parts = []
    for part in np.split(np.arange(n), ranks):
        total = np.zeros(len(part), np.float32)
        for vector in vectors:
            total += naive(vector[part], form)
        parts.append(naive(total, form) / np.float32(ranks))
    assert np.array_equal(found.values[0], np.concatenate(parts))
    message = math.ceil(n / ranks * ELEMENTS[form].bits / 8) + math.ceil(n / ranks / 32)
    assert found.bytes_sent == [2 * (ranks - 1) * message] * ranks
