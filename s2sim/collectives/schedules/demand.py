"""The task of a collective, before any algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives.kinds import KINDS, Kind
from s2sim.errors import OptionError, S2SimError, UnitError, unknown_name
from s2sim.files import read_text
from s2sim.units import parse_size_bytes

# Every rank's buffer is the same stretch of positions; the others give each rank a stretch of its own.
_SHARED = ("all_reduce", "broadcast", "reduce")
ROOTED = ("broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class Demand:
    """The task of a collective, before any algorithm."""

    # What ranks end with. ``all_reduce``: the sum of all buffers. ``reduce``: the same, on the root alone.
    # ``broadcast``: the root's buffer. ``all_gather``: all contributions side by side. ``reduce_scatter``: each its
    # part of the sum. ``all_to_all``: from every rank the block meant for it. ``send_recv``: what the rank before it
    # contributes. ``barrier``: word of every rank, without any byte.
    kind: Kind
    # Elements of each rank: of its buffer (all equal for all_reduce, broadcast and reduce), of what it contributes
    # (all_gather, all_to_all, send_recv), or of the part that it ends with (reduce_scatter)
    elements: tuple[int, ...]
    itemsize: int  # Bytes of one element; 0 for a barrier
    root: int = 0  # Rank that a broadcast comes from or a reduce goes to
    # Elements that each rank has for each rank, itself included, of an all_to_all; empty where every rank's are cut
    # evenly
    blocks: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
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
            _check_blocks(self)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.elements)

    @property
    def shared(self) -> bool:
        """Whether all ranks have the same stretch of positions, rather than each its own, one after the other."""
        return self.kind in _SHARED

    @property
    def buffer_elements(self) -> int:
        """Positions of all buffers together: what a rank holds, or for an all_to_all what all ranks send."""
        return self.elements[0] if self.shared else sum(self.elements)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of these."""
        return self.buffer_elements * self.itemsize

    @property
    def handed_in_bytes(self) -> int:
        """Bytes that the rank with most contributes."""
        return (sum if self.kind == "reduce_scatter" else max)(self.elements) * self.itemsize

    @property
    def sizes_bytes(self) -> Floats:
        """The bytes that each rank's stretch counts on the network, float64 of shape (ranks,).

        Parts of one size that was cut evenly, [i·n//P, (i+1)·n//P), all count its nominal share n/P, so that rounds
        repeat; others their own bytes.
        """
        own = np.asarray(self.elements, np.int64)
        total = int(own.sum())
        if not self.shared and np.array_equal(own, np.diff(np.arange(self.ranks + 1) * total // self.ranks)):
            return np.full(self.ranks, total * self.itemsize / self.ranks)
        return (own * self.itemsize).astype(np.float64)

    def stretches(self) -> tuple[Ints, Ints]:
        """Return where each rank's own stretch begins and ends, int64 of shape (ranks,)."""
        own = np.asarray(self.elements, np.int64)
        if self.shared:
            return np.zeros_like(own), own
        ends = np.cumsum(own)
        return ends - own, ends


def _check_blocks(demand: Demand) -> None:
    if demand.kind != "all_to_all":
        raise S2SimError(f"{demand.kind} has no blocks: leave them out")
    if len(demand.blocks) != demand.ranks or any(len(row) != demand.ranks for row in demand.blocks):
        raise S2SimError(f"the blocks of {demand.ranks} ranks are a table of {demand.ranks} by {demand.ranks}")
    if min(map(min, demand.blocks)) < 0 or tuple(map(sum, demand.blocks)) != demand.elements:
        raise S2SimError("a rank's blocks must not be negative, and add up to its elements")


def barrier(ranks: int) -> Demand:
    """Return the demand of a barrier: a flag of no bytes from every rank to every other."""
    return Demand("barrier", (1,) * ranks, 0)


def bus_factor(kind: Kind, workers: int) -> float:
    """Return what nccl-tests multiplies the algorithm's bandwidth by, so that it shows what links carry."""
    if kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        return (2 if kind == "all_reduce" else 1) * (workers - 1) / workers
    return 1.0


_FLOAT32_BYTES = 4


def make_demand(kind: Kind, size_bytes: int | Sequence[int], workers: int, root: int = 0) -> Demand:
    """Return the demand of a size as nccl-tests counts it, or of a size for each rank.

    One size is a rank's buffer; of an all-gather the gathered one, of a reduce-scatter the one that is reduced. Several
    are what each rank contributes, or what it ends with in a reduce-scatter. Elements are float32 where sizes allow,
    else bytes; parts that do not divide by the ranks differ by one element.
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
    if isinstance(size_bytes, int):
        whole = elements[0]
        if kind in ("all_gather", "reduce_scatter"):
            elements = np.diff(np.arange(workers + 1) * whole // workers).tolist()
        else:
            elements = [whole] * workers
    return Demand(kind, tuple(elements), itemsize, root)


def read_sizes(path: Path) -> list[int]:
    """Return the sizes of a text file with one a line, each with its unit; ``#`` begins a comment.

    `S2SimError` names the line that is wrong.
    """
    sizes = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if text:
            try:
                sizes.append(parse_size_bytes(text))
            except UnitError as error:
                raise UnitError(f"{path}, line {number}: {error}") from error
    if not sizes:
        raise S2SimError(f"{path} holds no size: write one a line, for example 3MiB")
    return sizes


def nccl_tests_bytes(demand: Demand) -> int:
    """Return the size of a demand as nccl-tests counts it, the inverse of `make_demand`."""
    own = demand.kind in ("all_to_all", "send_recv")
    return max(demand.elements) * demand.itemsize if own else demand.buffer_bytes
