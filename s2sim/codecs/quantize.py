"""Fixed-point cells: integers that stand for values in units of a power of two, one power for each group of keys.

Integer addition is exact and associative, and wraps around: cells may overflow as often as they like, and sums over
ranks are the same bits in any order, as long as the sum of each *key* over ranks fits. A key's unit only matters where
it is encoded and decoded, so that keys of different groups may share cells.

All ranks must take the same units before they encode:

cold
    Ranks all-reduce (sum) the largest magnitude that each has in every group, `group_maxima`; no sum over ranks exceeds
    these together, and `exponents_for` makes units of them. Eight bytes a group.
warm
    Units are those of an earlier step, with some headroom, and each rank sends with its cells how much of the range
    it needs, `range_parts`: one more integer of the cells' own type a group. Their sum says, to all ranks alike, which
    groups might have overflowed (`overflowed`), whose keys must be sent again; and it is what the next step's units
    are made of (`maxima_from_parts`).

Values rounded at random to evenly spaced levels of a scale, one scale for every bucket of neighbours.

What a value is rounded to is its own amount on average: it goes up with the probability that its distance to the level
below is of that between both.

Microscaling formats have blocks of 32 elements of four to eight bits, with a power of two as the scale of each.
"""

from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import DTypeLike

from s2sim.arrays import Array, Bits, Floats, Floats32, Ints, Ints16, Mask
from s2sim.codecs.floats import magnitudes_of_codes, round_magnitudes
from s2sim.errors import CodecError

GROUP_VALUES = 1 << 15
"""Values that share a unit, about. Fewer keep one outlier from coarsening many; the message of maxima grows."""

HEADROOM = 2
"""Bits by which sums may grow from the step that gave the units to the one that uses them."""

RANGE_PARTS = 1 << 16
"""Parts into which `range_usage` cuts the positive range of the integers; those of 32,767 ranks add up in an int32. One
part is never used, so that what rounding adds on as many ranks fits, too."""

_FLOAT32_EXPONENT = 126  # Float32 has normal numbers up to 2^127 and down to 2^-126

MAX_EXPONENT = 2 * _FLOAT32_EXPONENT
"""Of a scale, which takes the smallest of all float32, 2^-149, to 62 bits and more."""


def groups_per_block(block_keys: float, width: int) -> int:
    """Return how many groups of about `GROUP_VALUES` values there are in a block of keys of ``width`` values each.

    >>> groups_per_block(32768, 1), groups_per_block(32768, 64)
    (1, 64)
    """
    return max(1, round(block_keys * width / GROUP_VALUES))


def group_maxima(values: Floats32, groups: Ints, count: int) -> Floats:
    """Return the largest magnitude in each group, float64 of shape (count,), which ranks are to all-reduce with sum.

    A key has ``values``, float32 of shape (k, width), and a group, int64 of shape (k,). Zero for groups without keys;
    `CodecError` for a value that is not finite. Double precision keeps the sum over ranks the same in any order, unless
    magnitudes differ by a factor of more than 2^23.
    """
    maxima = np.zeros(count, np.float32)
    if values.size:
        with np.errstate(invalid="ignore"):
            largest = np.abs(values).max(axis=1)
        if not np.isfinite(largest).all():
            raise CodecError("a value is infinite or not a number, which fixed point cannot hold: use float32 cells")
        np.maximum.at(maxima, groups, largest)
    return maxima.astype(np.float64)


def exponents_for(maxima: Floats, dtype: DTypeLike, headroom: int = 0) -> Ints16:
    """Return the binary exponent e of each group's scale, int16: a value v is encoded as the integer next to v 2^e.

    Groups without values take the smallest exponent of the others. ``maxima``, float64 of shape (groups,), bound the
    magnitude of a key's sum over ranks: the sum over ranks of `group_maxima`. ``dtype`` is that of the cells, int32 or
    int64, of which ``headroom`` bits are kept free.
    """
    bits = np.iinfo(dtype).bits - 1
    fraction, exponent = np.frexp(maxima)
    # A sum that reaches into the last part of the range gets twice the unit.
    exponents = bits - headroom - exponent - (fraction > 1 - 1 / RANGE_PARTS)
    used = maxima > 0
    exponents[~used] = exponents[used].min() if used.any() else 0
    clipped: Ints16 = np.clip(exponents, -MAX_EXPONENT, MAX_EXPONENT).astype(np.int16)
    return clipped


