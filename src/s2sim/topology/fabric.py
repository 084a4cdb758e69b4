"""The graph of a cluster as arrays: one entry a directed link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from s2sim.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from s2sim.arrays import Floats, Ints

# A cluster of so many takes 1.2 GB and five seconds; none so large was ever built.
_MOST_LINKS = 10_000_000


@dataclass(frozen=True, slots=True)
class LinkBlock:
    """Consecutive links of one class.

    ``template`` is the name of a link, with a place for each of its indices, which ``indices`` gives by its number in
    the block.
    """

    start: int
    count: int
    template: str
    indices: Callable[[int], Iterable[int]]

    @property
    def part(self) -> slice:
        """Where the block lies in the arrays of the graph."""
        return slice(self.start, self.start + self.count)

    def name(self, index: int) -> str:
        """Return the name of the block's link number ``index``."""
        return self.template.format(*self.indices(index))


def counted(*radices: int) -> Callable[[int], list[int]]:
    """Return what takes a number apart: all indices but the first have these sizes, outermost first.

    >>> counted(3, 4)(23)
    [1, 2, 3]
    """

    def indices(number: int) -> list[int]:
        found: list[int] = []
        for radix in reversed(radices):
            number, inner = divmod(number, radix)
            found.insert(0, inner)
        return [number, *found]

    return indices


class LinkNames(Sequence[str]):
    """Names of all links, made when asked for: a million strings would cost more than the graph."""

    def __init__(self, blocks: Iterable[LinkBlock]) -> None:
        self._blocks = tuple(block for block in blocks if block.count)
        self._starts = [block.start for block in self._blocks]

    def __len__(self) -> int:
        return self._blocks[-1].start + self._blocks[-1].count if self._blocks else 0

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = int(index) + (len(self) if index < 0 else 0)
        if not 0 <= position < len(self):
            raise IndexError(f"link {index} of {len(self)}")
        block = self._blocks[int(np.searchsorted(self._starts, position, side="right")) - 1]
        return block.name(position - block.start)


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """All directed links, in arrays of shape (L,).

    Vertices are numbered: GPUs, then nodes (where a node's GPUs and network interfaces meet), then switches level by
    level, then PCIe switches node by node, then host bridges with a rate of their own, one a node. On a ring or torus
    the stop where a node's interfaces meet its neighbours counts as its switch.

    Attributes
    ----------
    rate_Bps, latency_ps : float64 and int64 array
        Bytes per second, and picoseconds.
    link_names : sequence of str
        ``"node3.gpu1.nvlink.out"``, made on demand.
    link_class : int8 array
        Index into ``class_names``: ``"nvlink"``, ``"nic"``, ``"leaf-up"``, ...
    tail, head : int64 array
        Vertex at which each link starts and ends.
    blocks : mapping of str to LinkBlock
        The links by direction and kind, for example ``"leaf.up"``.
    """

    rate_Bps: Floats
    latency_ps: Ints
    link_names: Sequence[str]
    link_class: NDArray[np.int8]
    class_names: tuple[str, ...]
    tail: Ints
    head: Ints
    gpus: int
    nodes: int
    blocks: Mapping[str, LinkBlock]

    def __len__(self) -> int:
        """Return the number of directed links."""
        return len(self.rate_Bps)


@dataclass(frozen=True, slots=True)
class LinkPart:
    """Links of one kind and direction, before they are numbered.

    Attributes
    ----------
    link_class : str
        For summing up: ``"nvlink"``, ``"pcie"``, ``"nic"``, ``"leaf-up"``, ``"torus"``, ``"global"``, ...
    rate_Bps, latency_ps : float and int, or arrays of shape (count,)
        Of all links, or of each.
    ends : callable
        Takes the numbers 0, 1, ... of the links as an int64 array, gives the vertices where each starts and ends.
    """

    key: str
    link_class: str
    rate_Bps: float | Floats
    latency_ps: int | Ints
    template: str
    indices: Callable[[int], Iterable[int]]
    count: int
    ends: Callable[[Ints], tuple[Ints, Ints]]

    def turned(self) -> LinkPart:
        """Return the same links the other way round."""
        return replace(self, ends=lambda index: self.ends(index)[::-1])


def _each(value: Any, kind: type, count: int) -> NDArray[Any]:
    return np.broadcast_to(np.asarray(value, kind), (count,))


def build_fabric(parts: Sequence[LinkPart], gpus: int, nodes: int, what: str) -> Fabric:
    """Return the graph of all links, numbered in the order of their parts; ``what`` names the cluster in an error."""
    counts = [part.count for part in parts]
    if sum(counts) > _MOST_LINKS:
        raise TopologyError(
            f"{what} has {sum(counts):,} links, more than {_MOST_LINKS:,}: ask for fewer workers or uplinks"
        )
    starts = list(accumulate(counts, initial=0))
    blocks = {
        part.key: LinkBlock(start, part.count, part.template, part.indices)
        for part, start in zip(parts, starts, strict=False)
    }
    class_names = tuple(dict.fromkeys(part.link_class for part in parts if part.count))
    codes = [class_names.index(part.link_class) if part.count else 0 for part in parts]
    ends = [part.ends(np.arange(part.count, dtype=np.int64)) for part in parts if part.count]
    return Fabric(
        rate_Bps=np.concatenate([_each(part.rate_Bps, np.float64, part.count) for part in parts]),
        latency_ps=np.concatenate([_each(part.latency_ps, np.int64, part.count) for part in parts]),
        link_names=LinkNames(blocks.values()),
        link_class=np.repeat(np.array(codes, np.int8), counts),
        class_names=class_names,
        tail=np.concatenate([pair[0] for pair in ends]),
        head=np.concatenate([pair[1] for pair in ends]),
        gpus=gpus,
        nodes=nodes,
        blocks=blocks,
    )
