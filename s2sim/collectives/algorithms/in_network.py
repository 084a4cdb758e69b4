"""In-network all-reduce: switches sum what comes up to them and multicast the result down again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from s2sim.collectives.algorithms.tree import trees_over_nodes
from s2sim.collectives.schedules.channels import channel_count, channel_groups
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hops
from s2sim.collectives.schedules.groups import schedule_of
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Schedule, Stage, Step, TransferLegs
from s2sim.errors import OptionError
from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class InNetwork:
    """One transfer up a tree of switches and down again, cut-through: every rank sends its buffer once."""

    name: ClassVar[str] = "in-network"
    source: ClassVar[str] = "Graham et al., Scalable Hierarchical Aggregation Protocol (SHArP), COM-HPC 2016"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce",)
    auto: ClassVar[tuple[str, ...]] = ()

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule: one message over all links of the tree, whose root is above all ranks."""
        if demand.ranks > 1:
            cluster.reduction_tree()
        return _one_transfer(self.name, demand)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return L + D/B, with the latency up and down the tree and the rate of its narrowest link."""
        return hops.round_s(demand.buffer_bytes) if demand.ranks > 1 else 0.0


@dataclass(frozen=True, slots=True)
class NvlsTree:
    """One transfer, all pieces in flight at once: NVSwitches inside nodes, a pair of trees for each interface between.

    What is busiest decides. Each tree has an even part of the buffer, which every edge carries up and down.
    """

    name: ClassVar[str] = "nvls-tree"
    source: ClassVar[str] = "NCCL v2.30.7-1, src/graph (NCCL_ALGO_NVLS_TREE); trees as double-binary-tree"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce",)
    auto: ClassVar[tuple[str, ...]] = ()

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; `OptionError` on one node, where an NVSwitch does all of it."""
        if demand.ranks > 1 and len(np.unique(cluster.node_of_rank)) == 1:
            raise OptionError("nvls-tree needs several nodes: inside one, in-network is what the NVSwitch does")
        return _one_transfer(self.name, demand, _legs(demand, cluster))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return L + D/B, with the latency of the longest route through both and the rate of the busiest link."""
        return hops.round_s(demand.buffer_bytes) if demand.ranks > 1 else 0.0


def _one_transfer(algorithm: str, demand: Demand, legs: TransferLegs | None = None) -> Schedule:
    ranks = np.arange(demand.ranks, dtype=np.int64)
    pattern = Pattern(ranks, ranks, through_switch=True, legs=legs)
    step = Step(Round(pattern, np.array([float(demand.buffer_bytes)])))
    pieces = Pieces.one_each(np.array([0]), np.array([demand.buffer_elements]), adds=True)
    return schedule_of(demand, algorithm, Stage((step,), lambda _step, _time: pieces))


def _legs(demand: Demand, cluster: Cluster) -> TransferLegs:
    """Return the edges between nodes of a pair of trees for each channel, upwards and downwards."""
    groups = channel_groups(demand, cluster, channel_count(cluster, None))
    edges = []
    for order in groups.ranks:
        node = cluster.node_of_rank[order]
        for parent in trees_over_nodes(node):
            child = np.flatnonzero((parent >= 0) & (node != node[parent]))
            edges += [(order[child], order[parent[child]]), (order[parent[child]], order[child])]
    src, dst = (np.concatenate(side) for side in zip(*edges, strict=True))
    nodes = len(np.unique(cluster.node_of_rank))
    return TransferLegs(src, dst, 1 / (2 * len(groups.ranks)), 2 * (nodes - 1).bit_length())
