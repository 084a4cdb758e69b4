"""Which way a transfer takes: up-ports of trees (d-mod-k, ECMP, spraying) and the shorter way round a ring.

d-mod-k is the deterministic routing of Öhring et al. (IPPS 1995), under which shift patterns between the hosts of a
non-blocking tree share no link (Zahavi, "D-Mod-K routing providing non-blocking traffic for shift permutations on real
life fat trees", CCIT report 776, 2010). ECMP hashes the pair of hosts at each level, so collisions happen as they do
on Ethernet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.mixing import splitmix64
from s2sim.topology.routes import Stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.dimensions import Dimensions
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.shape import ClusterShape

    Indices = NDArray[np.int64]
    Mask = NDArray[np.bool_]


def _hashed(source: Indices, target: Indices, seed: int, level: int) -> NDArray[np.uint64]:
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = np.full(len(source), (seed * 4 + level) % 2**64, np.uint64)
    for part in (source, target):
        state = splitmix64(state * golden + part.astype(np.uint64) + golden)
    return state


def _single(fabric: Fabric, key: str, index: Indices, mask: Mask) -> Stage:
    """Return one link of block ``key`` for each transfer in ``mask``."""
    block = fabric.blocks[key]
    counts = mask.astype(np.int64)
    return Stage(counts, block.start + index[mask], counts, 1.0, block.spec.latency_ps)


def _fan(fabric: Fabric, key: str, first: Indices, width: int, mask: Mask) -> Stage:
    """Return ``width`` links of block ``key`` side by side for each transfer in ``mask``."""
    block = fabric.blocks[key]
    hops = mask.astype(np.int64)
    links = (block.start + first[mask][:, None] + np.arange(width)).ravel()
    return Stage(hops * width, links, hops, 1 / width, block.spec.latency_ps)


@dataclass(frozen=True, slots=True, eq=False)
class Router:
    """Everything that decides a way: the graph, its counts, the rule and the seed of its hash."""

    shape: ClusterShape
    dims: Dimensions
    fabric: Fabric
    seed: int

    def stages(self, source: Indices, target: Indices) -> list[Stage]:
        """Return what transfers between GPUs cross, in order.

        Parameters
        ----------
        source, target : int64 array, shape (m,)
            GPU numbers, different in each pair.
        """
        dims, fabric = self.dims, self.fabric
        source_node, source_local = np.divmod(source, dims.gpus_per_node)
        target_node, target_local = np.divmod(target, dims.gpus_per_node)
        inside = source_node == target_node
        outside = ~inside
        # Network interface of local GPU g: g * interfaces // GPUs, so neighbours share one.
        source_port = source_node * dims.nics_per_node + source_local * dims.nics_per_node // dims.gpus_per_node
        target_port = target_node * dims.nics_per_node + target_local * dims.nics_per_node // dims.gpus_per_node
        stages_out, stages_in = [], []
        over_pcie = np.zeros(len(source), np.bool_)
        if self.shape.nvlink is not None and "nvlink.out" in fabric.blocks:
            stages_out.append(_single(fabric, "nvlink.out", source, inside))
            stages_in.append(_single(fabric, "nvlink.in", target, inside))
        if self.shape.pcie is not None:
            over_pcie = outside if stages_out else ~over_pcie
            stages_out.append(_single(fabric, "pcie.out", source, over_pcie))
            stages_in.append(_single(fabric, "pcie.in", target, over_pcie))
        middle = self._ring_stages if self.shape.kind == "ring" else self._tree_stages
        return [
            *stages_out,
            _single(fabric, "nic.out", source_port, outside),
            *middle(source_port, target_port, outside),
            _single(fabric, "nic.in", target_port, outside),
            *stages_in,
        ]

    def _tree_stages(self, source: Indices, target: Indices, outside: Mask) -> list[Stage]:
        dims, fabric = self.dims, self.fabric
        uplinks, core_uplinks = dims.uplinks_per_leaf, dims.uplinks_per_aggregation
        if not uplinks:
            return []
        source_leaf, target_leaf = source // dims.ports_per_leaf, target // dims.ports_per_leaf
        source_pod, target_pod = source_leaf // dims.leaves_per_pod, target_leaf // dims.leaves_per_pod
        between_leaves = outside & (source_leaf != target_leaf)
        between_pods = source_pod != target_pod
        if self.shape.routing == "spray":
            up = [_fan(fabric, "leaf.up", source_leaf * uplinks, uplinks, between_leaves)]
            down = [_fan(fabric, "leaf.down", target_leaf * uplinks, uplinks, between_leaves)]
            if core_uplinks:
                cores = dims.cores
                up.append(_fan(fabric, "aggregation.up", source_pod * cores, cores, between_pods))
                down.append(_fan(fabric, "aggregation.down", target_pod * cores, cores, between_pods))
            return [*up, *reversed(down)]
        port = self._port(source, target, level=1, width=uplinks)
        up = [_single(fabric, "leaf.up", source_leaf * uplinks + port, between_leaves)]
        down = [_single(fabric, "leaf.down", target_leaf * uplinks + port, between_leaves)]
        if core_uplinks:
            core = port * core_uplinks + self._port(source, target, level=2, width=core_uplinks)
            up.append(_single(fabric, "aggregation.up", source_pod * dims.cores + core, between_pods))
            down.append(_single(fabric, "aggregation.down", target_pod * dims.cores + core, between_pods))
        return [*up, *reversed(down)]

    def _port(self, source: Indices, target: Indices, *, level: int, width: int) -> Indices:
        """Return the up-port that each transfer takes at a level of the tree (1: leaf, 2: aggregation)."""
        if self.shape.routing == "ecmp":
            return (_hashed(source, target, self.seed, level) % np.uint64(width)).astype(np.int64)
        below = self.dims.uplinks_per_leaf if level == 2 else 1
        return target // below % width

    def _ring_stages(self, source_port: Indices, target_port: Indices, outside: Mask) -> list[Stage]:
        """Return the shorter way round; ties go clockwise."""
        nodes = self.dims.nodes
        source, target = source_port // self.dims.nics_per_node, target_port // self.dims.nics_per_node
        forward = (target - source) % nodes
        clockwise = forward <= nodes - forward
        return [
            self._arc("ring.clockwise", source, np.where(outside & clockwise, forward, 0), 1),
            self._arc("ring.counterclockwise", source, np.where(outside & ~clockwise, nodes - forward, 0), -1),
        ]

    def _arc(self, key: str, source: Indices, hops: Indices, step: int) -> Stage:
        """Return ``hops`` consecutive links round the ring from each source node."""
        block = self.fabric.blocks[key]
        before = np.cumsum(hops) - hops
        along = np.arange(hops.sum()) - np.repeat(before, hops)
        node = (np.repeat(source, hops) + step * along) % self.dims.nodes
        return Stage(hops, block.start + node, hops, 1.0, block.spec.latency_ps)
