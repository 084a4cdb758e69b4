"""All-reduces over several levels: inside nodes and across them, and along the dimensions of a grid.

Hierarchical: each rank receives the sum of its part of the buffer in its node, reduces that part with the ranks of its
number on all other nodes, and gathers the other parts (Cho et al., MLSys 2019). If nodes have unequal numbers of ranks,
one rank of each receives the sum of the node and exchanges it with other nodes (Karonis et al., IPDPS 2000).

Torus: a ring reduce-scatter along each dimension in turn, then all-gathers in reverse order. Only D/d_1 bytes pass the
second dimension, and so on; latency grows with the sum of the dimensions instead of their product (Ying et al.,
arXiv:1811.06992, 2018, for two dimensions; Cho et al., MLSys 2019, for any). Parts of the buffer with different orders
of dimensions use all links concurrently (Sack and Gropp, PPoPP 2012).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt, prod
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.algorithms.registry import ALGORITHMS, make_algorithm
from s2sim.collectives.algorithms.ring import Ring
from s2sim.collectives.kinds import Kind
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hops
from s2sim.collectives.schedules.groups import Groups, OverGroups, arranged, even_groups, joined, schedule_of
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Schedule, Stage, Step
from s2sim.errors import ContendedError, OptionError
from s2sim.options import check_options, option_text
from s2sim.topology.cluster import Cluster
from s2sim.topology.kinds.torus import TorusLayout

_Nodes: TypeAlias = list[Ints]
"""The ranks of each node in the order of their GPUs, int64."""


@dataclass(frozen=True, slots=True)
class HierarchicalAllReduce:
    """In nodes, across nodes, in nodes: links between nodes carry no byte twice."""

    name: ClassVar[str] = "hierarchical"
    source: ClassVar[str] = "Cho et al., BlueConnect, MLSys 2019; mode=leader: Karonis et al., IPDPS 2000"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce",)
    auto: ClassVar[tuple[str, ...]] = ()
    # local, across: names of the algorithm that scatters and gathers inside nodes, ``ring`` unless given, and of the
    # all-reduce between
    local: str | None = None
    across: str = "ring"
    chunks: int = 1  # Pieces of the buffer that go through the three parts one behind the other
    # Whether all ranks of a node take a part of the buffer to the other nodes, or its first one takes all of it, which
    # it gets and hands on over a binomial tree
    mode: Literal["scatter", "leader"] = "scatter"

    def __post_init__(self) -> None:
        check_options(self, self.name, chunks=1)
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
        stage = joined(lanes[0]) if self.chunks == 1 else _pipelined(lanes)
        return schedule_of(demand, option_text(self), stage)

    def _scattered(self, nodes: _Nodes, begin: int, end: int, size_bytes: float, cluster: Cluster) -> list[Stage]:
        """Return a reduce-scatter in nodes, an all-reduce of each part between nodes, an all-gather in nodes."""
        sizes = {len(ranks) for ranks in nodes}
        if len(sizes) > 1:
            raise OptionError(
                f"hierarchical: mode=scatter needs as many ranks on every node, found {min(sizes)} to {max(sizes)}: "
                "use mode=leader or fill the nodes"
            )
        members = np.stack(nodes)
        count, gpus = members.shape
        inside = even_groups(members, np.full(count, begin), np.full(count, end), size_bytes)
        between = even_groups(members.T, inside.begin[0], inside.end[0], size_bytes / gpus)
        local = self.local or "ring"
        return [
            _stage_rounds("local", local, "reduce_scatter", inside, cluster),
            _stage_rounds("across", self.across, "all_reduce", between, cluster),
            _stage_rounds("local", local, "all_gather", inside, cluster),
        ]

    def _led(self, nodes: _Nodes, begin: int, end: int, size_bytes: float, cluster: Cluster) -> list[Stage]:
        """Return a reduction to the leader of each node, an all-reduce between leaders, a broadcast in nodes."""
        first = np.array([[ranks[0] for ranks in nodes]])
        leaders = even_groups(first, np.array([begin]), np.array([end]), size_bytes)
        return [
            _tree(nodes, begin, end, size_bytes, down=False),
            _stage_rounds("across", self.across, "all_reduce", leaders, cluster),
            _tree(nodes, begin, end, size_bytes, down=True),
        ]

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time of rings without shared links.

        2(g - 1)(L_in + D/(g·B_in)) + 2(m - 1)(L_out + D/(g·m·B_out)) for m nodes of g ranks.
        """
        if demand.ranks == 1:
            return 0.0
        if (self.local or "ring", self.across, self.chunks, self.mode) != ("ring", "ring", 1, "scatter"):
            raise ContendedError(
                f"{option_text(self)} has no closed form, which is for rings and one chunk: simulate it instead"
            )
        gpus = demand.ranks // hops.nodes
        inside_s = hops.within_nodes().round_s(demand.buffer_bytes / gpus)
        across_s = hops.between_nodes().round_s(demand.buffer_bytes / demand.ranks)
        return 2 * (gpus - 1) * inside_s + 2 * (hops.nodes - 1) * across_s


