"""Values rounded at random to evenly spaced levels of a scale, one scale for every bucket of neighbours.

What a value is rounded to is its own amount on average: it goes up with the probability that its distance to the level
below is of that between both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import CodecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from s2sim.arrays import Floats32

MOST_LEVELS = (1 << 15) - 1
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
) -> NDArray[Any]:
    """Return the number of the level that each element is rounded to, from 0 for -scale to 2 * levels for +scale.

    It is uint8, or uint16 if there are many levels, of shape (n,). No element exceeds the scale of its bucket, float32
    of shape (ceil(n / bucket),); where that is 0, elements get the number of zero. The number of ``levels`` on either
    side of zero is at most `MOST_LEVELS`. Without ``random``, elements go to the nearest level.

    >>> to_levels(np.array([-3, 0, 1.5, 3], np.float32), np.array([3], np.float32), 4, 2, np.random.default_rng(0))
    array([0, 2, 3, 4], dtype=uint8)
    """
    if not 1 <= levels <= MOST_LEVELS:
        raise CodecError(f"{levels} levels on either side of zero were asked for: 1 to {MOST_LEVELS} are possible")
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


def from_levels(numbers: NDArray[Any], scales: Floats32, bucket: int, levels: int) -> Floats32:
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
