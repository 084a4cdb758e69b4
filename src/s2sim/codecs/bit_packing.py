"""Whole numbers of a few bits each, one after the other without a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import CodecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Bits

MOST_BITS = 32

# Numbers that are packed at once stay in a core's cache; a multiple of 8, so that every chunk ends on a whole byte.
_CHUNK = 1 << 16
_BYTE = 8


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of ``count`` numbers of ``bits`` bits each.

    >>> packed_bytes(3, 9)
    4
    """
    return (count * bits + 7) // 8


def pack_integers(numbers: NDArray[Any], bits: int) -> Bits:
    """Return numbers below 2^bits as bytes: uint8 of shape (ceil(n bits / 8),).

    Up to eight bits, number i has the bits from i * bits on, least significant first. Of wider ones, all low bytes come
    first, and then what is above them, packed likewise. The numbers are unsigned integers of shape (n,) that are not
    checked; ``bits`` is 1 to 32.

    >>> pack_integers(np.array([1, 2, 3], np.uint8), 2)
    array([57], dtype=uint8)
    """
    _check(bits)
    if bits > _BYTE:
        return np.concatenate((numbers.astype(np.uint8), pack_integers(numbers >> _BYTE, bits - _BYTE)))
    if bits == 1:
        return np.packbits(numbers.astype(np.uint8, copy=False), bitorder="little")
    if bits == _BYTE:
        return numbers.astype(np.uint8)
    packed = np.empty(packed_bytes(len(numbers), bits), np.uint8)
    for start in range(0, len(numbers), _CHUNK):
        chunk = numbers[start : start + _CHUNK]
        padded = np.zeros(-(-len(chunk) // _BYTE) * _BYTE, np.uint8)
        padded[: len(chunk)] = chunk
        place = packed[start * bits // _BYTE : packed_bytes(start + len(chunk), bits)]
        place[:] = _squeezed(padded, bits).reshape(-1)[: len(place)]
    return packed


def unpack_integers(packed: Bits, bits: int, count: int) -> NDArray[Any]:
    """Return the numbers that `pack_integers` made ``packed`` of: uint8, uint16 or uint32 of shape (count,).

    >>> unpack_integers(np.array([57], np.uint8), 2, 3)
    array([1, 2, 3], dtype=uint8)
    """
    _check(bits)
    if packed.dtype != np.uint8 or packed.shape != (packed_bytes(count, bits),):
        raise CodecError(
            f"{count} numbers of {bits} bits are {packed_bytes(count, bits)} bytes; found {packed.dtype} of shape "
            f"{packed.shape}"
        )
    if bits > _BYTE:
        numbers: NDArray[Any] = unpack_integers(packed[count:], bits - _BYTE, count)
        numbers = numbers.astype(np.uint16 if bits <= 2 * _BYTE else np.uint32)
        numbers <<= _BYTE
        numbers |= packed[:count]
        return numbers
    if bits == 1:
        return np.unpackbits(packed, count=count, bitorder="little")
    if bits == _BYTE:
        return packed
    numbers = np.empty(count, np.uint8)
    for start in range(0, count, _CHUNK):
        stop = min(count, start + _CHUNK)
        numbers[start:stop] = _spread(packed[start * bits // _BYTE : packed_bytes(stop, bits)], bits)[: stop - start]
    return numbers


def _squeezed(numbers: Bits, bits: int) -> NDArray[Any]:
    """Return eight numbers of one byte each, again and again, as ``bits`` bytes: uint8 of shape (n / 8, bits)."""
    words = numbers.view("<u8")
    # Neighbours move together: pairs of bytes, then pairs of what these have become, then pairs of those.
    for width, field in ((bits, 8), (2 * bits, 16), (4 * bits, 32)):
        low = words & _every(2 * field, width)
        words = words >> np.uint64(field - width)
        words &= _every(2 * field, width) << np.uint64(width)
        words |= low
    return words.view(np.uint8).reshape(-1, _BYTE)[:, :bits]


def _spread(packed: Bits, bits: int) -> Bits:
    """Return what `_squeezed` was made of, uint8; bytes that lack to whole groups of eight numbers are zero."""
    groups = -(-len(packed) // bits)
    if len(packed) < groups * bits:
        packed = np.concatenate((packed, np.zeros(groups * bits - len(packed), np.uint8)))
    wide = np.zeros((groups, _BYTE), np.uint8)
    wide[:, :bits] = packed.reshape(groups, bits)
    words = wide.reshape(-1).view("<u8")
    for width, field in ((4 * bits, 32), (2 * bits, 16), (bits, 8)):
        low = words & _every(2 * field, width)
        words = words << np.uint64(field - width)
        words &= _every(2 * field, width) << np.uint64(field)
        words |= low
    return words.view(np.uint8)


def _every(field: int, width: int) -> np.uint64:
    """Return a word in whose fields of so many bits the lowest ``width`` are set."""
    return np.uint64(sum(((1 << width) - 1) << start for start in range(0, 64, field)))


def _check(bits: int) -> None:
    if not 1 <= bits <= MOST_BITS:
        raise CodecError(f"numbers of {bits} bits were to be packed: 1 to {MOST_BITS} are possible")
