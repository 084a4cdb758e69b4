"""The codec of one vector that loses nothing but rounding: an exact sketch of its non-zeros, and their bitmap."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import numpy as np

from s2sim.arrays import Floats32, Ints16
from s2sim.codecs.bitmap import pack_positions, unpack_positions
from s2sim.codecs.exact_sketch import CellType, ExactSketch
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.payload import Combination, Payload, float32_vector
from s2sim.codecs.peel_table import CELLS_PER_KEY
from s2sim.codecs.quantize import exponents_for
from s2sim.errors import CodecError, OptionError

_BOUND = 128.0


@dataclass(frozen=True, slots=True)
class PeeledSketchCodec:
    """The codec that sends a sketch to be peeled and a bitmap, both of which ranks can all-reduce."""

    keys: int = 600  # Keys to provide for: non-zeros of the union of all ranks
    bound: float = _BOUND  # Bound on the magnitude of an element's sum over ranks; float32 cells have none
    cells: float = CELLS_PER_KEY  # Cells for each key; the few that a small sketch needs beyond that are added
    dtype: CellType = "int32"  # Type of the cells
    seed: int = 0

    name: ClassVar[str] = "peeled-sketch"
    summary: ClassVar[str] = (
        "fixed-point sums of the non-zero elements, three cells each, to be peeled, and their bitmap"
    )
    source: ClassVar[str] = (
        "Goodrich and Mitzenmacher, Invertible Bloom lookup tables, Allerton 2011; Li et al., arXiv:2402.07529"
    )
    combine: ClassVar[Combination] = {"cells": "sum", "support": "or"}

    def __post_init__(self) -> None:
        if self.keys < 0:
            raise OptionError(f"{self.name}: keys={self.keys} is negative")
        if not (self.bound > 0 and isfinite(self.bound)):
            raise OptionError(f"{self.name}: bound={self.bound} is not a number above 0")
        if self.dtype == "float32" and self.bound != _BOUND:
            raise OptionError(f"{self.name}: float32 cells have no bound, so bound changes nothing: leave it out")
        self._sketch()

    def encode(self, array: Floats32) -> Payload:
        """Return the payload of ``array``, float32 of shape (n,)."""
        vector = float32_vector(array, self.name)
        check_key_space(0, len(vector))
        keys = np.flatnonzero(vector != 0)
        values, sketch = vector[keys, None], self._sketch()
        if sketch.groups and (largest := sketch.maxima(keys, values).max()) > self.bound:
            raise CodecError(f"a value of magnitude {largest:.6g} is larger than bound={self.bound:g}: raise it")
        cells = sketch.encode(keys, values, self._exponents(sketch))
        return Payload.of(self, len(vector), cells=cells[:, :, 0], support=pack_positions(keys, len(vector)))

    def decode(self, payload: Payload) -> Floats32:
        """Return the non-zero elements, but for rounding, and zeros elsewhere, float32 of shape (n,).

        `CodecError` also if peeling gets stuck, or if cells and bitmap do not belong together.
        """
        cells, support = payload.expect(self, "cells", "support")
        check_key_space(0, payload.elements)
        keys, sketch = unpack_positions(support, payload.elements), self._sketch()
        decoded = sketch.decode(cells[..., None], keys, self._exponents(sketch))
        if len(decoded.left):
            raise CodecError(
                f"{len(decoded.left)} of {len(keys)} keys cannot be read from {cells.size} cells: "
                "encode with keys= for the union of all ranks, or with more cells"
            )
        if sketch.groups and not decoded.clean:
            raise CodecError(
                "the cells hold more than the elements of the bitmap: cells and bitmap do not belong together"
            )
        array = np.zeros(payload.elements, np.float32)
        array[keys] = decoded.values[:, 0]
        return array

    def _sketch(self) -> ExactSketch:
        return ExactSketch.for_keys(self.keys, 1, self.dtype, cells_per_key=self.cells, seed=self.seed)

    def _exponents(self, sketch: ExactSketch) -> Ints16 | None:
        return exponents_for(np.full(sketch.groups, self.bound), self.dtype) if sketch.groups else None
