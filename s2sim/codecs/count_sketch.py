"""The count sketch: a linear summary of a vector from which any of its elements can be estimated.

M. Charikar, K. Chen, M. Farach-Colton, "Finding frequent items in data streams", ICALP 2002. Row j adds s_j(key) value
to its cell h_j(key); an element's estimate is the median over rows of s_j(key) cell[j, h_j(key)]. Sketches of the same
shape and seed add up: the sketch of a sum is the sum of the sketches.

The inner loops may be compiled by numba (extra ``numba``): each cell gets the same additions in the same order as with
NumPy, so that both give the same bits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from math import ceil, comb, sqrt
from typing import Any, Literal, TypeAlias

import numpy as np

from s2sim.arrays import Bits, Floats32, Ints, Words
from s2sim.codecs.bitmap import check_bitmap, iterate_positions, pack_nonzero
from s2sim.codecs.bits import BATCH_KEYS, row_batches
from s2sim.codecs.hashing import MAX_ROWS, MIX_MULTIPLIERS, HashKind, as_keys, check_key_space, hash_rows, mix_constants
from s2sim.codecs.payload import DescribedCodec, Payload, float32_vector
from s2sim.errors import CodecError, OptionError, S2SimError
from s2sim.options import check_options

Backend: TypeAlias = Literal["numpy", "numba"]
"""Whose loops add to the cells and read them: NumPy's, or those that numba compiles. The results are equal."""

_WORTHWHILE = 1 << 29
"""Times that a key is hashed for a row of a sketch: each saves about 4 ns, and importing and compiling take 1.6 s."""


def backend_for(hashes: int) -> Backend:
    """Return what adds to a sketch's cells in less time where keys are hashed so often: numba if it is there and pays.

    Both give the same bits.
    """
    return "numba" if hashes >= _WORTHWHILE and find_spec("numba") is not None else "numpy"


def add_rows(cells: Floats32, keys: Words, seed_word: np.uint32, multipliers: Words, values: Floats32) -> None:
    """Add each value, with its sign, to one cell of each row of a sketch, float32 of shape (rows, columns).

    Values and their keys are float32 and uint32 of shape (k,); `s2sim.codecs.hashing.mix_constants` returns the others.
    """
    _compiled(_add_rows)(cells, _compiled(_mix)(keys, seed_word), multipliers, values)


def read_rows(cells: Floats32, keys: Words, seed_word: np.uint32, multipliers: Words) -> Floats32:
    """Return what each row estimates for each key, float32 of shape (rows, k); parameters as in `add_rows`."""
    estimates = np.empty((len(multipliers), len(keys)), np.float32)
    _compiled(_read_rows)(cells, _compiled(_mix)(keys, seed_word), multipliers, estimates)
    return estimates


@cache
def _compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    try:
        from numba import njit
    except ImportError as error:
        raise S2SimError("backend numba needs numba: pip install 's2sim[numba]', or take backend numpy") from error
    compiled: Callable[..., Any] = njit(nogil=True)(loop)
    return compiled


# Numba widens products of 32-bit numbers to 64 bits; np.uint32 cuts them off again, as NumPy's arrays do.


def _mix(keys: Any, seed_word: Any) -> Any:
    mixed = np.empty(len(keys), np.uint32)
    for index in range(len(keys)):
        word = keys[index] ^ seed_word
        word = np.uint32((word ^ (word >> np.uint32(16))) * MIX_MULTIPLIERS[0])
        word = np.uint32((word ^ (word >> np.uint32(15))) * MIX_MULTIPLIERS[1])
        mixed[index] = word ^ (word >> np.uint32(15))
    return mixed


# One row after the other: keys stay in the cache, and so do the cells of one row.


def _add_rows(cells: Any, mixed: Any, multipliers: Any, values: Any) -> None:
    columns = np.uint64(cells.shape[1])
    for row in range(len(multipliers)):
        line, multiplier, bit = cells[row], multipliers[row], np.uint32(row)
        for index in range(len(mixed)):
            word = np.uint32(mixed[index] * multiplier)
            if row:
                word = np.uint32((word ^ (word >> np.uint32(15))) * MIX_MULTIPLIERS[1])
            column = (np.uint64(word) * columns) >> np.uint64(32)
            sign = np.float32(1 - 2 * np.int32((mixed[index] >> bit) & np.uint32(1)))
            line[column] += sign * values[index]


def _read_rows(cells: Any, mixed: Any, multipliers: Any, estimates: Any) -> None:
    columns = np.uint64(cells.shape[1])
    for row in range(len(multipliers)):
        line, estimate, multiplier, bit = cells[row], estimates[row], multipliers[row], np.uint32(row)
        for index in range(len(mixed)):
            word = np.uint32(mixed[index] * multiplier)
            if row:
                word = np.uint32((word ^ (word >> np.uint32(15))) * MIX_MULTIPLIERS[1])
            column = (np.uint64(word) * columns) >> np.uint64(32)
            estimate[index] = line[column]
        # Cells are read one by one, but signs are vectorised in a loop of their own.
        for index in range(len(mixed)):
            estimate[index] *= np.float32(1 - 2 * np.int32((mixed[index] >> bit) & np.uint32(1)))


