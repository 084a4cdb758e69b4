"""Sums outside of the ranks: in switches, and at parameter servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.algorithms.tree import trees_over_nodes
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hops
from s2sim.collectives.schedules.groups import schedule_of
from s2sim.collectives.schedules.pipeline import channel_count, channel_groups
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Schedule, Stage, Step, TransferLegs
from s2sim.errors import OptionError
from s2sim.options import check_options, option_text
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
        """Return the schedule; `OptionError` on one node, `TopologyError` where nodes have no NVSwitch that sums."""
        if demand.ranks > 1 and cluster.nodes_used == 1:
            raise OptionError("nvls-tree needs several nodes: inside one, in-network is what the NVSwitch does")
        # The edges between nodes of a pair of trees for each channel, upwards and downwards.
        groups, edges = channel_groups(demand, cluster, channel_count(cluster, None)), []
        for order in groups.ranks:
            node = cluster.node_of_rank[order]
            for parent in trees_over_nodes(node):
                child = np.flatnonzero((parent >= 0) & (node != node[parent]))
                edges += [(order[child], order[parent[child]]), (order[parent[child]], order[child])]
        src, dst = (np.concatenate(side) for side in zip(*edges, strict=True))
        legs = TransferLegs(src, dst, 1 / (2 * len(groups.ranks)), 2 * (cluster.nodes_used - 1).bit_length())
        cluster.reduction_over_nodes(cluster.routes(src, dst), legs.share, legs.depth)
        return _one_transfer(self.name, demand, legs)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return L + D/B, with the latency of the longest route through both and the rate of the busiest link."""
        return hops.round_s(demand.buffer_bytes) if demand.ranks > 1 else 0.0


def _one_transfer(algorithm: str, demand: Demand, legs: TransferLegs | None = None) -> Schedule:
    ranks = np.arange(demand.ranks, dtype=np.int64)
    pattern = Pattern(ranks, ranks, through_switch=True, legs=legs)
    step = Step(Round(pattern, np.array([float(demand.buffer_bytes)])))
    pieces = Pieces.one_each(np.array([0]), np.array([demand.buffer_elements]), adds=True)
    return schedule_of(demand, algorithm, Stage((step,), lambda _step, _time: pieces))


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """Two rounds, push and pull; every server holds an even part of the buffer.

    Servers are ranks, spread evenly over them, or with ``on=nodes`` stand on nodes of their own beside those of the
    ranks, one on the first GPU of each.
    """

    name: ClassVar[str] = "parameter-server"
    source: ClassVar[str] = "Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce",)
    auto: ClassVar[tuple[str, ...]] = ()
    servers: int = 1
    on: Literal["ranks", "nodes"] = "ranks"

    def __post_init__(self) -> None:
        check_options(self, self.name, servers=1)

    def helpers(self, ranks: int, gpus_per_node: int) -> int:
        """Return the number of workers in addition to the ranks, so that servers have separate nodes.

        They fill the last node of the ranks, all nodes of servers but the last, and one GPU of that. Workers between
        the servers are idle.
        """
        if self.on == "ranks" or ranks == 1:
            return 0
        return -ranks % gpus_per_node + (self.servers - 1) * gpus_per_node + 1

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; servers on separate nodes are workers of the cluster after the ranks."""
        ranks = demand.ranks
        places = self._places(ranks, cluster)
        worker, server = (side.reshape(-1) for side in np.indices((ranks, self.servers)))
        apart = worker != places[server]
        worker, server = worker[apart], server[apart]
        cuts = np.arange(self.servers + 1, dtype=np.int64) * demand.buffer_elements // self.servers
        sizes_bytes = np.full(len(worker), demand.buffer_bytes / self.servers)
        push, pull = Pattern(worker, places[server]), Pattern(places[server], worker)
        steps = (Step(Round(push, sizes_bytes)), Step(Round(pull, sizes_bytes)))
        stage = Stage(steps, lambda step, _: Pieces.one_each(cuts[server], cuts[server + 1], step == 0))
        return schedule_of(demand, option_text(self), stage, helpers=max(int(places.max()) + 1 - ranks, 0))

    def _places(self, ranks: int, cluster: Cluster) -> Ints:
        """Return the rank or additional worker of each server, int64 of shape (servers,)."""
        if self.on == "ranks":
            if self.servers > ranks:
                raise OptionError(
                    f"parameter-server: servers={self.servers} on ranks need as many ranks, found {ranks}: use fewer "
                    "servers or on=nodes"
                )
            return np.arange(self.servers, dtype=np.int64) * ranks // self.servers
        if ranks == 1:
            return np.zeros(self.servers, np.int64)
        node = cluster.node_of_rank
        beside = ranks + np.flatnonzero(~np.isin(node[ranks:], node[:ranks]))
        free, first = np.unique(node[beside], return_index=True)
        if len(free) < self.servers:
            workers = ranks + self.helpers(ranks, cluster.shape.gpus_per_node)
            raise OptionError(
                f"parameter-server: servers={self.servers} on=nodes needs as many nodes without ranks, found "
                f"{len(free)} with {cluster.workers} workers: build the cluster with {workers} and linear placement"
            )
        return beside[first[: self.servers]]

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return 2(L + D/(s·B)), the time of s servers on a full mesh, where every pair has links of its own.

        Where several workers send to a server through one port they share it and this form does not hold: with more
        than two ranks on every fabric of switches.
        """
        return 2 * hops.round_s(demand.buffer_bytes / self.servers) if demand.ranks > 1 else 0.0
