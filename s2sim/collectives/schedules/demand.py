"""What a collective has to do, independent of any algorithm, and the blocks of an all-to-all."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from s2sim.arrays import BlockTable, Floats, Ints, as_table
from s2sim.collectives import KINDS, Kind
from s2sim.errors import OptionError, S2SimError, unknown_name
from s2sim.files import read_text
from s2sim.units import parse_option, parse_size_bytes

# Kinds in which the buffers of all ranks are the same positions; in the others each rank has its own range.
_SHARED = ("all_reduce", "broadcast", "reduce")
ROOTED = ("broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class Demand:
    """The task of a collective, before any algorithm."""

    # Result on each rank. ``all_reduce``: the sum of all buffers; ``reduce``: the same, on the root alone;
    # ``broadcast``: the root's buffer; ``all_gather``: all contributions concatenated; ``reduce_scatter``: its part of
    # the sum; ``all_to_all``: its block from every rank; ``send_recv``: the contribution of the preceding rank;
    # ``barrier``: nothing, a notification from every rank.
    kind: Kind
    # Elements per rank: of its buffer (equal for all_reduce, broadcast and reduce), of its contribution (all_gather,
    # all_to_all, send_recv), or of its part of the result (reduce_scatter)
    elements: tuple[int, ...]
    itemsize: int  # Bytes of one element; 0 for a barrier
    root: int = 0  # Source of a broadcast, destination of a reduce
    # Of an all_to_all: elements from each rank to each rank, itself included; empty if contributions are cut evenly
    blocks: BlockTable | tuple[()] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", as_table(self.blocks))
        if self.kind not in KINDS:
            raise S2SimError(f"unknown collective {self.kind!r}; known: {', '.join(KINDS)}")
        if not self.elements or min(self.elements) < 0:
            raise S2SimError("a collective needs at least one rank and no negative sizes")
        if self.kind in _SHARED and len(set(self.elements)) > 1:
            raise S2SimError(f"{self.kind} needs the same number of elements on every rank")
        if not 0 <= self.root < self.ranks:
            raise S2SimError(f"root {self.root} does not exist: there are {self.ranks} ranks, from 0 on")
        if self.root and self.kind not in ROOTED:
            raise S2SimError(f"{self.kind} has no root: leave root {self.root} out")
        if self.blocks:
            if self.kind != "all_to_all":
                raise S2SimError(f"{self.kind} has no blocks: leave them out")
            if self.blocks.rows.shape[1] != self.ranks or len(self.blocks) != self.ranks:
                raise S2SimError(f"the blocks of {self.ranks} ranks are a table of {self.ranks} by {self.ranks}")
            if self.blocks.rows.min() < 0 or tuple(self.blocks.totals[0].tolist()) != self.elements:
                raise S2SimError("a rank's blocks must not be negative, and add up to its elements")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.elements)

    @property
    def shared(self) -> bool:
        """Whether the buffers of all ranks are the same positions, instead of concatenated ranges."""
        return self.kind in _SHARED

    @property
    def buffer_elements(self) -> int:
        """Positions of all buffers together: the buffer of a rank, or for an all_to_all the elements of all ranks."""
        return self.elements[0] if self.shared else sum(self.elements)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all buffer positions."""
        return self.buffer_elements * self.itemsize

    @property
    def handed_in_bytes(self) -> int:
        """Bytes of the largest contribution of a rank."""
        return (sum if self.kind == "reduce_scatter" else max)(self.elements) * self.itemsize

    @property
    def sizes_bytes(self) -> Floats:
        """Bytes of each rank's range on the network, float64 of shape (ranks,).

        Parts of an evenly cut size, [i·n//P, (i+1)·n//P), all count as n/P, so that rounds repeat.
        """
        own = np.asarray(self.elements, np.int64)
        total = int(own.sum())
        if not self.shared and np.array_equal(own, np.diff(np.arange(self.ranks + 1) * total // self.ranks)):
            return np.full(self.ranks, total * self.itemsize / self.ranks)
        return (own * self.itemsize).astype(np.float64)

    def stretches(self) -> tuple[Ints, Ints]:
        """Return the first position of each rank's range and the one after its last, int64 of shape (ranks,) each."""
        own = np.asarray(self.elements, np.int64)
        if self.shared:
            return np.zeros_like(own), own
        ends = np.cumsum(own)
        return ends - own, ends


def barrier(ranks: int) -> Demand:
    """Return the demand of a barrier: a flag of no bytes from every rank to every other."""
    return Demand("barrier", (1,) * ranks, 0)


def bus_factor(kind: Kind, workers: int) -> float:
    """Return the factor from the algorithm bandwidth to the bus bandwidth of nccl-tests."""
    if kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        return (2 if kind == "all_reduce" else 1) * (workers - 1) / workers
    return 1.0


_FLOAT32_BYTES = 4


def make_demand(kind: Kind, size_bytes: int | Sequence[int], workers: int, root: int = 0) -> Demand:
    """Return the demand of a size as nccl-tests counts it, or of one size per rank.

    One size is the buffer of a rank; of an all-gather the gathered buffer, of a reduce-scatter the reduced one. Several
    sizes are the contributions, or the results of a reduce-scatter. Elements are float32 if sizes are multiples of 4
    bytes, else bytes; parts that do not divide by the ranks differ by one element.
    """
    if kind not in KINDS:
        raise unknown_name("collective", kind, KINDS)
    sizes = [size_bytes] if isinstance(size_bytes, int) else list(size_bytes)
    if not isinstance(size_bytes, int) and len(sizes) != workers:
        raise OptionError(f"{len(sizes)} sizes were given for {workers} workers: give one a rank")
    if kind == "barrier":
        if any(sizes):
            raise OptionError(f"a barrier moves nothing: leave the size of {max(sizes)} bytes out")
        return barrier(workers)
    itemsize = 1 if any(size % _FLOAT32_BYTES for size in sizes) else _FLOAT32_BYTES
    elements = [size // itemsize for size in sizes]
    if isinstance(size_bytes, int) and kind in ("all_gather", "reduce_scatter"):
        elements = np.diff(np.arange(workers + 1) * elements[0] // workers).tolist()
    elif isinstance(size_bytes, int):
        elements *= workers
    return Demand(kind, tuple(elements), itemsize, root)


def read_sizes(path: Path) -> list[int]:
    """Return the sizes in bytes of a text file with one size and its unit per line; ``#`` begins a comment."""
    sizes = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if text := line.partition("#")[0].strip():
            sizes.append(parse_option(f"{path}, line {number}", parse_size_bytes, text))
    if not sizes:
        raise S2SimError(f"{path} holds no size: write one a line, for example 3MiB")
    return sizes


def nccl_tests_bytes(demand: Demand) -> int:
    """Return the size of a demand as nccl-tests counts it, the inverse of `make_demand`."""
    return max(demand.elements) * demand.itemsize if demand.kind in ("all_to_all", "send_recv") else demand.buffer_bytes


def cut(begin: Ints, end: Ints, part: Ints | int, parts: int) -> tuple[Ints, Ints]:
    """Return the bounds of part number ``part`` of ranges of positions that are cut into even parts."""
    return begin + part * (end - begin) // parts, begin + (part + 1) * (end - begin) // parts


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of each rank's range, one for each rank, in rank order."""

    demand: Demand

    @cached_property
    def _stretches(self) -> tuple[Ints, Ints]:
        return self.demand.stretches()

    @cached_property
    def _before(self) -> Ints:
        """Elements before each block in its rank's range, int64 of shape (distinct rows, ranks + 1)."""
        assert self.demand.blocks
        rows = self.demand.blocks.rows
        return np.concatenate([np.zeros((len(rows), 1), np.int64), np.cumsum(rows, axis=1)], axis=1)

    @property
    def table(self) -> BlockTable:
        """Elements of each block; of a range that is cut evenly those of its part."""
        if self.demand.blocks:
            return self.demand.blocks
        elements, row = np.unique(np.asarray(self.demand.elements, np.int64), return_inverse=True)
        begin, end = cut(np.zeros((1, 1), np.int64), elements[:, None], np.arange(self.demand.ranks), self.demand.ranks)
        return BlockTable(end - begin, row)

    def bounds(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the bounds of each block, int64 of the common shape of ``source`` and ``target``."""
        begin, end = (side[source] for side in self._stretches)
        if self.demand.blocks:
            row = self.demand.blocks.row[source]
            return begin + self._before[row, target], begin + self._before[row, target + 1]
        return cut(begin, end, target, self.demand.ranks)

    def bytes(self, source: Ints, target: Ints) -> Floats:
        """Return the bytes of each block on the network, float64: its size, or an even share of its range."""
        if self.demand.blocks:
            table = self.demand.blocks
            return table.rows[table.row[source], target].astype(np.float64) * self.demand.itemsize
        begin, end = self._stretches
        return (end - begin)[source] * self.demand.itemsize / self.demand.ranks

    def sizes(self) -> Ints:
        """Return the bytes of whole elements from each rank to each, int64 of shape (ranks, ranks)."""
        return self.table.dense * self.demand.itemsize


def all_to_all_demand(sizes: Ints | BlockTable, itemsize: int) -> Demand:
    """Return the all-to-all in which rank s has ``sizes[s, d]`` elements for rank d, int64 of shape (ranks, ranks)."""
    blocks = sizes if isinstance(sizes, BlockTable) else BlockTable(sizes)
    return Demand("all_to_all", tuple(blocks.totals[0].tolist()), itemsize, blocks=blocks)


def exchanged_bytes(demand: Demand) -> tuple[Ints, Ints]:
    """Return the bytes that each rank sends to others and receives from them, int64 of shape (ranks,)."""
    sent, received = Blocks(demand).table.exchanged
    return sent * demand.itemsize, received * demand.itemsize
