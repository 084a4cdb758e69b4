"""Hash functions of the count sketch: for each row, which column a key goes to and with which sign.

Three families, computed when needed and never kept in tables:

``mix``
    One 32-bit finaliser for a key; for each further row an odd multiplication of its own and one more round, without
    which rows would be multiples of each other, and keys that share a cell of one share cells of others far too often.
    The column by multiply-shift instead of a division (D. Lemire, "Fast random integer generation in an interval", ACM
    TOMACS 2019).
``modulo``
    Column t mod c, as the GNMT half of the S2 authors' published code has it (multiplier overwritten with 1).
``product``
    Column ((a0 t a1) mod p) mod c with p = 2^61 - 1 in wrapping 64-bit arithmetic, as its LSTM half has it.

The last two take the published cubic polynomial for the sign. Their constants are drawn as published, uniform in
[0, p), but by NumPy, so collisions follow the same law without being the very same collisions.

HyperLogLog tells by such hashes how many distinct keys several ranks hold together, from a few kilobytes of each
(P. Flajolet, E. Fusy, O. Gandouet, F. Meunier, "HyperLogLog: the analysis of a near-optimal cardinality estimation
algorithm", AofA 2007). Registers of several ranks merge by the element-wise maximum; no vector is decoded from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Array, Bits, Ints, Words
from s2sim.errors import CodecError, OptionError
from s2sim.seeds import splitmix64

HashKind: TypeAlias = Literal["mix", "modulo", "product"]

MAX_ROWS = 16
"""Rows take their signs from different low bits of one 32-bit hash, whose high bits choose the column."""

KEY_SPACE = 1 << 32
"""Keys are 32-bit: elements of all layers of one sketch together."""

MIX_MULTIPLIERS = (np.uint32(0x21F0AAAD), np.uint32(0xD35A2D97))
"""Constants of low avalanche bias, from the searches collected in C. Wellons's hash-prospector
(github.com/skeeto/hash-prospector)."""

MERSENNE_61 = (1 << 61) - 1

_SIGN_BIT = np.uint32(1 << 31)


def as_keys(keys: Array) -> Words:
    """Return ``keys`` as uint32; `CodecError` if one does not fit.

    >>> as_keys(np.array([0, 7]))
    array([0, 7], dtype=uint32)
    """
    if keys.dtype == np.uint32:
        return keys
    if not np.issubdtype(keys.dtype, np.integer):
        raise CodecError(f"keys are integers; found {keys.dtype}")
    converted = keys.astype(np.uint32)
    if not np.array_equal(converted, keys):
        check_key_space(int(keys.min()), int(keys.max()) + 1)
    return converted


def check_key_space(first: int, stop: int) -> None:
    """Raise `CodecError` unless all keys in [first, stop) are 32-bit."""
    if first < 0 or stop > KEY_SPACE:
        raise CodecError(
            f"keys {first} to {stop - 1} do not fit in 32 bits: split the layers over several sketches of at most "
            f"{KEY_SPACE} elements each"
        )


@lru_cache(maxsize=64)
def mix_constants(rows: int, seed: int) -> tuple[np.uint32, Words]:
    """Return what family ``mix`` XORs keys with, and the odd multiplier of each row, see `row_words`.

    Row j goes to the column of the high bits of its word, with the sign of bit j of the mixed key.
    """
    words = np.random.SeedSequence([seed, *b"count-sketch mix"]).generate_state(MAX_ROWS)
    multipliers = words[:rows] | np.uint32(1)
    multipliers[0] = 1
    multipliers.flags.writeable = False
    return words[0], multipliers


@lru_cache(maxsize=64)
def _polynomial_constants(rows: int, seed: int) -> Ints:
    """Return the six constants of each row, int64 of shape (rows, 6), uniform in [0, 2^61 - 1)."""
    generator = np.random.default_rng(np.random.SeedSequence([seed, *b"count-sketch polynomial"]))
    return generator.integers(0, MERSENNE_61, (rows, 6))


def mix32(keys: Words, seed_word: np.uint32) -> Words:
    """Return a bijective mix of 32-bit keys, uint32 of the same shape.

    Two rounds of xor-shift and multiply, and a last xor-shift.
    """
    mixed = keys ^ seed_word
    shifted = mixed >> np.uint32(16)
    mixed ^= shifted
    mixed *= MIX_MULTIPLIERS[0]
    mixed ^= np.right_shift(mixed, np.uint32(15), out=shifted)
    mixed *= MIX_MULTIPLIERS[1]
    mixed ^= np.right_shift(mixed, np.uint32(15), out=shifted)
    return mixed


def row_words(mixed: Words, multiplier: np.uint32) -> Words:
    """Return the words of one row for mixed keys, uint32: a multiplication, xor-shift and multiplication.

    The first row, whose multiplier is 1, takes the mixed keys as they are.
    """
    if multiplier == 1:
        return mixed
    words = mixed * multiplier
    words ^= words >> np.uint32(15)
    words *= MIX_MULTIPLIERS[1]
    return words


def spread(words: Words, count: int) -> Ints:
    """Return one of ``count`` places for each word, int64: its high bits times the count."""
    scaled = words.astype(np.uint64)
    scaled *= np.uint64(count)
    scaled >>= np.uint64(32)
    return scaled.view(np.int64)


def hash_rows(kind: HashKind, keys: Words, rows: int, columns: int, seed: int) -> Iterator[tuple[Ints, Words]]:
    """Yield, for each row of a sketch, where every key goes: its column, and its sign.

    Keys are uint32 of shape (k,). The seed, the same on all ranks, or their sketches would not add up, chooses the
    functions of the family. The column is int64, in [0, columns); the sign is uint32, 0x80000000 where it is -1, else
    0: what to XOR a float32's bits with.
    """
    if kind == "mix":
        seed_word, multipliers = mix_constants(rows, seed)
        mixed = mix32(keys, seed_word)
        for row, multiplier in enumerate(multipliers):
            sign_bits = mixed << np.uint32(31 - row)
            sign_bits &= _SIGN_BIT
            yield spread(row_words(mixed, multiplier), columns), sign_bits
        return
    tokens = keys.astype(np.int64)
    # int64 arrays wrap around and % takes the divisor's sign, both as in the published PyTorch code.
    for a0, a1, a2, a3, a4, a5 in _polynomial_constants(rows, seed):
        if kind == "modulo":
            bucket = (keys % np.uint32(columns)).astype(np.int64)
        else:
            bucket = _modulo_mersenne(tokens * a0 * a1) % columns
        sign = _modulo_mersenne(((a2 * tokens + a3) * tokens + a4) * tokens + a5) & 1
        yield bucket, (sign ^ 1).astype(np.uint32) << np.uint32(31)


def _modulo_mersenne(numbers: Ints) -> Ints:
    """Return ``numbers % MERSENNE_61`` in a fifth of its time: 2^61 counts as 1."""
    folded = numbers & MERSENNE_61
    folded += numbers >> 61
    # What is above 2^61 counts from -4 to 3.
    folded[folded < 0] += MERSENNE_61
    folded[folded >= MERSENNE_61] -= MERSENNE_61
    return folded


_MAX_DISTANCE = 2**16 - 1


def encode_distances(positions: Ints, values: Array) -> tuple[NDArray[np.uint16], Array]:
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
