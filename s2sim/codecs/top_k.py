"""Top-k selection: the k elements of largest magnitude, exactly, ties to the lower index."""

from dataclasses import dataclass
from math import floor, sqrt
from typing import ClassVar

import numpy as np

from s2sim.arrays import Array, Floats32, Ints
from s2sim.codecs import bitmap, hashing
from s2sim.codecs.payload import DescribedCodec, Payload, float32_vector
from s2sim.errors import CodecError

_SAMPLE = 1 << 12  # Magnitudes of which the smallest that can be among the largest is guessed


def elements_kept(n: int, density: float) -> int:
    """Return how many of ``n`` elements a density keeps: rounded down, and at least one if there are any.

    >>> elements_kept(250, 0.01), elements_kept(3, 0.01), elements_kept(0, 0.01)
    (2, 1, 0)
    """
    # The addend keeps 0.29 * 100 = 28.999... at 29.
    return min(n, max(1, floor(n * density + 1e-9)))


def select_top_k(values: Floats32, k: int) -> Ints:
    """Return where the ``k`` of n ``values`` of largest magnitude are, int64, increasing; ties go to the lower index.

    Linear in n: the k-th largest magnitude is found by a partition, not by a sort, and of the non-zero elements alone,
    because zeros would be ties by the million, which make a partition up to thirty times slower. The values, float32 of
    shape (n,), are finite.

    >>> select_top_k(np.array([1.0, -3.0, 0.0, 1.0], np.float32), 2)
    array([0, 1])
    """
    n = len(values)
    if not 0 <= k <= n:
        raise CodecError(f"{k} of {n} elements were to be kept: k must lie between 0 and {n}")
    if k == n:
        return np.arange(n)
    nonzeros = bitmap.count_nonzero(values)
    if k > nonzeros:
        kept = values != 0
        kept[np.flatnonzero(~kept)[: k - nonzeros]] = True
        return np.flatnonzero(kept)
    if 2 * nonzeros < n:
        support = bitmap.unpack_positions(bitmap.pack_nonzero(values), n)
        return support[_select_largest(np.abs(values[support]), k)]
    return _select_largest(np.abs(values), k)


def _select_largest(magnitudes: Floats32, k: int) -> Ints:
    if k == 0:
        return np.empty(0, np.int64)
    # A sample tells below what nearly surely none of the k largest is: these need not be looked at closely.
    sample, candidates = magnitudes[:: max(1, len(magnitudes) // _SAMPLE)], magnitudes
    if (rank := round(len(sample) * (1 - k / len(magnitudes)) - 3 * sqrt(len(sample)) / 2)) > 0:
        large = magnitudes[magnitudes >= np.partition(sample, rank)[rank]]
        candidates = large if len(large) >= k else magnitudes
    at = len(candidates) - k
    threshold = np.partition(candidates, at)[at]
    kept = magnitudes > threshold
    kept[np.flatnonzero(magnitudes == threshold)[: k - np.count_nonzero(kept)]] = True
    return np.flatnonzero(kept)


def to_pairs(positions: Ints, values: Floats32, k: int) -> dict[str, Array]:
    """Return the elements of a vector that are kept as they travel: ``indices``, uint32, and ``values``, of shape (k,).

    Where fewer than ``k`` are kept, pairs (0, 0.0) stand for any of the others: the size is fixed.
    """
    indices, kept = np.zeros(k, np.uint32), np.zeros(k, np.float32)
    indices[: len(positions)] = positions
    kept[: len(positions)] = values
    return {"indices": indices, "values": kept}


@dataclass(frozen=True, slots=True)
class TopKCodec(DescribedCodec):
    """The codec that keeps the elements of largest magnitude as (uint32 index, float32 value) pairs.

    ``density`` is the fraction of the elements that is kept, in (0, 1].
    """

    intervals: ClassVar = {"density": "(0, 1]"}
    density: float = 0.01

    def encode(self, array: Floats32) -> Payload:
        vector = float32_vector(array, self.name)
        hashing.check_key_space(0, len(vector))
        k = elements_kept(len(vector), self.density)
        kept = select_top_k(vector, k)
        return Payload.of(self, len(vector), **to_pairs(kept, vector[kept], k))

    def decode(self, payload: Payload) -> Floats32:
        """Return the kept elements in their places and zeros elsewhere, float32 of shape (n,)."""
        indices, values = payload.expect(self, "indices", "values")
        n = payload.elements
        if indices.dtype != np.uint32 or values.dtype != np.float32 or indices.shape != values.shape:
            raise CodecError(f"top-k pairs are uint32 and float32 of one shape; found {indices.dtype}, {values.dtype}")
        if indices.shape != (elements_kept(n, self.density),) or (len(indices) and indices.max() >= n):
            raise CodecError(f"the indices of this top-k payload do not lie in a vector of {n} elements")
        array = np.zeros(n, np.float32)
        array[indices] = values
        return array
