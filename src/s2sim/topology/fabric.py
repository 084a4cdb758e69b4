"""The graph of a cluster as arrays: one entry a directed link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, overload

import numpy as np

from s2sim.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from s2sim.topology.dimensions import Dimensions
    from s2sim.topology.shape import ClusterShape, LinkSpec

# Some 33 bytes a link: 1.7 GB, far beyond any cluster that was ever built.
_MOST_LINKS = 50_000_000


@dataclass(frozen=True, slots=True)
class LinkBlock:
    """Consecutive links of one class, alike in rate and latency.

    Attributes
    ----------
    start, count : int
        The links ``start ... start + count - 1``.
    link_class : str
        For aggregation: ``"nvlink"``, ``"pcie"``, ``"nic"``, ``"leaf-up"``, ``"leaf-down"``, ``"aggregation-up"``,
        ``"aggregation-down"`` or ``"ring"``.
    spec : LinkSpec
        Rate and latency of each.
    template : str
        Name of a link, with a place for each of its indices.
    radices : tuple of int
        Sizes of all indices but the first, outermost first.
    """

    start: int
    count: int
    link_class: str
    spec: LinkSpec
    template: str
    radices: tuple[int, ...]

    def name(self, index: int) -> str:
        """Return the name of the block's link number ``index``."""
        indices: list[int] = []
        for radix in reversed(self.radices):
            index, inner = divmod(index, radix)
            indices.insert(0, inner)
        return self.template.format(index, *indices)


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
    """All directed links.

    Vertices are numbered: GPUs, then nodes (where a node's GPUs and network interfaces meet), then switches level by
    level; on a ring the place where a node's interfaces meet its two neighbours counts as its switch.

    Attributes
    ----------
    rate_Bps : float64 array, shape (L,)
        Bytes per second of each link.
    latency_ps : int64 array, shape (L,)
        Picoseconds.
    link_names : sequence of str
        ``"node3.gpu1.nvlink.out"``, made on demand.
    link_class : int8 array, shape (L,)
        Index into ``class_names``.
    class_names : tuple of str
        ``"nvlink"``, ``"nic"``, ``"leaf-up"``, ...
    tail, head : int64 array, shape (L,)
        Vertex at which each link starts and ends.
    gpus : int
        GPUs; vertices ``0 ... gpus - 1``.
    nodes : int
        Nodes; vertices ``gpus ... gpus + nodes - 1``.
    blocks : mapping of str to LinkBlock
        The links by direction and kind, for example ``"leaf.up"``.
    """

    rate_Bps: NDArray[np.float64]
    latency_ps: NDArray[np.int64]
    link_names: Sequence[str]
    link_class: NDArray[np.int8]
    class_names: tuple[str, ...]
    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    gpus: int
    nodes: int
    blocks: Mapping[str, LinkBlock]

    def __len__(self) -> int:
        """Return the number of directed links."""
        return len(self.rate_Bps)


@dataclass(frozen=True, slots=True)
class _Part:
    """Links of one kind and direction, before they are numbered."""

    key: str
    link_class: str
    spec: LinkSpec
    template: str
    radices: tuple[int, ...]
    count: int
    up: bool


def _ports(shape: ClusterShape, dims: Dimensions) -> list[_Part]:
    """Return the links between GPUs, nodes and network interfaces, each kind out and in."""
    parts = []
    for name, spec in (("nvlink", shape.nvlink), ("pcie", shape.pcie)):
        if spec is not None and (name == "pcie" or shape.gpus_per_node > 1):
            radices = (dims.gpus_per_node,)
            parts += [
                _Part(f"{name}.out", name, spec, f"node{{}}.gpu{{}}.{name}.out", radices, dims.workers, True),
                _Part(f"{name}.in", name, spec, f"node{{}}.gpu{{}}.{name}.in", radices, dims.workers, False),
            ]
    radices = (dims.nics_per_node,)
    return [
        *parts,
        _Part("nic.out", "nic", shape.host_link, "node{}.nic{}.out", radices, dims.ports, True),
        _Part("nic.in", "nic", shape.host_link, "node{}.nic{}.in", radices, dims.ports, False),
    ]


