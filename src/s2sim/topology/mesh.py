"""Ways over NVLinks that join GPUs directly.

A way is the direct link where there is one. Where there is none, it is the way over the fewest GPUs between; of these
the one whose slowest hop has most links; of these the one by the GPU with the lowest number, at each step. Links that
join the same two GPUs count as one with their rates together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints
    from s2sim.topology.node_spec import NodeSpec


@dataclass(frozen=True, slots=True, eq=False)
class MeshWays:
    """The links of one node's mesh, and the ways over them.

    Attributes
    ----------
    source, target, lines : int64 array, shape (links,)
        Two GPUs in use, each order once, and how many lines the link between them has.
    hops : int64 array, shape (longest way, GPUs, GPUs)
        The link that a way from one GPU to another crosses first, second, ...; -1 where it has ended, or where there
        is no way.
    """

    source: Ints
    target: Ints
    lines: Ints
    hops: Ints


@lru_cache(maxsize=64)
def mesh_ways(spec: NodeSpec, in_use: int) -> MeshWays:
    """Return the mesh of a node of which the first GPUs are in use, and its ways; each two GPUs must have one.

    Where the node has PCIe too, GPUs without a direct link have no way here.
    """
    lines = np.zeros((in_use, in_use), np.int64)
    for one, other, number in spec.mesh or ():
        if other < in_use:
            lines[one, other] = lines[other, one] = number
    source, target = np.nonzero(lines)
    link = np.full((in_use, in_use), -1, np.int64)
    link[source, target] = np.arange(len(source))
    step = np.where(lines > 0, np.arange(in_use), -1) if spec.pcie is not None else _next_gpu(lines)
    hops = []
    at = np.broadcast_to(np.arange(in_use)[:, None], step.shape)
    end = np.broadcast_to(np.arange(in_use), step.shape)
    while True:
        after = np.where(at == end, -1, step[at, end])
        if (after < 0).all():
            break
        hops.append(np.where(after < 0, -1, link[at, after]))
        at = np.where(after < 0, end, after)
    return MeshWays(source, target, lines[source, target], np.array(hops, np.int64).reshape(-1, in_use, in_use))


def _next_gpu(lines: Ints) -> Ints:
    """Return the GPU to which a way from one GPU to another goes first, shape (GPUs, GPUs)."""
    gpus = len(lines)
    unknown = gpus + 1
    distance = np.where(lines > 0, 1, unknown)
    np.fill_diagonal(distance, 0)
    narrowest = lines.copy()
    step = np.where(lines > 0, np.arange(gpus), -1)
    for length in range(2, gpus):
        open_pairs = np.argwhere(distance == unknown)
        for one, other in open_pairs[(lines[open_pairs[:, 0]] > 0).any(axis=1)].tolist():
            between = np.flatnonzero((lines[one] > 0) & (distance[:, other] == length - 1))
            if len(between):
                width = np.minimum(lines[one, between], narrowest[between, other])
                best = int(np.argmax(width))
                step[one, other], narrowest[one, other] = between[best], width[best]
        found = (step >= 0) & (distance == unknown)
        if not found.any():
            break
        distance[found] = length
    if (distance == unknown).any():
        one, other = np.argwhere(distance == unknown)[0].tolist()
        raise TopologyError(
            f"nvlink.pairs leave no way from GPU {one} to GPU {other} of a node with {gpus} GPUs in use: add pairs or "
            "a [pcie] table, or fill whole nodes"
        )
    return step


@dataclass(frozen=True, slots=True, eq=False)
class Meshes:
    """The meshes of all nodes: node i has the links ``first[i] ... first[i + 1] - 1``.

    ``variants`` are meshes that differ, by kind of node and GPUs in use, of which ``variant``, int64 of shape (nodes,),
    says which each node has; -1 for none.
    """

    first: Ints
    variants: tuple[MeshWays, ...]
    variant: Ints

    @property
    def longest(self) -> int:
        """Links of the longest way inside any mesh."""
        return max((len(ways.hops) for ways in self.variants), default=0)

    def links(self, node: Ints, source: Ints, target: Ints) -> list[Ints]:
        """Return the links that ways inside nodes cross first, second, ...; -1 where there is none.

        All are int64 arrays of shape (ways,); ``source`` and ``target`` are numbers of GPUs in the node.
        """
        crossed = [np.full(len(node), -1, np.int64) for _ in range(self.longest)]
        for number, ways in enumerate(self.variants):
            here = np.flatnonzero(self.variant[node] == number)
            for found, hop in zip(crossed, ways.hops, strict=False):
                local = hop[source[here], target[here]]
                found[here] = np.where(local < 0, -1, self.first[node[here]] + local)
        return crossed


def find_meshes(specs: Sequence[NodeSpec], spec_of_node: Ints, in_use: Ints) -> Meshes:
    """Return the meshes of all nodes, by the kind of each one and how many of its GPUs are in use, int64 (nodes,)."""
    variants: list[MeshWays] = []
    variant = np.full(len(in_use), -1, np.int64)
    links = np.zeros(len(in_use), np.int64)
    for number, spec in enumerate(specs):
        of_kind = spec_of_node == number
        for gpus in np.unique(in_use[of_kind]).tolist() if spec.mesh is not None else ():
            alike = of_kind & (in_use == gpus)
            variant[alike] = len(variants)
            variants.append(mesh_ways(spec, gpus))
            links[alike] = len(variants[-1].source)
    return Meshes(np.concatenate([np.zeros(1, np.int64), np.cumsum(links)]), tuple(variants), variant)