def _parse_stage_algorithm(option: str, name: str, kind: str) -> OverGroups:
    """Return the algorithm that an option names."""
    algorithm = make_algorithm(name, kind)
    if not isinstance(algorithm, OverGroups):
        known = {other: ALGORITHMS.get(other) for other in ALGORITHMS.names()}
        able = [other for other, cls in known.items() if kind in cls.kinds and issubclass(cls, OverGroups)]
        raise OptionError(
            f"hierarchical: {option}={name} cannot run over several groups at once; these can: {', '.join(able)}"
        )
    return algorithm


def _stage_rounds(option: str, name: str, kind: Kind, groups: Groups, cluster: Cluster) -> Stage:
    """Return the rounds of the algorithm that an option names; a group of one has nothing to send."""
    if groups.members == 1:
        return joined([])
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
    return arranged(parts)


def _tree(nodes: _Nodes, begin: int, end: int, size_bytes: float, *, down: bool) -> Stage:
    """Return the rounds of a binomial tree in every node, up to its leader or down from it.

    Upwards, in round k ranks whose number in the node is an odd multiple of 2^k send to the rank 2^k below.
    """
    number = np.concatenate([np.arange(len(ranks)) for ranks in nodes])
    ordered, steps = np.concatenate(nodes), []
    for k in range(int(number.max()).bit_length()):
        below = np.flatnonzero(number % 2 ** (k + 1) == 2**k)
        ends = ordered[below], ordered[below - 2**k]
        pattern = Pattern(*(reversed(ends) if down else ends))
        steps.append(Step(Round(pattern, np.full(len(below), size_bytes))))
    if down:
        steps.reverse()

    def pieces(step: int, _time: int) -> Pieces:
        count = steps[step].round.pattern.messages
        return Pieces.one_each(np.full(count, begin), np.full(count, end), not down)

    return Stage(steps, pieces)


