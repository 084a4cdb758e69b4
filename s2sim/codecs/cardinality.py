"""HyperLogLog: how many distinct keys several ranks hold together, from a few kilobytes of each.

P. Flajolet, E. Fusy, O. Gandouet, F. Meunier, "HyperLogLog: the analysis of a near-optimal cardinality estimation
algorithm", AofA 2007. It is no codec: a vector cannot be decoded from it. Registers of several ranks merge by the
element-wise maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Bits, Ints, Words
from s2sim.codecs.hashing import as_keys
from s2sim.errors import CodecError, OptionError
from s2sim.seeds import splitmix64

_MAX_DISTANCE = 2**16 - 1


def encode_distances(positions: Ints, values: NDArray[Any]) -> tuple[NDArray[np.uint16], NDArray[Any]]:
    """Return the distance of each position to the one before it, the first to -1, and the values.

    Where that does not fit into 16 bits, zeros stand between at the largest distance. ``positions``, int64 of shape
    (k,), increase strictly from 0 on; ``values`` has the same shape.

    >>> encode_distances(np.array([2, 70000]), np.array([1.5, 2.5]))
    (array([    3, 65535,  4463], dtype=uint16), array([1.5, 0. , 2.5]))
    """
    gaps = np.diff(positions, prepend=-1)
    fillers = (gaps - 1) // _MAX_DISTANCE
    places = np.cumsum(fillers + 1) - 1
    count = int(places[-1]) + 1 if len(places) else 0
    distances = np.full(count, _MAX_DISTANCE, np.uint16)
    distances[places] = gaps - fillers * _MAX_DISTANCE
    filled = np.zeros(count, values.dtype)
    filled[places] = values
    return distances, filled


def decode_distances(distances: NDArray[np.uint16], elements: int) -> Ints:
    """Return the positions, those of fillers among them; `CodecError` if they do not lie in so many elements."""
    positions: Ints = np.cumsum(distances, dtype=np.int64) - 1
    if len(positions) and (not distances.all() or positions[-1] >= elements):
        raise CodecError(f"these distances do not lead to {len(positions)} elements of {elements}")
    return positions


_CHUNK_KEYS = 1 << 16

_RANK_BITS = 48
"""Low bits of a 64-bit hash that the rank of the first one is taken from; a float64 holds them exactly. They do not
overlap the at most 16 high bits that choose the register."""


@lru_cache(maxsize=64)
def _seed_word(seed: int) -> np.uint64:
    word: np.uint64 = np.random.SeedSequence([seed, *b"hyperloglog"]).generate_state(1, np.uint64)[0]
    return word


def mix64(keys: Words, seed_word: np.uint64) -> NDArray[np.uint64]:
    """Return 64-bit hashes of 32-bit keys: no two keys share one.

    A 32-bit hash would count too few keys from about 1e8 on, and correct for it with more noise.
    """
    mixed = keys.astype(np.uint64)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed += seed_word
    return splitmix64(mixed)


@dataclass(frozen=True, slots=True)
class HyperLogLog:
    """An estimator of the number of distinct keys.

    There are m = 2**precision registers of one byte, precision 4 to 16, for a relative standard error of 1.04 / sqrt(m)
    (theorem 1). ``seed`` chooses the hash function; it is the same on all ranks.

    >>> estimator = HyperLogLog()
    >>> left, right = (estimator.registers(np.arange(*part, dtype=np.uint32)) for part in ((0, 600), (400, 1000)))
    >>> bool(abs(estimator.estimate(np.maximum(left, right)) - 1000) < 50)
    True
    """

    precision: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        if not 4 <= self.precision <= 16:
            raise OptionError(f"precision={self.precision} of HyperLogLog does not lie between 4 and 16")
        if self.seed < 0:
            raise OptionError(f"seed {self.seed} of HyperLogLog is negative; it must be 0 or more")

    @property
    def size(self) -> int:
        """Number of registers m, which is also their bytes."""
        return 1 << self.precision

    def registers(self, keys: Words) -> Bits:
        """Return the registers of ``keys`` (uint32, shape (k,)), uint8 of shape (2**precision,).

        A register holds the largest position of the first one bit among the hashes that chose it, 0 if none did.
        """
        keys = as_keys(keys)
        registers = np.zeros(self.size, np.uint8)
        for start in range(0, len(keys), _CHUNK_KEYS):
            hashed = mix64(keys[start : start + _CHUNK_KEYS], _seed_word(self.seed))
            chosen = (hashed >> np.uint64(64 - self.precision)).astype(np.int64)
            low_bits = hashed & np.uint64((1 << _RANK_BITS) - 1)
            bit_length = np.frexp(low_bits.astype(np.float64))[1]
            np.maximum.at(registers, chosen, (_RANK_BITS + 1 - bit_length).astype(np.uint8))
        return registers

    def estimate(self, registers: Bits) -> float:
        """Return the estimated number of distinct keys behind ``registers`` (uint8, shape (2**precision,)).

        alpha_m m^2 / sum(2^-register), or m ln(m / zeros) where that is at most 2.5 m and registers are still zero
        (Flajolet et al. 2007, figure 3). The correction for large ranges is for 32-bit hashes only.
        """
        if registers.dtype != np.uint8 or registers.shape != (self.size,):
            raise CodecError(
                f"HyperLogLog registers are uint8 of shape ({self.size},); found {registers.dtype} {registers.shape}"
            )
        m = self.size
        alpha = {16: 0.673, 32: 0.697, 64: 0.709}.get(m, 0.7213 / (1 + 1.079 / m))
        raw = alpha * m * m / float(np.ldexp(1.0, -registers.astype(np.int32)).sum())
        zeros = m - int(np.count_nonzero(registers))
        return m * log(m / zeros) if raw <= 2.5 * m and zeros else raw
