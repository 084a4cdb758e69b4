"""The count sketch: a linear summary of a vector from which any of its elements can be estimated.

M. Charikar, K. Chen, M. Farach-Colton, "Finding frequent items in data streams", ICALP 2002. Row j adds s_j(key) value
to its cell h_j(key); an element's estimate is the median over rows of s_j(key) cell[j, h_j(key)]. Sketches of the same
shape and seed add up: the sketch of a sum is the sum of the sketches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.base import float32_vector
from s2sim.codecs.bitmap import CHUNK_ELEMENTS, bitmap_bytes, check_bitmap, pack_nonzero, unpack_positions
from s2sim.codecs.hashing import MAX_ROWS, HashKind, as_keys, check_key_space, hash_rows
from s2sim.errors import CodecError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_CHUNK_KEYS = 1 << 16
"""Keys hashed at once; half a megabyte for each 64-bit temporary keeps all of them in a core's second-level cache."""


@dataclass(frozen=True, slots=True)
class CountSketch:
    """Shape and hash functions of a count sketch; its cells are float32 arrays of shape (rows, columns).

    Attributes
    ----------
    rows : int
        Independent estimates of each element, 1 to 16.
    columns : int
        Cells in each row.
    seed : int
        Chooses the hash functions.
    hash : {"mix", "modulo", "product"}
        Their family, see `s2sim.codecs.hashing`.

    Examples
    --------
    >>> sketch = CountSketch(rows=3, columns=64)
    >>> keys = np.array([5, 9], np.uint32)
    >>> sketch.decode_keys(sketch.encode_keys(keys, np.array([2.0, -1.0], np.float32)), keys)
    array([ 2., -1.], dtype=float32)
    """

    rows: int
    columns: int
    seed: int = 0
    hash: HashKind = "mix"

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MAX_ROWS:
            raise OptionError(f"a count sketch of {self.rows} rows was asked for; it can have 1 to {MAX_ROWS}")
        if not 1 <= self.columns < 1 << 32:
            raise OptionError(f"a count sketch of {self.columns} columns was asked for; it can have 1 to 2^32 - 1")
        if self.seed < 0:
            raise OptionError(f"seed {self.seed} of a count sketch is negative; it must be 0 or more")
        if self.hash not in ("mix", "modulo", "product"):
            raise OptionError(f"hash {self.hash!r} of a count sketch is not one of mix, modulo, product")

    def empty(self) -> NDArray[np.float32]:
        """Return the sketch of nothing: zeros, float32 of shape (rows, columns)."""
        return np.zeros((self.rows, self.columns), np.float32)

    def encode_keys(self, keys: NDArray[np.uint32], values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the cells of the elements ``keys`` (uint32, shape (k,)) with ``values`` (float32, shape (k,))."""
        keys = as_keys(keys)
        if values.dtype != np.float32 or values.shape != keys.shape:
            raise CodecError(f"{len(keys)} keys need as many float32 values; found {values.dtype} {values.shape}")
        cells = self.empty()
        for start in range(0, len(keys), _CHUNK_KEYS):
            self._add(cells, keys[start : start + _CHUNK_KEYS], values[start : start + _CHUNK_KEYS])
        return cells

    def encode_dense(self, array: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Return the cells of the non-zero elements of a vector, and their bitmap, which is a by-product.

        Parameters
        ----------
        array : float32 array, shape (n,)
            The vector; its keys are 0 to n - 1. It is streamed through once.

        Returns
        -------
        cells : float32 array, shape (rows, columns)
        bitmap : uint8 array, shape (ceil(n / 8),)
            As `s2sim.codecs.bitmap.pack_nonzero` makes it.
        """
        array = float32_vector(array, "a count sketch")
        n = len(array)
        check_key_space(0, n)
        cells = self.empty()
        bitmap = np.empty(bitmap_bytes(n), np.uint8)
        for start in range(0, n, CHUNK_ELEMENTS):
            piece = array[start : start + CHUNK_ELEMENTS]
            packed = pack_nonzero(piece)
            bitmap[start // 8 : start // 8 + len(packed)] = packed
            positions = unpack_positions(packed, len(piece))
            for first in range(0, len(positions), _CHUNK_KEYS):
                part = positions[first : first + _CHUNK_KEYS]
                self._add(cells, _shifted_keys(part, start), piece.take(part))
        return cells, bitmap

    def encode_rows(
        self,
        row_ids: NDArray[np.int64],
        values: NDArray[np.float32],
        *,
        offset: int = 0,
        out: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Return the cells of the elements of some rows of a matrix.

        Parameters
        ----------
        row_ids : int64 array, shape (k,)
            Which rows of the matrix.
        values : float32 array, shape (k, width)
            Their values; the element in column i of row r has the key offset + r * width + i.
        offset : int
            Key of the matrix's first element: matrices that share a sketch need disjoint keys.
        out : float32 array, shape (rows, columns), optional
            Cells to add into.

        Returns
        -------
        float32 array, shape (rows, columns)
            ``out`` if it was given.
        """
        if values.ndim != 2 or values.dtype != np.float32 or len(values) != len(row_ids):
            raise CodecError(f"{len(row_ids)} rows need as many float32 rows; found {values.dtype} {values.shape}")
        cells = self.empty() if out is None else self._check_cells(out)
        for rows, columns, keys in _row_chunks(row_ids, values.shape[1], offset):
            self._add(cells, keys, values[rows, columns].ravel())
        return cells

    def decode_keys(self, cells: NDArray[np.float32], keys: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Return the estimates of the elements ``keys`` (uint32, shape (k,)), float32 of shape (k,)."""
        cells = self._check_cells(cells)
        keys = as_keys(keys)
        values = np.empty(len(keys), np.float32)
        for start in range(0, len(keys), _CHUNK_KEYS):
            values[start : start + _CHUNK_KEYS] = self._estimate(cells, keys[start : start + _CHUNK_KEYS])
        return values

    def decode_rows(
        self, cells: NDArray[np.float32], row_ids: NDArray[np.int64], width: int, *, offset: int = 0
    ) -> NDArray[np.float32]:
        """Return the estimates of all elements of some rows; the inverse of `encode_rows`.

        Parameters
        ----------
        cells : float32 array, shape (rows, columns)
            The sketch.
        row_ids : int64 array, shape (k,)
            Which rows of the matrix.
        width : int
            Elements in one of its rows.
        offset : int
            Key of the matrix's first element.

        Returns
        -------
        float32 array, shape (k, width)
        """
        cells = self._check_cells(cells)
        values = np.empty((len(row_ids), width), np.float32)
        for rows, columns, keys in _row_chunks(row_ids, width, offset):
            block = values[rows, columns]
            block[...] = self._estimate(cells, keys).reshape(block.shape)
        return values

    def decode_dense(self, cells: NDArray[np.float32], bitmap: NDArray[np.uint8], n: int) -> NDArray[np.float32]:
        """Return the estimates where ``bitmap`` has a bit set and zeros elsewhere; the inverse of `encode_dense`.

        Parameters
        ----------
        cells : float32 array, shape (rows, columns)
            The sketch, or the sum of several.
        bitmap : uint8 array, shape (ceil(n / 8),)
            The support, or the OR of several.
        n : int
            Number of elements.

        Returns
        -------
        float32 array, shape (n,)
        """
        cells = self._check_cells(cells)
        check_bitmap(bitmap, n)
        check_key_space(0, n)
        array = np.zeros(n, np.float32)
        for start in range(0, n, CHUNK_ELEMENTS):
            piece = array[start : start + CHUNK_ELEMENTS]
            positions = unpack_positions(bitmap[start // 8 : start // 8 + bitmap_bytes(len(piece))], len(piece))
            for first in range(0, len(positions), _CHUNK_KEYS):
                part = positions[first : first + _CHUNK_KEYS]
                piece[part] = self._estimate(cells, _shifted_keys(part, start))
        return array

    def _check_cells(self, cells: NDArray[np.float32]) -> NDArray[np.float32]:
        if cells.dtype != np.float32 or cells.shape != (self.rows, self.columns):
            raise CodecError(
                f"the cells of this sketch are float32 of shape {(self.rows, self.columns)}; "
                f"found {cells.dtype} of shape {cells.shape}"
            )
        return cells

    def _add(self, cells: NDArray[np.float32], keys: NDArray[np.uint32], values: NDArray[np.float32]) -> None:
        bits = values.view(np.uint32)
        for row, (columns, sign_bits) in zip(
            cells, hash_rows(self.hash, keys, self.rows, self.columns, self.seed), strict=True
        ):
            signed = np.bitwise_xor(sign_bits, bits, out=sign_bits)
            np.add.at(row, columns, signed.view(np.float32))

    def _estimate(self, cells: NDArray[np.float32], keys: NDArray[np.uint32]) -> NDArray[np.float32]:
        estimates = []
        for row, (columns, sign_bits) in zip(
            cells, hash_rows(self.hash, keys, self.rows, self.columns, self.seed), strict=True
        ):
            signed = np.bitwise_xor(sign_bits, row.take(columns).view(np.uint32), out=sign_bits)
            estimates.append(signed.view(np.float32))
        return median(estimates)


def median(estimates: list[NDArray[np.float32]]) -> NDArray[np.float32]:
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


def _shifted_keys(positions: NDArray[np.int64], start: int) -> NDArray[np.uint32]:
    keys = positions.astype(np.uint32)
    keys += np.uint32(start)
    return keys


def _row_chunks(
    row_ids: NDArray[np.int64], width: int, offset: int
) -> Iterator[tuple[slice, slice, NDArray[np.uint32]]]:
    """Yield (slice of ``row_ids``, slice of columns, their element keys row by row), about `_CHUNK_KEYS` at a time."""
    if not len(row_ids) or not width:
        return
    check_key_space(offset + int(row_ids.min()) * width, offset + (int(row_ids.max()) + 1) * width)
    rows_at_once = max(1, _CHUNK_KEYS // width)
    columns_at_once = min(width, _CHUNK_KEYS)
    for first_row in range(0, len(row_ids), rows_at_once):
        rows = slice(first_row, first_row + rows_at_once)
        # Keys are below 2^32, so arithmetic modulo 2^32 is exact for them.
        row_keys = (row_ids[rows] * width + offset).astype(np.uint32)
        for first_column in range(0, width, columns_at_once):
            columns = slice(first_column, min(width, first_column + columns_at_once))
            column_keys: NDArray[np.uint32] = np.arange(columns.start, columns.stop, dtype=np.uint32)
            yield rows, columns, np.add.outer(row_keys, column_keys).ravel()