def to_fixed(values: Floats32, exponents: Ints16, dtype: DTypeLike) -> Array:
    """Return float32 values, shape (k, width), as int32 or int64 in units of 2^-exponents, shape (k,) or (1,).

    A value beyond the range becomes the end of the range, which `range_usage` shows.
    """
    limit = np.float32((RANGE_PARTS - 1) << _part_bits(dtype))
    # Scaling by a power of two is exact, and so is rounding in float32: where it has a fraction to round, it has bits
    # for it. Values may overflow here to infinity, and then end up at the limit.
    with np.errstate(over="ignore"):
        scaled = _scaled(values, exponents)
    np.rint(scaled, out=scaled)
    np.clip(scaled, -limit, limit, out=scaled)
    return scaled.astype(dtype)


def from_fixed(integers: Array, exponents: Ints16) -> Floats32:
    """Return the float32 values of ``integers``, shape (k, width), in units of 2^-exponents, shape (k,) or (1,)."""
    return _scaled(integers.astype(np.float32), -exponents)


def error_bound(exponents: Ints16, ranks: int) -> Floats:
    """Return how far the sum of ``ranks`` can be from the exact one: half a unit a rank, float64, shape (groups,).

    What float32 itself loses when the sum is returned in it, half a unit in its last place, comes on top.
    """
    return np.ldexp(0.5 * ranks, -exponents.astype(np.int32))


def range_usage(maxima: Floats, exponents: Ints16, dtype: DTypeLike) -> Array:
    """Return how many of the `RANGE_PARTS` of the range a rank needs in each group, to be summed over ranks.

    Rounded up; `RANGE_PARTS` stands for at least as many. The rank's own `group_maxima` are float64 of shape (groups,),
    the ``exponents`` of the units that it encodes with int16. The result has the type of the cells, ``dtype``: both
    travel in one message.
    """
    return np.minimum(np.ceil(np.ldexp(maxima, exponents - _part_bits(dtype))), RANGE_PARTS).astype(dtype)


def overflowed(parts: Array) -> Mask:
    """Return in which groups a key's sum may not have fitted, from the sum over ranks of `range_usage`."""
    return parts >= RANGE_PARTS


def maxima_from_usage(parts: Array, exponents: Ints16) -> Floats:
    """Return the bounds of `exponents_for` that the sum over ranks of `range_usage` says, float64 of shape (groups,).

    They are above the true ones by at most a part a rank, but may be far below in groups that `overflowed`: if there
    are any, ranks should exchange their maxima again.
    """
    return np.ldexp(parts.astype(np.float64), _part_bits(parts.dtype) - exponents.astype(np.int32))


def _part_bits(dtype: DTypeLike) -> int:
    return np.iinfo(dtype).bits - RANGE_PARTS.bit_length()


def _scaled(values: Floats32, exponents: Ints16) -> Floats32:
    """Return ``values`` times powers of two; in two steps where float32 does not hold the power."""
    if np.abs(exponents).max(initial=0) > _FLOAT32_EXPONENT:
        half = exponents // 2
        return _scaled(_scaled(values, half), exponents - half)
    return values * np.ldexp(np.float32(1), exponents.astype(np.int32))[:, None]


MAX_LEVELS = (1 << 15) - 1
"""Levels on either side of zero, so that all of them are numbered in two bytes."""

_CHUNK = 1 << 15
_LARGEST = float(np.finfo(np.float32).max)