@dataclass(frozen=True, slots=True)
class CountSketch(DescribedCodec):
    """Shape and hash functions of a count sketch; its cells are float32 arrays of shape (rows, columns).

    >>> sketch = CountSketch(rows=3, columns=64)
    >>> keys = np.array([5, 9], np.uint32)
    >>> sketch.decode_keys(sketch.encode_keys(keys, np.array([2.0, -1.0], np.float32)), keys)
    array([ 2., -1.], dtype=float32)
    """

    rows: int = 3  # Independent estimates of each element, 1 to 16
    columns: int = 256
    seed: int = 0
    hash: HashKind = "mix"  # Family of hash functions, see `s2sim.codecs.hashing`, of which ``seed`` chooses
    # What does the work; as it does not compare, it does not go into payloads either. The extra ``numba`` has the
    # ``mix`` hash only; cells and estimates are the same bit by bit, because each cell gets the same additions in the
    # same order.
    backend: Backend = field(default="numpy", compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MAX_ROWS:
            raise OptionError(f"a count sketch of {self.rows} rows was asked for; it can have 1 to {MAX_ROWS}")
        if not 1 <= self.columns < 1 << 32:
            raise OptionError(f"a count sketch of {self.columns} columns was asked for; it can have 1 to 2^32 - 1")
        if self.seed < 0:
            raise OptionError(f"seed {self.seed} of a count sketch is negative; it must be 0 or more")
        check_options(self, "count sketch")
        if self.backend == "numba" and self.hash != "mix":
            raise OptionError(f"backend numba has the mix hash only: hash {self.hash} needs backend numpy")

    def encode(self, array: Floats32) -> Payload:
        """Return the payload of ``array``, float32 of shape (n,); ranks whose payloads add up agree on all options."""
        cells, support = self.encode_dense(array)
        return Payload.of(self, len(array), cells=cells, support=support)

    def decode(self, payload: Payload) -> Floats32:
        """Return the estimates of the non-zero elements and zeros elsewhere, float32 of shape (n,)."""
        cells, support = payload.expect(self, "cells", "support")
        return self.decode_dense(cells, support, payload.elements)

    def empty(self) -> Floats32:
        """Return the sketch of nothing: zeros, float32 of shape (rows, columns)."""
        return np.zeros((self.rows, self.columns), np.float32)

    def encode_keys(self, keys: Words, values: Floats32) -> Floats32:
        """Return the cells of the elements ``keys`` (uint32, shape (k,)) with ``values`` (float32, shape (k,))."""
        keys = as_keys(keys)
        if values.dtype != np.float32 or values.shape != keys.shape:
            raise CodecError(f"{len(keys)} keys need as many float32 values; found {values.dtype} {values.shape}")
        cells = self.empty()
        self._add(cells, keys, values)
        return cells

    def encode_dense(self, array: Floats32) -> tuple[Floats32, Bits]:
        """Return the cells of the non-zero elements of a vector, and their bitmap, which is a by-product.

        The array is float32 of shape (n,); its keys are 0 to n - 1. The bitmap is that of
        `s2sim.codecs.bitmap.pack_nonzero`.
        """
        array = float32_vector(array, "a count sketch")
        check_key_space(0, len(array))
        cells, bitmap = self.empty(), pack_nonzero(array)
        for positions in iterate_positions(bitmap):
            self._add(cells, positions.astype(np.uint32), array.take(positions))
        return cells, bitmap

    def encode_rows(self, row_ids: Ints, values: Floats32, *, offset: int = 0, out: Floats32 | None = None) -> Floats32:
        """Return the cells of the elements of some rows of a matrix, added into ``out`` if it is given.

        Rows are int64 of shape (k,), their values float32 of shape (k, width). The element in column i of row r has the
        key offset + r * width + i: matrices that share a sketch need disjoint keys.
        """
        if values.ndim != 2 or values.dtype != np.float32 or len(values) != len(row_ids):
            raise CodecError(f"{len(row_ids)} rows need as many float32 rows; found {values.dtype} {values.shape}")
        cells = self.empty() if out is None else self._check_cells(out)
        for rows, keys in row_batches(row_ids, values.shape[1], offset):
            self._add(cells, keys, values[rows].ravel())
        return cells

    def decode_keys(self, cells: Floats32, keys: Words) -> Floats32:
        """Return the estimates of the elements ``keys`` (uint32, shape (k,)), float32 of shape (k,)."""
        return self._estimates(self._check_cells(cells), as_keys(keys))

    def decode_rows(self, cells: Floats32, row_ids: Ints, width: int, *, offset: int = 0) -> Floats32:
        """Return the estimates of all elements of some rows, float32 of shape (k, width): `encode_rows` undone."""
        cells = self._check_cells(cells)
        values = np.empty((len(row_ids), width), np.float32)
        for rows, keys in row_batches(row_ids, width, offset):
            values[rows] = self._estimates(cells, keys).reshape(-1, width)
        return values

    def decode_dense(self, cells: Floats32, bitmap: Bits, n: int) -> Floats32:
        """Return the estimates where ``bitmap`` has a bit set and zeros elsewhere, float32 of shape (n,).

        The inverse of `encode_dense`; cells and bitmap may be the sum and the OR of those of several ranks.
        """
        cells = self._check_cells(cells)
        check_bitmap(bitmap, n)
        check_key_space(0, n)
        array = np.zeros(n, np.float32)
        for positions in iterate_positions(bitmap):
            array[positions] = self._estimates(cells, positions.astype(np.uint32))
        return array

    def _check_cells(self, cells: Floats32) -> Floats32:
        if cells.dtype != np.float32 or cells.shape != (self.rows, self.columns):
            raise CodecError(
                f"the cells of this sketch are float32 of shape {(self.rows, self.columns)}; "
                f"found {cells.dtype} of shape {cells.shape}"
            )
        return cells

    def _add(self, cells: Floats32, keys: Words, values: Floats32) -> None:
        for start in range(0, len(keys), BATCH_KEYS):
            batch = slice(start, start + BATCH_KEYS)
            if self.backend == "numba":
                add_rows(cells, keys[batch], *mix_constants(self.rows, self.seed), values[batch])
                continue
            bits = values[batch].view(np.uint32)
            for row, (columns, sign_bits) in zip(cells, self._hashes(keys[batch]), strict=True):
                signed = np.bitwise_xor(sign_bits, bits, out=sign_bits)
                np.add.at(row, columns, signed.view(np.float32))

    def _estimates(self, cells: Floats32, keys: Words) -> Floats32:
        values = np.empty(len(keys), np.float32)
        for start in range(0, len(keys), BATCH_KEYS):
            batch = slice(start, start + BATCH_KEYS)
            if self.backend == "numba":
                estimates = [*read_rows(cells, keys[batch], *mix_constants(self.rows, self.seed))]
            else:
                estimates = []
                for row, (columns, sign_bits) in zip(cells, self._hashes(keys[batch]), strict=True):
                    # No column is out of range; looking for one would double the time.
                    signed = np.bitwise_xor(sign_bits, row.take(columns, mode="clip").view(np.uint32), out=sign_bits)
                    estimates.append(signed.view(np.float32))
            values[batch] = median(estimates)
        return values

    def _hashes(self, keys: Words) -> Iterator[tuple[Ints, Words]]:
        return hash_rows(self.hash, keys, self.rows, self.columns, self.seed)


def median(estimates: list[Floats32]) -> Floats32:
    """Return the element-wise median of several float32 arrays of one shape, which may be overwritten.

    An even number of them gives the mean of the two in the middle. Minima and maxima take a tenth of a sort's time.
    """
    count = len(estimates)
    if count == 1:
        return estimates[0]
    if count == 3:
        a, b, c = estimates
        low = np.minimum(a, b)
        np.maximum(a, b, out=a)
        np.minimum(a, c, out=a)
        return np.maximum(low, a, out=low)
    ordered = list(estimates)
    # A bubble sort of arrays: each pass carries the largest left to the end, until the middle is in its place.
    for end in range(count - 1, (count - 1) // 2 - 1, -1):
        for index in range(end):
            low = np.minimum(ordered[index], ordered[index + 1])
            np.maximum(ordered[index], ordered[index + 1], out=ordered[index + 1])
            ordered[index] = low
    middle = ordered[count // 2]
    if count % 2:
        return middle
    middle += ordered[count // 2 - 1]
    middle *= np.float32(0.5)
    return middle


def rms_relative_error(keys: float, columns: int) -> float:
    """Return the relative L2 error of a one-row sketch, as RMS over hash functions: sqrt(keys / columns).

    Every other element lands in an element's cell with probability 1 / columns and with a random sign, so the estimate
    is unbiased with variance (sum of the other squares) / columns (Charikar, Chen, Farach-Colton 2002, section 3).
    Summed over all elements read, of which ``keys`` counts zeros too, this is (keys - 1) / columns times the squared
    norm, whatever the values are.

    >>> rms_relative_error(10_000, 40_000)
    0.5
    """
    return sqrt(keys / columns)


def tail_probability(rows: int, columns: int, relative_error: float) -> float:
    """Return a bound on the probability that one element's error exceeds ``relative_error`` times the L2 norm.

    One row exceeds it with probability at most p = 1 / (columns relative_error^2) by Chebyshev's inequality. The median
    can only be off if half of the rows are, so independent rows give the binomial tail
    P(at least ceil(rows / 2) of rows), which falls exponentially with rows (Charikar, Chen, Farach-Colton 2002,
    section 3; K. G. Larsen, R. Pagh, J. Tetek, "CountSketches, Feature Hashing and the Median of Three",
    arXiv:2102.02193).

    >>> [round(tail_probability(rows, 400, 0.1), 5) for rows in (1, 3, 5)]
    [0.25, 0.15625, 0.10352]
    """
    p = min(1.0, 1.0 / (columns * relative_error**2))
    return sum(comb(rows, off) * p**off * (1.0 - p) ** (rows - off) for off in range(ceil(rows / 2), rows + 1))
