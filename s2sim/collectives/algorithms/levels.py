"""All-reduces in levels: inside nodes and across them, in switches, and at parameter servers.

In levels each rank receives the sum of its part of the buffer in its node, reduces that part with the ranks of its
number on all other nodes, and gathers the other parts (Cho et al., MLSys 2019). If nodes have unequal numbers of ranks,
one rank of each receives the sum of the node and exchanges it with other nodes (Karonis et al., IPDPS 2000).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives import Kind
from s2sim.collectives.algorithms.registry import ALGORITHMS, make_algorithm
from s2sim.collectives.algorithms.tree import trees_over_nodes
from s2sim.collectives.schedules import groups as node_groups
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hops
from s2sim.collectives.schedules.pipeline import channel_count, channel_groups
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Schedule, Stage, Step, TransferLegs
from s2sim.errors import ContendedError, OptionError
from s2sim.options import option_text
from s2sim.topology.cluster import Cluster

_Nodes: TypeAlias = list[Ints]
"""The ranks of each node in the order of their GPUs, int64."""


@dataclass(frozen=True, slots=True)
class HierarchicalAllReduce(node_groups.DescribedAlgorithm):
    """In nodes, across nodes, in nodes: links between nodes carry no byte twice."""

    minimums: ClassVar = {"chunks": 1}
    # local, across: names of the algorithm that scatters and gathers inside nodes, ``ring`` unless given, and of the
    # all-reduce between
    local: str | None = None
    across: str = "ring"
    chunks: int = 1  # Pieces of the buffer that go through the three parts one behind the other
    # Whether all ranks of a node take a part of the buffer to the other nodes, or its first one takes all of it, which
    # it gets and hands on over a binomial tree
    mode: Literal["scatter", "leader"] = "scatter"

    def __post_init__(self) -> None:
        node_groups.DescribedAlgorithm.__post_init__(self)
        if self.mode == "leader" and self.local is not None:
            raise OptionError(
                f"hierarchical: local={self.local} has no effect with mode=leader, where a binomial tree leads to the "
                "first rank of each node: leave it out"
            )
        _parse_stage_algorithm("local", self.local or "ring", "reduce_scatter")
        _parse_stage_algorithm("local", self.local or "ring", "all_gather")
        _parse_stage_algorithm("across", self.across, "all_reduce")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; in nodes and between them one chunk at a time is in flight, as in a communicator."""
        order = np.lexsort((cluster.gpu_of_rank, cluster.node_of_rank)).astype(np.int64)
        nodes = np.split(order, np.cumsum(np.unique(cluster.node_of_rank, return_counts=True)[1])[:-1])
        lanes: list[list[Stage]] = []
        for chunk in range(self.chunks):
            begin, end = (cut * demand.buffer_elements // self.chunks for cut in (chunk, chunk + 1))
            make = self._scattered if self.mode == "scatter" else self._led
            lane = make(nodes, begin, end, demand.buffer_bytes / self.chunks, cluster)
            # All chunks have equal bytes: they have the rounds of the first.
            pairs = zip(lane, lanes[0] if lanes else lane, strict=True)
            lanes.append([replace(stage, steps=first.steps) for stage, first in pairs])
        stage = node_groups.joined(lanes[0]) if self.chunks == 1 else _pipelined(lanes)
        return node_groups.schedule_of(demand, option_text(self), stage)

    def _scattered(self, nodes: _Nodes, begin: int, end: int, size_bytes: float, cluster: Cluster) -> list[Stage]:
        if len(sizes := {len(ranks) for ranks in nodes}) > 1:
            raise OptionError(
                f"hierarchical: mode=scatter needs as many ranks on every node, found {min(sizes)} to {max(sizes)}: "
                "use mode=leader or fill the nodes"
            )
        members = np.stack(nodes)
        count, gpus = members.shape
        inside = node_groups.even_groups(members, np.full(count, begin), np.full(count, end), size_bytes)
        between = node_groups.even_groups(members.T, inside.begin[0], inside.end[0], size_bytes / gpus)
        local = self.local or "ring"
        return [
            _stage_rounds("local", local, "reduce_scatter", inside, cluster),
            _stage_rounds("across", self.across, "all_reduce", between, cluster),
            _stage_rounds("local", local, "all_gather", inside, cluster),
        ]

    def _led(self, nodes: _Nodes, begin: int, end: int, size_bytes: float, cluster: Cluster) -> list[Stage]:
        first = np.array([[ranks[0] for ranks in nodes]])
        leaders = node_groups.even_groups(first, np.array([begin]), np.array([end]), size_bytes)
        return [
            _tree(nodes, begin, end, size_bytes, down=False),
            _stage_rounds("across", self.across, "all_reduce", leaders, cluster),
            _tree(nodes, begin, end, size_bytes, down=True),
        ]

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time of rings without shared links.

        2(g - 1)(L_in + D/(g·B_in)) + 2(m - 1)(L_out + D/(g·m·B_out)) for m nodes of g ranks.
        """
        if (self.local or "ring", self.across, self.chunks, self.mode) != ("ring", "ring", 1, "scatter"):
            raise ContendedError(
                f"{option_text(self)} has no closed form, which is for rings and one chunk: simulate it instead"
            )
        gpus = demand.ranks // hops.nodes
        inside_s = hops.within_nodes().round_s(demand.buffer_bytes / gpus)
        across_s = hops.between_nodes().round_s(demand.buffer_bytes / demand.ranks)
        return 2 * (gpus - 1) * inside_s + 2 * (hops.nodes - 1) * across_s


def _parse_stage_algorithm(option: str, name: str, kind: str) -> node_groups.OverGroups:
    algorithm = make_algorithm(name, kind)
    if not isinstance(algorithm, node_groups.OverGroups):
        known = {other: ALGORITHMS.get(other) for other in ALGORITHMS.names()}
        able = [other for other, cls in known.items() if kind in cls.kinds and issubclass(cls, node_groups.OverGroups)]
        raise OptionError(
            f"hierarchical: {option}={name} cannot run over several groups at once; these can: {', '.join(able)}"
        )
    return algorithm


def _stage_rounds(option: str, name: str, kind: Kind, groups: node_groups.Groups, cluster: Cluster) -> Stage:
    """Return the rounds of the algorithm that an option names; a group of one has nothing to send."""
    if groups.members == 1:
        return node_groups.joined([])
    return _parse_stage_algorithm(option, name, kind).fitted(groups, cluster).stage(kind, groups)


def _pipelined(lanes: Sequence[Sequence[Stage]]) -> Stage:
    """Return chunks in sequence; in nodes each is scattered before the preceding one is gathered."""
    parts: list[tuple[Stage, tuple[int, ...]]] = []

    def add(stage: Stage, *before: int | None) -> int:
        parts.append((stage, tuple(number for number in before if number is not None)))
        return len(parts) - 1

    local: int | None = None
    across: int | None = None
    for turn in range(len(lanes) + 1):
        reduced = across
        if turn < len(lanes):
            scatter, between, _ = lanes[turn]
            local = add(scatter, local)
            across = add(between, local, across)
        if turn > 0:
            local = add(lanes[turn - 1][2], local, reduced)
    return node_groups.arranged(parts)


def _tree(nodes: _Nodes, begin: int, end: int, size_bytes: float, *, down: bool) -> Stage:
    """Return the rounds of a binomial tree in every node, up to its leader or down from it."""
    # Upwards, in round k ranks whose number in the node is an odd multiple of 2^k send to the rank 2^k below.
    number = np.concatenate([np.arange(len(ranks)) for ranks in nodes])
    ordered, steps = np.concatenate(nodes), []
    for k in range(int(number.max()).bit_length()):
        below = np.flatnonzero(number % 2 ** (k + 1) == 2**k)
        ends = ordered[below], ordered[below - 2**k]
        steps.append(Step(Round(Pattern(*(reversed(ends) if down else ends)), np.full(len(below), size_bytes))))
    if down:
        steps.reverse()

    def pieces(step: int, _time: int) -> Pieces:
        count = steps[step].round.pattern.messages
        return Pieces.one_each(np.full(count, begin), np.full(count, end), not down)

    return Stage(steps, pieces)


@dataclass(frozen=True, slots=True)
class InNetwork(node_groups.DescribedAlgorithm):
    """One transfer up a tree of switches and down again, cut-through: every rank sends its buffer once."""

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule: one message over all links of the tree, whose root is above all ranks."""
        if demand.ranks > 1:
            cluster.reduction_tree()
        return _one_transfer(self.name, demand)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return L + D/B, with the latency of the longest route up and down, and the rate of the busiest link."""
        return hops.round_s(demand.buffer_bytes) if demand.ranks > 1 else 0.0


@dataclass(frozen=True, slots=True)
class NvlsTree(InNetwork):
    """One transfer, all pieces in flight at once: NVSwitches inside nodes, a pair of trees for each interface between.

    What is busiest decides. Each tree has an even part of the buffer, which every edge carries up and down.
    """

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; `OptionError` on one node, `TopologyError` where nodes have no NVSwitch that sums."""
        if demand.ranks > 1 and cluster.nodes_used == 1:
            raise OptionError("nvls-tree needs several nodes: inside one, in-network is what the NVSwitch does")
        # The edges between nodes of a pair of trees for each channel, upwards and downwards.
        groups, edges = channel_groups(demand, cluster, channel_count(cluster, None), "nodes"), []
        for order in groups.ranks:
            node = cluster.node_of_rank[order]
            for parent in trees_over_nodes(node):
                child = np.flatnonzero((parent >= 0) & (node != node[parent]))
                edges += [(order[child], order[parent[child]]), (order[parent[child]], order[child])]
        src, dst = (np.concatenate(side) for side in zip(*edges, strict=True))
        legs = TransferLegs(src, dst, 1 / (2 * len(groups.ranks)), 2 * (cluster.nodes_used - 1).bit_length())
        cluster.reduction_over_nodes(cluster.routes(src, dst), legs.share, legs.depth)
        return _one_transfer(self.name, demand, legs)


def _one_transfer(algorithm: str, demand: Demand, legs: TransferLegs | None = None) -> Schedule:
    ranks = np.arange(demand.ranks, dtype=np.int64)
    step = Step(Round(Pattern(ranks, ranks, through_switch=True, legs=legs), np.array([float(demand.buffer_bytes)])))
    pieces = Pieces.one_each(np.array([0]), np.array([demand.buffer_elements]), adds=True)
    return node_groups.schedule_of(demand, algorithm, Stage((step,), lambda _step, _time: pieces))


@dataclass(frozen=True, slots=True)
class ParameterServer(node_groups.DescribedAlgorithm):
    """Two rounds, push and pull; every server holds an even part of the buffer.

    Servers are ranks, spread evenly over them, or with ``on=nodes`` stand on nodes of their own beside those of the
    ranks, one on the first GPU of each.
    """

    minimums: ClassVar = {"servers": 1}
    servers: int = 1
    on: Literal["ranks", "nodes"] = "ranks"

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
        return node_groups.schedule_of(demand, option_text(self), stage, helpers=max(int(places.max()) + 1 - ranks, 0))

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
