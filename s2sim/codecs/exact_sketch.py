"""A sketch from which every key's sum over ranks is read exactly: a table that is peeled, with fixed-point cells.

Like a count sketch it adds up over ranks, and the keys of the sum are known from a merged bitmap; unlike one it has no
signs and no median, and loses nothing but what fixed point rounds off. A key is an element or a row of several values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Floats32, Ints, Ints16, Words
from s2sim.codecs import bitmap, hashing, peeling, quantize
from s2sim.codecs.payload import DescribedCodec, Payload, float32_vector
from s2sim.codecs.peeling import CELLS_PER_KEY, PeelTable
from s2sim.errors import CodecError, OptionError
from s2sim.options import check_options

CellType: TypeAlias = Literal["int32", "int64", "float32"]

_CHUNK_VALUES = 1 << 16
"""Values that are encoded at once: temporaries of half a megabyte stay in a core's second-level cache."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedSums:
    """The sums that peeling reads."""

    values: Floats32  # The sums, in the order of the keys; zeros for those that are left
    left: Ints  # Indices of the keys that could not be read, increasing: their values must come in another message
    rounds: int  # Rounds that waited for each other, of the block that had most
    # Whether the keys that were read account for all that the cells held; only integers do, and only if none is left
    clean: bool


@dataclass(frozen=True, slots=True)
class ExactSketch:
    """Shape, hash functions and number type of an exact sketch; all ranks must agree on them before they encode.

    >>> from s2sim.codecs.quantize import exponents_for
    >>> sketch = ExactSketch.for_keys(2)
    >>> keys, values = np.array([5, 9], np.uint32), np.array([[2.0], [-1.0]], np.float32)
    >>> exponents = exponents_for(sketch.maxima(keys, values), "int32")
    >>> sketch.decode(sketch.encode(keys, values, exponents), keys, exponents).values.tolist()
    [[2.0], [-1.0]]
    """

    table: PeelTable  # Where keys go
    width: int = 1  # Values of each key
    dtype: CellType = "int32"  # Type of the cells. The integers hold fixed-point numbers, see `s2sim.codecs.quantize`.

    def __post_init__(self) -> None:
        check_options(self, "exact sketch")
        if self.width < 1:
            raise OptionError(f"keys of {self.width} values were asked for; a key has at least 1")

    @classmethod
    def for_keys(
        cls,
        keys: float,
        width: int = 1,
        dtype: CellType = "int32",
        *,
        cells_per_key: float = CELLS_PER_KEY,
        seed: int = 0,
    ) -> Self:
        """Return the sketch for a union of about ``keys`` keys of ``width`` values each."""
        return cls(PeelTable.for_keys(keys, cells_per_key=cells_per_key, seed=seed), width, dtype)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the cells: blocks, cells of a block, values of a key."""
        return self.table.blocks, self.table.block_cells, self.width

    @property
    def groups(self) -> int:
        """How many groups of keys have a fixed-point unit of their own; none if cells are float32."""
        return 0 if self.dtype == "float32" else self.table.blocks * self._groups_per_block

    @property
    def _groups_per_block(self) -> int:
        return quantize.groups_per_block(self.table.block_cells / CELLS_PER_KEY, self.width)

    def group_of(self, keys: NDArray[Any]) -> Ints:
        """Return the group of each of ``keys`` (uint32, shape (k,)), int64 of shape (k,)."""
        return self.table.parts(hashing.as_keys(keys), self.groups)

    def maxima(self, keys: NDArray[Any], values: Floats32) -> Floats:
        """Return the largest magnitude of a rank's ``values`` in each group; see `s2sim.codecs.quantize`."""
        if not self.groups:
            raise CodecError("float32 cells have no units to agree on: there are no maxima to exchange")
        keys = hashing.as_keys(keys)
        return quantize.group_maxima(self._check_values(keys, values), self.group_of(keys), self.groups)

    def encode(self, keys: NDArray[Any], values: Floats32, exponents: Ints16 | None = None) -> NDArray[Any]:
        """Return the cells of some keys, of shape (blocks, cells of a block, width); cells of ranks add up.

        The ``keys``, each once, are uint32 of shape (k,), their ``values`` float32 of shape (k, width). Integers need
        the binary ``exponents`` of the groups' scales, int16 of shape (groups,): `s2sim.codecs.quantize.exponents_for`.
        """
        cells = np.zeros(self.shape, self.dtype)
        keys = hashing.as_keys(keys)
        for block, columns, part in self._parts(keys, values, exponents, self.table.by_block(keys)):
            peeling.add_values(cells[block], columns, part)
        return cells

    def encode_touched(
        self, keys: NDArray[Any], values: Floats32, exponents: Ints16 | None = None
    ) -> tuple[Ints, NDArray[Any]]:
        """Return which cells, counted over all blocks, some keys go to, and what `encode` has there: all else is zero.

        Where a rank holds few keys of many values this is a small part of the cells. The numbers of the cells are int64
        of shape (t,), strictly increasing; the cells have the shape (t, width).
        """
        keys = hashing.as_keys(keys)
        blocks = list(self.table.by_block(keys))
        touched = np.zeros((self.table.blocks, self.table.block_cells), np.bool_)
        for own, (_, columns) in zip(touched, blocks, strict=True):
            own[columns] = True
        place = np.cumsum(touched).reshape(touched.shape) - 1
        numbers = np.flatnonzero(touched)
        cells = np.zeros((len(numbers), self.width), self.dtype)
        for block, columns, part in self._parts(keys, values, exponents, blocks):
            peeling.add_values(cells, place[block][columns], part)
        return numbers, cells

    def _parts(
        self, keys: Words, values: Floats32, exponents: Ints16 | None, blocks: Iterable[tuple[Ints, Ints]]
    ) -> Iterator[tuple[int, Ints, NDArray[Any]]]:
        """Yield the block of some keys, their columns there, shape (3, k), and their values as cells hold them."""
        self._check_values(keys, values)
        self._check_exponents(exponents)
        step = max(1, _CHUNK_VALUES // self.width)
        for block, (places, columns) in enumerate(blocks):
            for start in range(0, len(places), step):
                chunk = places[start : start + step]
                part = peeling.drop_unit_axis(values).take(chunk, axis=0).reshape(len(chunk), self.width)
                if exponents is not None:
                    part = quantize.to_fixed(part, self._exponents(exponents, block, keys, chunk), self.dtype)
                yield block, columns[:, start : start + step], part

    def decode(self, cells: NDArray[Any], keys: NDArray[Any], exponents: Ints16 | None = None) -> DecodedSums:
        """Return the sums of all keys that were added to the cells, which are not changed.

        The ``cells`` are the sum of what ranks encoded with these ``exponents``, and ``keys``, uint32 of shape (k,),
        the union of theirs. A key that was not added counts as zeros.
        """
        keys = hashing.as_keys(keys)
        self._check_exponents(exponents)
        if cells.dtype != self.dtype or cells.shape != self.shape:
            raise CodecError(
                f"the cells of this sketch are {self.dtype} of shape {self.shape}; found {cells.dtype} {cells.shape}"
            )
        if self.width == 1 and self.table.blocks > 1:
            return self._decode_in_place(cells, keys, exponents)
        result = np.empty((len(keys), self.width), np.float32)
        left, rounds, clean = [np.empty(0, np.int64)], 0, True
        for block, (places, columns) in enumerate(self.table.by_block(keys)):
            units = None if exponents is None else self._exponents(exponents, block, keys, places)
            # All keys of a single block are where they were: copying is several times as fast as scattering.
            where = places if self.table.blocks > 1 else slice(None)
            for sums in peeling.read_values(columns, cells[block]):
                values = sums.values if units is None else quantize.from_fixed(sums.values, units)
                peeling.drop_unit_axis(result[:, sums.part])[where] = peeling.drop_unit_axis(values)
                clean = clean and sums.clean
            rounds = max(rounds, sums.rounds)
            if sums.read < len(places):
                left.append(places.take(self._stuck(columns)))
        return DecodedSums(result, np.sort(np.concatenate(left)), rounds, clean)

    def _decode_in_place(self, cells: NDArray[Any], keys: Words, exponents: Ints16 | None) -> DecodedSums:
        """Decode keys of a single value; to spare memory, the results' array first holds the keys sorted by block."""
        result = np.empty((len(keys), 1), np.float32)
        numbers = result[:, 0].view(np.uint32)
        numbers[...] = keys
        runs = self.table.sorted_runs(keys, numbers)
        stuck: list[Words] = []
        rounds, clean = 0, True
        for block in range(self.table.blocks):
            own = runs.take(block)
            columns = self.table.columns_of(own)
            (sums,) = peeling.read_values(columns, cells[block])
            units = None if exponents is None else self._exponents(exponents, block, own, slice(None))
            values = sums.values if units is None else quantize.from_fixed(sums.values, units)
            runs.put(block, values[:, 0].view(np.uint32))
            rounds, clean = max(rounds, sums.rounds), clean and sums.clean
            if sums.read < len(own):
                stuck.append(own.take(self._stuck(columns)))
        self.table.restore(keys, numbers)
        left = np.flatnonzero(np.isin(keys, np.concatenate(stuck))) if stuck else np.empty(0, np.int64)
        return DecodedSums(result, left, rounds, clean)

    def _stuck(self, columns: Ints) -> Ints:
        # Few blocks get stuck: peeling these a second time, to find out where, costs all others nothing.
        return peeling.peel_order(columns, self.table.block_cells).left(columns.shape[1])

    def _exponents(self, exponents: Ints16, block: int, keys: Words, places: Ints | slice) -> Ints16:
        """Return the exponents of the keys at ``places``, all in ``block``: shape (k,), or (1,) for all."""
        if self._groups_per_block == 1:
            return exponents[block : block + 1]
        return exponents.take(self.group_of(keys[places]))

    def _check_values(self, keys: Words, values: Floats32) -> Floats32:
        if values.dtype != np.float32 or values.shape != (len(keys), self.width):
            raise CodecError(
                f"{len(keys)} keys of this sketch have float32 values of shape {(len(keys), self.width)}; "
                f"found {values.dtype} {values.shape}"
            )
        return values

    def _check_exponents(self, exponents: Ints16 | None) -> None:
        found = 0 if exponents is None else len(exponents)
        if found != self.groups:
            raise CodecError(f"{self.dtype} cells in {self.groups} groups need as many exponents; found {found}")


_BOUND = 128.0


@dataclass(frozen=True, slots=True)
class PeeledSketchCodec(DescribedCodec):
    """The codec that sends a sketch to be peeled and a bitmap, both of which ranks can all-reduce."""

    keys: int = 600  # Keys to provide for: non-zeros of the union of all ranks
    bound: float = _BOUND  # Bound on the magnitude of an element's sum over ranks; float32 cells have none
    cells: float = CELLS_PER_KEY  # Cells for each key; the few that a small sketch needs beyond that are added
    dtype: CellType = "int32"  # Type of the cells
    seed: int = 0

    def __post_init__(self) -> None:
        if self.keys < 0:
            raise OptionError(f"{self.name}: keys={self.keys} is negative")
        if not (self.bound > 0 and isfinite(self.bound)):
            raise OptionError(f"{self.name}: bound={self.bound} is not a number above 0")
        if self.dtype == "float32" and self.bound != _BOUND:
            raise OptionError(f"{self.name}: float32 cells have no bound, so bound changes nothing: leave it out")
        self._sketch()

    def encode(self, array: Floats32) -> Payload:
        vector = float32_vector(array, self.name)
        hashing.check_key_space(0, len(vector))
        keys = np.flatnonzero(vector != 0)
        values, sketch = vector[keys, None], self._sketch()
        if sketch.groups and (largest := sketch.maxima(keys, values).max()) > self.bound:
            raise CodecError(f"a value of magnitude {largest:.6g} is larger than bound={self.bound:g}: raise it")
        cells = sketch.encode(keys, values, self._exponents(sketch))
        return Payload.of(self, len(vector), cells=cells[:, :, 0], support=bitmap.pack_positions(keys, len(vector)))

    def decode(self, payload: Payload) -> Floats32:
        """Return the non-zero elements, but for rounding, and zeros elsewhere, float32 of shape (n,).

        `CodecError` also if peeling gets stuck, or if cells and bitmap do not belong together.
        """
        cells, support = payload.expect(self, "cells", "support")
        hashing.check_key_space(0, payload.elements)
        keys, sketch = bitmap.unpack_positions(support, payload.elements), self._sketch()
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
        return quantize.exponents_for(np.full(sketch.groups, self.bound), self.dtype) if sketch.groups else None
