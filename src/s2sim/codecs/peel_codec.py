"""The codec of one vector that loses nothing but rounding: an exact sketch of its non-zeros, and their bitmap."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.codecs.base import Combination, float32_vector
from s2sim.codecs.bitmap import CHUNK_ELEMENTS, check_bitmap, count, pack_nonzero, position_parts
from s2sim.codecs.exact_sketch import CellType, ExactSketch
from s2sim.codecs.fixed_point import MAX_EXPONENT, exponents_for
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.payload import Payload
from s2sim.codecs.peel_table import CELLS_PER_KEY, THIRDS, PeelTable
from s2sim.errors import CodecError, OptionError

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

_GROWTH = 1.1
"""What the cells a key are multiplied by if a vector's keys get stuck."""


@dataclass(frozen=True, slots=True)
class PeeledSketch:
    """The codec that sends a sketch to be peeled and a bitmap, both of which ranks can all-reduce.

    Attributes
    ----------
    cells : float
        Cells for each key; the few that a small sketch needs beyond that are added.
    keys : int or None
        Keys to provide for: non-zeros of the union, if payloads are to be merged. None: those of the vector, with more
        cells should they get stuck.
    bound : float or None
        Bound on the magnitude of an element's sum, if payloads are to be merged. None: the vector's own maxima.
    dtype : {"int32", "int64", "float32"}
        Type of the cells.
    seed : int
        Chooses the hash functions.
    """

    cells: float = CELLS_PER_KEY
    keys: int | None = None
    bound: float | None = None
    dtype: CellType = "int32"
    seed: int = 0

    name: ClassVar[str] = "peeled-sketch"
    summary: ClassVar[str] = (
        "fixed-point sums of the non-zero elements, three cells each, to be peeled, and their bitmap"
    )
    source: ClassVar[str] = (
        "Goodrich and Mitzenmacher, Invertible Bloom lookup tables, Allerton 2011; Li et al., arXiv:2402.07529"
    )
    combine: ClassVar[Combination] = {"cells": "sum", "support": "or", "exponents": "max"}

    def __post_init__(self) -> None:
        if self.keys is not None and self.keys < 0:
            raise OptionError(f"{self.name}: keys={self.keys} is negative")
        if self.bound is not None and self.dtype == "float32":
            raise OptionError(f"{self.name}: float32 cells have no bound, so bound changes nothing: leave it out")
        if self.bound is not None and not (self.bound > 0 and isfinite(self.bound)):
            raise OptionError(f"{self.name}: bound={self.bound} is not a number above 0")
        self._sketch(0 if self.keys is None else self.keys, self.cells)

    def encode(self, array: NDArray[np.float32]) -> Payload:
        """Return the payload of ``array``, float32 of shape (n,)."""
        vector = float32_vector(array, self.name)
        check_key_space(0, len(vector))
        support = pack_nonzero(vector)
        keys = _keys_of(support)
        values = np.empty((len(keys), 1), np.float32)
        for chunk in _chunks_of(keys):
            values[chunk, 0] = vector.take(keys[chunk])
        sketch = self._sketch(len(keys) if self.keys is None else self.keys, self.cells)
        if self.keys is None:
            cells_per_key = self.cells
            while len(sketch.unreadable(keys)):
                cells_per_key *= _GROWTH
                sketch = self._sketch(len(keys), cells_per_key)
        exponents = self._exponents(sketch, keys, values)
        cells = sketch.encode(keys, values, exponents)
        units = np.empty(0, np.int16) if exponents is None else exponents
        # Merged by max, the two rows are each other's negative only if all ranks have encoded in the same units.
        return Payload.of(self, len(vector), cells=cells[:, :, 0], support=support, exponents=np.stack((units, -units)))

    def decode(self, payload: Payload) -> NDArray[np.float32]:
        """Return the non-zero elements, but for rounding, and zeros elsewhere, float32 of shape (n,).

        Raises
        ------
        CodecError
            Also if peeling gets stuck, or if payloads were merged that do not fit.
        """
        cells, support, units = payload.expect(self, "cells", "support", "exponents")
        check_bitmap(support, payload.elements)
        check_key_space(0, payload.elements)
        sketch = self._sketch_of(cells)
        exponents = self._check_units(units, sketch)
        keys = _keys_of(support)
        decoded = sketch.decode(cells[:, :, None], keys, exponents)
        if len(decoded.left):
            raise CodecError(
                f"{len(decoded.left)} of {len(keys)} keys cannot be read from {cells.size} cells: "
                "encode with more cells, or with keys= for the union of all ranks"
            )
        if exponents is not None and not decoded.clean:
            raise CodecError(
                "the cells hold more than the elements of the bitmap: cells and bitmap do not belong together"
            )
        array = np.zeros(payload.elements, np.float32)
        for chunk in _chunks_of(keys):
            array[keys[chunk]] = decoded.values[chunk, 0]
        return array

    def _sketch(self, keys: int, cells_per_key: float) -> ExactSketch:
        return ExactSketch.for_keys(keys, 1, self.dtype, cells_per_key=cells_per_key, seed=self.seed)

    def _exponents(
        self, sketch: ExactSketch, keys: NDArray[np.uint32], values: NDArray[np.float32]
    ) -> NDArray[np.int16] | None:
        if not sketch.groups:
            return None
        maxima = sketch.maxima(keys, values)
        if self.bound is None:
            return exponents_for(maxima, self.dtype)
        if maxima.max() > self.bound:
            raise CodecError(f"a value of magnitude {maxima.max():.6g} is larger than bound={self.bound:g}: raise it")
        return exponents_for(np.full(sketch.groups, self.bound), self.dtype)

    def _sketch_of(self, cells: NDArray[Any]) -> ExactSketch:
        if cells.ndim != 2 or not cells.size or cells.shape[1] % THIRDS:
            raise CodecError(f"the cells of {self.name} are blocks of three equal parts; found the shape {cells.shape}")
        blocks, columns = cells.shape[0], cells.shape[1] // THIRDS
        try:
            return ExactSketch(PeelTable(blocks, columns, self.seed), 1, self.dtype)
        except OptionError as error:
            raise CodecError(f"the cells of this {self.name} have the impossible shape {cells.shape}") from error

    def _check_units(self, units: NDArray[Any], sketch: ExactSketch) -> NDArray[np.int16] | None:
        if units.dtype != np.int16 or units.shape != (2, sketch.groups):
            raise CodecError(
                f"{sketch.groups} groups have int16 exponents of shape (2, {sketch.groups}); "
                f"found {units.dtype} {units.shape}"
            )
        if (units[0] != -units[1]).any() or (units > MAX_EXPONENT).any():
            raise CodecError("ranks have encoded in different units: give all of them the same bound")
        return units[0] if sketch.groups else None


def _keys_of(support: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the positions of the set bits, few of them at once as the 64-bit numbers they come in."""
    keys, done = np.empty(count(support), np.uint32), 0
    for positions in position_parts(support):
        keys[done : done + len(positions)] = positions
        done += len(positions)
    return keys


def _chunks_of(keys: NDArray[np.uint32]) -> list[slice]:
    """Return slices of ``keys`` of at most `CHUNK_ELEMENTS`: as indices, keys take eight bytes each."""
    return [slice(start, start + CHUNK_ELEMENTS) for start in range(0, len(keys), CHUNK_ELEMENTS)]