def bucket_norms(vector: Floats32, bucket: int) -> Floats32:
    """Return the L2 norm of every ``bucket`` neighbours, float32 of shape (ceil(n / bucket),).

    A norm too large for float32 is its largest number, which no element exceeds.
    """
    norms = np.zeros(-(-len(vector) // bucket))
    for _, first, values in _buckets(vector, bucket):
        wide = values.astype(np.float64)
        norms[first : first + len(values)] += np.einsum("ij,ij->i", wide, wide)
    return np.minimum(np.sqrt(norms), _LARGEST).astype(np.float32)


def largest_magnitude(vector: Floats32) -> np.float32:
    """Return the largest magnitude of a vector, 0 if it is empty."""
    return np.float32(max(vector.max(initial=0), -vector.min(initial=0)))


def to_levels(
    vector: Floats32, scales: Floats32, bucket: int, levels: int, random: np.random.Generator | None
) -> Array:
    """Return the number of the level that each element is rounded to, from 0 for -scale to 2 * levels for +scale.

    It is uint8, or uint16 if there are many levels, of shape (n,). No element exceeds the scale of its bucket, float32
    of shape (ceil(n / bucket),); where that is 0, elements get the number of zero. The number of ``levels`` on either
    side of zero is at most `MAX_LEVELS`. Without ``random``, elements go to the nearest level.

    >>> to_levels(np.array([-3, 0, 1.5, 3], np.float32), np.array([3], np.float32), 4, 2, np.random.default_rng(0))
    array([0, 2, 3, 4], dtype=uint8)
    """
    if not 1 <= levels <= MAX_LEVELS:
        raise CodecError(f"{levels} levels on either side of zero were asked for: 1 to {MAX_LEVELS} are possible")
    numbers = np.empty(len(vector), np.uint8 if 2 * levels < 256 else np.uint16)
    for start, first, values in _buckets(vector, bucket):
        own = scales[first : first + len(values), None]
        # Elements of a bucket whose scale is 0 are 0: any other scale will do.
        rounded = values / np.where(own > 0, own, np.float32(1))
        rounded *= np.float32(levels)
        rounded += np.float32(0.5) if random is None else random.random(rounded.shape, dtype=np.float32)
        np.floor(rounded, out=rounded)
        # A scale or a draw that was rounded may have led beyond the last level.
        np.minimum(rounded, np.float32(levels), out=rounded)
        rounded += np.float32(levels)
        numbers[start : start + rounded.size] = rounded.reshape(-1)
    return numbers


def from_levels(numbers: Array, scales: Floats32, bucket: int, levels: int) -> Floats32:
    """Return scale * (number - levels) / levels for every number, float32 of shape (n,)."""
    vector = numbers.astype(np.float32)
    for _, first, values in _buckets(vector, bucket):
        np.subtract(values, np.float32(levels), out=values)
        np.divide(values, np.float32(levels), out=values)
        np.multiply(values, scales[first : first + len(values), None], out=values)
    return vector


def _buckets(vector: Floats32, bucket: int) -> Iterator[tuple[int, int, Floats32]]:
    """Yield parts of a vector as views of shape (buckets, elements): where each begins, and in which bucket.

    They fit in the cache: many buckets, or a part of one.
    """
    whole = len(vector) // bucket if bucket <= _CHUNK else 0
    step = max(1, _CHUNK // bucket)
    for first in range(0, whole, step):
        count = min(step, whole - first)
        yield first * bucket, first, vector[first * bucket : (first + count) * bucket].reshape(count, bucket)
    for start in range(whole * bucket, len(vector), _CHUNK):
        # What is left is less than a bucket, or cut where the next one begins.
        end = min(len(vector), start + _CHUNK)
        for cut in range(start // bucket, (end - 1) // bucket + 1):
            piece = vector[max(start, cut * bucket) : min(end, (cut + 1) * bucket)]
            yield max(start, cut * bucket), cut, piece.reshape(1, -1)


BlockForm: TypeAlias = Literal["e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "e3m0", "int8"]

BLOCK = 32
"""Elements that share a scale."""


class ElementType(NamedTuple):
    """A type of elements: ``largest`` is finite, with the exponent ``exponent``; integers have no ``bias``."""

    bits: int
    mantissa_bits: int
    bias: int | None
    exponent: int
    largest: float


ELEMENTS: dict[BlockForm, ElementType] = {
    "e4m3": ElementType(8, 3, 7, 8, 448.0),
    "e5m2": ElementType(8, 2, 15, 15, 57344.0),
    "e3m2": ElementType(6, 2, 3, 4, 28.0),
    "e2m3": ElementType(6, 3, 1, 2, 7.5),
    "e2m1": ElementType(4, 1, 1, 2, 6.0),
    "e3m0": ElementType(4, 0, 3, 4, 16.0),
    "int8": ElementType(8, 6, None, 0, 127 / 64),
}
"""OCP Microscaling Formats (MX) Specification 1.0, tables 1 and 2, but ``e3m0``; ``int8`` without -2, as it allows."""

_SCALE_BIAS = 127


def to_block_scaled(vector: Floats32, form: BlockForm) -> tuple[Bits, Bits]:
    """Return the exponents of scales and the codes of elements, uint8 of shape (ceil(n / 32),) and (n,).

    A scale is the power of two at or below the largest magnitude of its block, over that of the largest element (the
    specification's section 6.3). Quotients are rounded to nearest even, and beyond the largest element to that.
    `CodecError` for a value that is not finite.

    >>> scales, codes = to_block_scaled(np.array([1.0, 0.4, -7.0], np.float32), "e2m1")
    >>> from_block_scaled(scales, codes, "e2m1")
    array([ 1. ,  0.5, -6. ], dtype=float32)
    """
    element, count = ELEMENTS[form], len(vector)
    blocks = np.zeros((-(-count // BLOCK), BLOCK), np.float32)
    blocks.reshape(-1)[:count] = vector
    largest = np.abs(blocks).max(axis=1, initial=0.0)
    if not np.isfinite(largest).all():
        raise CodecError(f"a value is infinite or not a number, which mx:form={form} cannot hold")
    exponents = np.frexp(largest)[1] - 1 - element.exponent
    exponents = np.where(largest > 0, np.clip(exponents, -_SCALE_BIAS, _SCALE_BIAS), -_SCALE_BIAS)
    # Doubles hold quotients by the least scale.
    quotients = np.ldexp(blocks.astype(np.float64), -exponents[:, None]).clip(-element.largest, element.largest)
    scaled = quotients.astype(np.float32).reshape(-1)[:count]
    if element.bias is None:
        codes = np.rint(scaled * np.float32(1 << element.mantissa_bits)).astype(np.int8).view(np.uint8)
    else:
        bits = scaled.view(np.uint32)
        magnitudes = round_magnitudes(bits & np.uint32(0x7FFFFFFF), element.mantissa_bits, element.bias)
        codes = (magnitudes | (bits >> np.uint32(31)) << np.uint32(element.bits - 1)).astype(np.uint8)
    return (exponents + _SCALE_BIAS).astype(np.uint8), codes


def from_block_scaled(scales: Bits, codes: Bits, form: BlockForm) -> Floats32:
    """Return the elements of codes times the scales of their blocks, float32 of shape (n,)."""
    exponents = np.repeat(scales.astype(np.int32) - _SCALE_BIAS, BLOCK)[: len(codes)]
    return np.ldexp(_element_values(form).take(codes), exponents)


@cache
def _element_values(form: BlockForm) -> Floats32:
    element = ELEMENTS[form]
    if element.bias is None:
        return np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32) / np.float32(1 << element.mantissa_bits)
    values = magnitudes_of_codes(element.bits - 1, element.mantissa_bits, element.bias)
    return np.concatenate([values, -values])


assert set(ELEMENTS) == set(get_args(BlockForm))
