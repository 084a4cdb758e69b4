"""The S2 codec of one vector: a count sketch of its non-zero elements, and the bitmap of where they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from s2sim.codecs.base import Combination, float32_vector
from s2sim.codecs.bitmap import check_bitmap, count_nonzero
from s2sim.codecs.count_sketch import Backend, CountSketch
from s2sim.codecs.hashing import MAX_ROWS, HashKind
from s2sim.codecs.payload import Payload
from s2sim.errors import CodecError, OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def columns_for(cells: float, keys: float, rows: int) -> int:
    """Return the columns of a sketch that has ``cells`` cells for each of ``keys``, over all ``rows`` together.

    >>> columns_for(2.0, 300, 3)
    200
    """
    return max(1, ceil(cells * keys / rows))


@dataclass(frozen=True, slots=True)
class SketchWithBitmap:
    """The codec that sends a count sketch and a bitmap, both of which ranks can all-reduce.

    Attributes
    ----------
    rows : int
        Rows of the sketch.
    cells : float
        Cells of the sketch, rows x columns, for each non-zero element of the vector.
    columns : int or None
        Columns outright, instead of ``cells``; ranks whose payloads are to be merged must agree on them.
    seed : int
        Chooses the hash functions.
    hash : {"mix", "modulo", "product"}
        Their family.
    backend : {"numpy", "numba"}
        What does the work; payloads are the same, and either reads them.
    """

    rows: int = 3
    cells: float = 2.0
    columns: int | None = None
    seed: int = 0
    hash: HashKind = "mix"
    # What does not compare does not go into payloads either.
    backend: Backend = field(default="numpy", compare=False)

    name: ClassVar[str] = "count-sketch"
    summary: ClassVar[str] = "a count sketch of the non-zero elements and the bitmap of where they are"
    source: ClassVar[str] = "Charikar, Chen, Farach-Colton, ICALP 2002; Ge et al., S2 Reducer, arXiv:2110.02140"
    combine: ClassVar[Combination] = {"cells": "sum", "support": "or"}

    def __post_init__(self) -> None:
        if not 0 < self.cells < float("inf"):
            raise OptionError(f"count-sketch: cells={self.cells} is not a positive number")
        if not 1 <= self.rows <= MAX_ROWS:
            raise OptionError(f"count-sketch: rows={self.rows} does not lie between 1 and {MAX_ROWS}")
        if self.columns is not None and self.cells != SketchWithBitmap.__dataclass_fields__["cells"].default:
            raise OptionError("count-sketch: columns= sets the size outright, cells= would change nothing: give one")
        self._sketch(1 if self.columns is None else self.columns)

    def _sketch(self, columns: int) -> CountSketch:
        return CountSketch(self.rows, columns, self.seed, self.hash, backend=self.backend)

    def encode(self, array: NDArray[np.float32]) -> Payload:
        """Return the payload of ``array``, float32 of shape (n,)."""
        vector = float32_vector(array, self.name)
        columns = self.columns
        if columns is None:
            columns = columns_for(self.cells, count_nonzero(vector), self.rows)
        cells, support = self._sketch(columns).encode_dense(vector)
        return Payload.of(self, len(vector), cells=cells, support=support)

    def decode(self, payload: Payload) -> NDArray[np.float32]:
        """Return the estimates of the non-zero elements and zeros elsewhere, float32 of shape (n,)."""
        cells, support = payload.expect(self, "cells", "support")
        check_bitmap(support, payload.elements)
        if cells.ndim != 2 or cells.shape[0] != self.rows or not cells.shape[1]:
            raise CodecError(f"the cells of {self.name} have {self.rows} rows; found an array of shape {cells.shape}")
        return self._sketch(cells.shape[1]).decode_dense(cells, support, payload.elements)
