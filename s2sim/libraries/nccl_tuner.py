"""NCCL's own choice between rings and trees over several nodes: by its estimates, which are not what either takes.

It takes a tree to move half of the bus bandwidth as an algorithm, whatever the number of nodes, and a ring
n / (2 (n - 1)) of it: so large messages go around rings also where trees would be faster, as on two nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2

import numpy as np

from s2sim.collectives.schedules.demand import Demand
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import Cluster

# src/graph/tuning.cc of NCCL v2.30.7-1, in microseconds, by (tree, ring): base latencies, and those of a step inside a
# node and between nodes.
_BASE_US = {"LL": (6.8, 6.6), "Simple": (8.4, 8.4)}
_NVLINK_US = {"LL": (0.6, 0.6), "Simple": (4.0, 3.4)}
_PCIE_US = {"LL": (1.0, 1.0), "Simple": (4.0, 5.7)}
_NETWORK_US = {"LL": (5.0, 2.7), "Simple": (14.0, 14.0)}
_POSTING_US = {"LL": 1.0, "Simple": 3.0}
# Of the bus bandwidth: what a protocol reaches, and a tree.
_RING_TERMS = {"LL": 0.5, "Simple": 1.0}
_TREE_TERMS = {"LL": 0.92 / 3.8, "Simple": 0.92}
# By which a tree's bandwidth is corrected, from 64 bytes on and for each doubling.
_CORRECTION = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
    ),
}
# Rings with so many bytes a channel and rank count with longer latencies on GPUs before Ampere.
_LONG_BYTES, _LONGER = 64, 1.9


@dataclass(frozen=True, slots=True)
class TunerModel(NcclProfile):
    """NCCL that runs a ring over several nodes where its own estimate of that is less than of a tree."""

    def choose(self, demand: Demand, cluster: Cluster) -> str | None:
        """Return ``ring`` where NCCL takes it for faster than a tree; None leaves the fastest."""
        if demand.kind != "all_reduce" or "double-binary-tree" not in " ".join(self.candidates(demand, cluster)):
            return None
        if any(name.startswith("nvls") for name in self.candidates(demand, cluster)):
            return None
        tree_us, ring_us = estimates_us(demand.buffer_bytes, cluster)
        return "ring" if ring_us <= tree_us else None


def estimates_us(size_bytes: int, cluster: Cluster) -> tuple[float, float]:
    """Return what NCCL takes a tree and a ring over several nodes to take, in microseconds."""
    ranks, nodes = cluster.workers, len(np.unique(cluster.node_of_rank))
    each = ranks / nodes
    specs = cluster.dims.node_set.specs
    bus_GBps = min(spec.nics * spec.nic.rate_Bps for spec in specs) / 1e9
    inside_us = _NVLINK_US if all(spec.nvlink is not None for spec in specs) else _PCIE_US
    power = floor(log2(max(1, size_bytes / 64)))
    trees, rings = [], []
    for protocol, (tree_base_us, ring_base_us) in _BASE_US.items():
        tree_in_us, ring_in_us = inside_us[protocol]
        tree_net_us, ring_net_us = _NETWORK_US[protocol]
        corrections = _CORRECTION[protocol]
        correction = corrections[power] if power < len(corrections) else 1.0
        latency_us = tree_base_us + 2 * ((each - 1) * tree_in_us + floor(log2(nodes)) * tree_net_us)
        trees.append(latency_us + size_bytes / (1e3 * bus_GBps * _TREE_TERMS[protocol] * 0.5 * correction))
        between, steps = 2 * (nodes - 1), 2 * (ranks - 1)
        net_us = tree_net_us if each == 1 else ring_net_us
        latency_us = ring_base_us + (steps - between) * max(ring_in_us, _POSTING_US[protocol]) + between * net_us
        if protocol == "Simple" and size_bytes / ranks >= _LONG_BYTES:
            latency_us *= _LONGER
        rings.append(latency_us + size_bytes / (1e3 * bus_GBps * _RING_TERMS[protocol] * ranks / steps))
    return min(trees), min(rings)
