"""Whole numbers of a few bits each, one after the other without a gap.

Streams of codes of different lengths, written and read without a loop over codes.

Codes follow each other without a gap, the most significant bit of each first. Where one begins is known to whoever
writes it by a cumulative sum of lengths. Whoever reads finds for every bit where a code that began there would end, and
then follows these jumps from the first bit on: in rounds that double how far is seen, and not code by code.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Array, Bits, Ints, Words
from s2sim.codecs.hashing import check_key_space
from s2sim.errors import CodecError

BATCH_KEYS = 1 << 16
"""Keys hashed at once; half a megabyte for each 64-bit temporary keeps all of them in a core's second-level cache."""


def row_batches(row_ids: Ints, width: int, offset: int) -> Iterator[tuple[slice, Words]]:
    """Yield (slice of ``row_ids``, the keys of their elements row by row), about `BATCH_KEYS` or a row at a time."""
    if not len(row_ids) or not width:
        return
    check_key_space(offset + int(row_ids.min()) * width, offset + (int(row_ids.max()) + 1) * width)
    rows_at_once = max(1, BATCH_KEYS // width)
    for first in range(0, len(row_ids), rows_at_once):
        rows = slice(first, first + rows_at_once)
        # Keys are below 2^32, so arithmetic modulo 2^32 is exact for them.
        row_keys = (row_ids[rows] * width + offset).astype(np.uint32)
        yield rows, np.add.outer(row_keys, np.arange(width, dtype=np.uint32)).ravel()


MAX_BITS = 32

# Numbers that are packed at once stay in a core's cache; a multiple of 8, so that every chunk ends on a whole byte.
_CHUNK = 1 << 16
_BYTE = 8


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of ``count`` numbers of ``bits`` bits each.

    >>> packed_bytes(3, 9)
    4
    """
    return (count * bits + 7) // 8


def pack_integers(numbers: Array, bits: int) -> Bits:
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
        place[:] = _pack_groups(padded, bits).reshape(-1)[: len(place)]
    return packed


def unpack_integers(packed: Bits, bits: int, count: int) -> Array:
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
        numbers: Array = unpack_integers(packed[count:], bits - _BYTE, count)
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
        part = packed[start * bits // _BYTE : packed_bytes(stop, bits)]
        numbers[start:stop] = _unpack_groups(part, bits)[: stop - start]
    return numbers


def _pack_groups(numbers: Bits, bits: int) -> Array:
    """Return eight numbers of one byte each, again and again, as ``bits`` bytes: uint8 of shape (n / 8, bits)."""
    words = numbers.view("<u8")
    # Neighbours move together: pairs of bytes, then pairs of what these have become, then pairs of those.
    for width, field in ((bits, 8), (2 * bits, 16), (4 * bits, 32)):
        low = words & _repeat_mask(2 * field, width)
        words = words >> np.uint64(field - width)
        words &= _repeat_mask(2 * field, width) << np.uint64(width)
        words |= low
    return words.view(np.uint8).reshape(-1, _BYTE)[:, :bits]


def _unpack_groups(packed: Bits, bits: int) -> Bits:
    """Return what `_pack_groups` was made of, uint8; bytes that lack to whole groups of eight numbers are zero."""
    groups = -(-len(packed) // bits)
    if len(packed) < groups * bits:
        packed = np.concatenate((packed, np.zeros(groups * bits - len(packed), np.uint8)))
    wide = np.zeros((groups, _BYTE), np.uint8)
    wide[:, :bits] = packed.reshape(groups, bits)
    words = wide.reshape(-1).view("<u8")
    for width, field in ((4 * bits, 32), (2 * bits, 16), (bits, 8)):
        low = words & _repeat_mask(2 * field, width)
        words = words << np.uint64(field - width)
        words &= _repeat_mask(2 * field, width) << np.uint64(field)
        words |= low
    return words.view(np.uint8)


def _repeat_mask(field: int, width: int) -> np.uint64:
    """Return a word in whose fields of so many bits the lowest ``width`` are set."""
    return np.uint64(sum(((1 << width) - 1) << start for start in range(0, 64, field)))


def _check(bits: int) -> None:
    if not 1 <= bits <= MAX_BITS:
        raise CodecError(f"numbers of {bits} bits were to be packed: 1 to {MAX_BITS} are possible")


_WORD = 64


def write_words(words: NDArray[np.uint64], widths: Ints | int, starts: Ints, bits: int) -> Bits:
    """Return a stream of ``bits`` bits with some words in it and zeros between them, uint8 of shape (ceil(bits / 8),).

    The ``words``, uint64 of shape (k,), have ``widths`` of 1 to 64 bits, and ``starts`` says where each begins, int64
    of shape (k,): increasing, and no word reaches into the next one.
    """
    stream = np.zeros(bits // _WORD + 2, np.uint64)
    at, shift = starts // _WORD, (starts % _WORD).astype(np.uint64)
    left = words << (_WORD - np.asarray(widths)).astype(np.uint64)
    _or_into_words(stream, at, left >> shift)
    # Shifting by a whole word is not defined, so it is done in two goes.
    _or_into_words(stream, at + 1, (left << np.uint64(1)) << (np.uint64(_WORD - 1) - shift))
    return stream.astype(">u8").view(np.uint8)[: (bits + 7) // 8].copy()


def _or_into_words(stream: NDArray[np.uint64], at: Ints, parts: NDArray[np.uint64]) -> None:
    """Add to words of the stream what belongs there; places increase, and each run of the same one is one store."""
    if len(at):
        first = np.flatnonzero(np.diff(at, prepend=-1))
        stream[at[first]] |= np.bitwise_or.reduceat(parts, first)


def read_words(stream: Bits, starts: NDArray[np.integer], widths: Ints | int) -> NDArray[np.uint64]:
    """Return the words of up to 57 bits that begin at some bits of a stream, uint64 of the shape of ``starts``.

    Beyond the stream's end there are zeros.
    """
    padded = np.zeros(len(stream) + _WORD // 8, np.uint8)
    padded[: len(stream)] = stream
    # The eight bytes from each byte on, seen in place.
    windows: NDArray[np.uint64] = np.ndarray((len(stream) + 1,), ">u8", padded, strides=(1,))
    words: NDArray[np.uint64] = windows[np.minimum(starts >> 3, len(stream))].astype(np.uint64)
    words <<= (starts & 7).astype(np.uint64)
    words >>= np.uint64(1)
    words >>= (_WORD - 1 - np.asarray(widths)).astype(np.uint64)
    return words


def next_set_bit(bits: Bits) -> NDArray[np.int32]:
    """Return for every bit where the first one is, itself or after it: int32 of shape (n + 1,), also for the end.

    Where there is none, it is n.

    >>> next_set_bit(np.array([0, 1, 0, 0, 1, 0], np.uint8))
    array([1, 1, 4, 4, 4, 6, 6], dtype=int32)
    """
    found = np.append(np.flatnonzero(bits), len(bits)).astype(np.int32)
    before = np.zeros(len(bits) + 1, np.int32)
    np.cumsum(bits, out=before[1:])
    return found[before]


def code_starts(jumps: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return where the codes of a stream begin, int32, increasing.

    ``jumps``, int32 of shape (n,), are where a code that began at each of n bits would end: behind itself, at most at
    n; or beyond n, where it is not complete. The first code begins at 0; what is not complete is none.

    >>> code_starts(np.array([2, 3, 3, 4, 6, 6], np.int32))
    array([0, 2, 3, 4], dtype=int32)
    >>> code_starts(np.array([2, 3, 3, 4, 7, 7], np.int32))
    array([0, 2, 3], dtype=int32)
    """
    end = len(jumps)
    ahead = np.append(np.minimum(jumps, end + 1), [end + 1, end + 1]).astype(np.int32)
    met = np.zeros(1, np.int32)
    # Each round doubles both the places that are known and how many codes a jump passes.
    while met[-1] <= end:
        met = np.concatenate((met, ahead[met]))
        ahead = ahead[ahead]
    starts = met[: np.searchsorted(met, end)]
    return starts[jumps[starts] <= end] if end else starts