def _switches(shape: ClusterShape, dims: Dimensions) -> list[_Part]:
    """Return the links between switches, or between the neighbours of a ring."""
    if shape.kind == "ring":
        count = dims.nodes if dims.nodes > 1 else 0
        return [
            _Part("ring.clockwise", "ring", shape.link, "node{}.clockwise", (), count, True),
            _Part("ring.counterclockwise", "ring", shape.link, "node{}.counterclockwise", (), count, False),
        ]
    leaf = (dims.uplinks_per_leaf,)
    leaf_links = dims.leaves * dims.uplinks_per_leaf
    pod = (dims.uplinks_per_leaf, dims.uplinks_per_aggregation)
    pod_links = dims.pods * dims.cores
    return [
        _Part("leaf.up", "leaf-up", shape.link, "leaf{}.up{}", leaf, leaf_links, True),
        _Part("leaf.down", "leaf-down", shape.link, "leaf{}.down{}", leaf, leaf_links, False),
        _Part("aggregation.up", "aggregation-up", shape.link, "pod{}.aggregation{}.up{}", pod, pod_links, True),
        _Part("aggregation.down", "aggregation-down", shape.link, "pod{}.aggregation{}.down{}", pod, pod_links, False),
    ]


def _lower_and_upper(dims: Dimensions, key: str, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the vertices below and above each link of one kind, as if it led upwards."""
    index = np.arange(count, dtype=np.int64)
    first_node = dims.workers
    first_leaf = first_node + dims.nodes
    first_aggregation = first_leaf + dims.leaves
    kind = key.partition(".")[0]
    if kind in ("nvlink", "pcie"):
        return index, first_node + index // dims.gpus_per_node
    if kind == "nic":
        return first_node + index // dims.nics_per_node, first_leaf + index // dims.ports_per_leaf
    uplinks = dims.uplinks_per_leaf
    if kind == "leaf":
        leaf, port = np.divmod(index, uplinks)
        return first_leaf + leaf, first_aggregation + leaf // dims.leaves_per_pod * uplinks + port
    aggregation = index // dims.uplinks_per_aggregation
    return first_aggregation + aggregation, first_aggregation + dims.aggregations + index % dims.cores


def _ring_ends(dims: Dimensions, key: str, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the two ends of each link of one kind of a ring, whose stops take the places of the switches."""
    index = np.arange(count, dtype=np.int64)
    first_stop = dims.workers + dims.nodes
    if key.startswith("ring"):
        # Counterclockwise links are given from end to start: the caller turns them round like all that lead down.
        after = first_stop + (index + 1) % dims.nodes
        before = first_stop + (index - 1) % dims.nodes
        return (first_stop + index, after) if key == "ring.clockwise" else (before, first_stop + index)
    if key.startswith("nic"):
        return dims.workers + index // dims.nics_per_node, first_stop + index // dims.nics_per_node
    return _lower_and_upper(dims, key, count)


def build_fabric(shape: ClusterShape, dims: Dimensions) -> Fabric:
    """Return the links of a cluster of this shape and size."""
    parts = _ports(shape, dims) + _switches(shape, dims)
    counts = [part.count for part in parts]
    if sum(counts) > _MOST_LINKS:
        raise TopologyError(
            f"{shape.name} with {dims.workers} workers has {sum(counts):,} links, more than {_MOST_LINKS:,}: "
            "ask for fewer workers or uplinks"
        )
    starts = list(accumulate(counts, initial=0))
    blocks = {
        part.key: LinkBlock(start, part.count, part.link_class, part.spec, part.template, part.radices)
        for part, start in zip(parts, starts, strict=False)
    }
    class_names = tuple(dict.fromkeys(part.link_class for part in parts if part.count))
    codes = [class_names.index(part.link_class) if part.count else 0 for part in parts]
    vertices_of = _ring_ends if shape.kind == "ring" else _lower_and_upper
    ends = [vertices_of(dims, part.key, part.count) if part.count else None for part in parts]
    ordered = [(pair if part.up else pair[::-1]) for part, pair in zip(parts, ends, strict=True) if pair is not None]
    return Fabric(
        rate_Bps=np.repeat(np.array([part.spec.rate_Bps for part in parts], np.float64), counts),
        latency_ps=np.repeat(np.array([part.spec.latency_ps for part in parts], np.int64), counts),
        link_names=LinkNames(blocks.values()),
        link_class=np.repeat(np.array(codes, np.int8), counts),
        class_names=class_names,
        tail=np.concatenate([pair[0] for pair in ordered]),
        head=np.concatenate([pair[1] for pair in ordered]),
        gpus=dims.workers,
        nodes=dims.nodes,
        blocks=blocks,
    )