@dataclass(frozen=True, slots=True)
class Torus:
    """Rings along each dimension of a grid of ranks, in the order of their GPUs."""

    name: ClassVar[str] = "torus"
    source: ClassVar[str] = "Ying et al., arXiv:1811.06992, 2018; split: Sack and Gropp, PPoPP 2012"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce",)
    auto: ClassVar[tuple[str, ...]] = ()
    # Dimensions, such as ``4x4``, of the ranks or of the nodes, whose GPUs are then one more; the last is the innermost
    # and goes first. None takes those of a torus, else the two most nearly equal factors of the nodes.
    size: str | None = None
    # Parts of the buffer that run side by side: one, one for each dimension to begin with, or two of these, one for
    # each direction of the rings
    split: Literal["off", "dimensions", "both-ways"] = "off"

    def __post_init__(self) -> None:
        check_options(self, self.name)
        if self.size is not None and not re.fullmatch(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*", self.size):
            raise OptionError(f"torus: size={self.size} must be whole numbers with x between them, such as 4x4")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; ranks are arranged in the order of their GPUs."""
        sizes = self._sizes(demand.ranks, cluster)
        full = replace(self, size="x".join(map(str, sizes)))
        grid = np.argsort(cluster.gpu_of_rank).reshape(sizes)
        axes = [axis for axis in reversed(range(len(sizes))) if sizes[axis] > 1]
        if self.split == "dimensions" and len(axes) == 1:
            raise OptionError(f"torus: split=dimensions has no effect on size={full.size}, which has one: leave it out")
        orders = [axes] if self.split == "off" else [axes[turn:] + axes[:turn] for turn in range(max(len(axes), 1))]
        directions = (False, True) if self.split == "both-ways" else (False,)
        ways = [(order, back) for order in orders for back in directions]
        cuts = [part * demand.buffer_elements // len(ways) for part in range(len(ways) + 1)]
        lanes = [
            _dimension_rounds(grid, order, (begin, end), demand.buffer_bytes / len(ways), back=back)
            for (order, back), (begin, end) in zip(ways, pairwise(cuts), strict=True)
        ]
        stage = lanes[0] if self.split == "off" else arranged([(lane, ()) for lane in lanes])
        return schedule_of(demand, option_text(full), stage)

    def _sizes(self, ranks: int, cluster: Cluster) -> tuple[int, ...]:
        """Return the dimensions, the innermost last."""
        counts = np.bincount(cluster.node_of_rank)
        nodes, gpus = len(counts), int(counts.max())
        if counts.min() < gpus:
            raise OptionError(
                f"torus: as many ranks are needed on every node, found {counts.min()} to {gpus}: fill the nodes"
            )
        inside = (gpus,) if gpus > 1 else ()
        if self.size is not None:
            sizes = _parse_size(self.size)
            if prod(sizes) not in (ranks, nodes):
                raise OptionError(
                    f"torus: size={self.size} needs {prod(sizes)} ranks or nodes, found {ranks} ranks on {nodes}: give "
                    "a size that fits"
                )
            return sizes if prod(sizes) == ranks else sizes + inside
        if isinstance(cluster.layout, TorusLayout):
            sizes = cluster.layout.sizes
            if prod(sizes) != nodes:
                raise OptionError(
                    f"torus: {nodes} nodes do not fill the {'x'.join(map(str, sizes))} places of {cluster.shape.name}: "
                    "give size or as many workers as it has places for"
                )
            return sizes + inside
        side = next(side for side in range(isqrt(nodes), 0, -1) if nodes % side == 0)
        return (side, nodes // side, *inside)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time without shared links, of a size that is given in full.

        The sum of 2(d_i - 1)(L + D/(d_1···d_i·B)) over the dimensions, the innermost first, with their routes.
        """
        if demand.ranks == 1:
            return 0.0
        if self.split != "off" or self.size is None:
            raise ContendedError("torus has a closed form for a size in ranks without split: simulate it instead")
        sizes = _parse_size(self.size)
        if prod(sizes) != demand.ranks:
            raise OptionError(f"torus: size={self.size} is not of {demand.ranks} ranks: name all dimensions")
        gpus = demand.ranks // hops.nodes
        total_s, inner = 0.0, 1
        for side in reversed(sizes):
            outer = inner * side
            ways = hops.within_nodes() if gpus % outer == 0 else hops.between_nodes() if inner >= gpus else hops
            total_s += 2 * (side - 1) * ways.round_s(demand.buffer_bytes / outer)
            inner = outer
        return total_s


def _parse_size(size: str) -> tuple[int, ...]:
    return tuple(map(int, size.split("x")))


def _dimension_rounds(
    grid: Ints, order: Sequence[int], part: tuple[int, int], size_bytes: float, *, back: bool
) -> Stage:
    """Return the rounds of one part of the buffer along the axes of the grid in this order, and in reverse order."""
    begin, end = (np.full(grid.size, cut, np.int64) for cut in part)
    scatters, gathers = [], []
    for axis in order:
        rows = np.moveaxis(grid, axis, -1).reshape(-1, grid.shape[axis])
        if back:
            rows = rows[:, ::-1]
        groups = even_groups(rows, begin[rows[:, 0]], end[rows[:, 0]], size_bytes)
        scatters.append(Ring().stage("reduce_scatter", groups))
        gathers.append(Ring().stage("all_gather", groups))
        begin[rows], end[rows] = groups.begin, groups.end
        size_bytes /= grid.shape[axis]
    return joined([*scatters, *reversed(gathers)])
