"""Hash functions of the count sketch: for each row, which column a key goes to and with which sign.

Three families, computed when needed and never kept in tables:

``mix``
    One 32-bit finaliser for a key, one odd multiplication for each further row, and the column by multiply-shift
    instead of a division (D. Lemire, "Fast random integer generation in an interval", ACM TOMACS 2019).
``modulo``
    Column t mod c, as the GNMT half of the S2 authors' published code has it (multiplier overwritten with 1).
``product``
    Column ((a0 t a1) mod p) mod c with p = 2^61 - 1 in wrapping 64-bit arithmetic, as its LSTM half has it.

The last two take the published cubic polynomial for the sign. Their constants are drawn as published, uniform in
[0, p), but by NumPy, so collisions follow the same law without being the very same collisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Ints, Words
from s2sim.errors import CodecError

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


def as_keys(keys: NDArray[Any]) -> Words:
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
    """Return what family ``mix`` XORs keys with, and the odd multiplier of each row.

    Row j goes to the column of the high bits of mix32(key, seed word) * multiplier[j], with the sign of bit j of the
    mixed key. The first row takes it as it is.
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
            scaled = (mixed if row == 0 else mixed * multiplier).astype(np.uint64)
            scaled *= np.uint64(columns)
            scaled >>= np.uint64(32)
            sign_bits = mixed << np.uint32(31 - row)
            sign_bits &= _SIGN_BIT
            yield scaled.view(np.int64), sign_bits
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
