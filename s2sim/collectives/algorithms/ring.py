"""Ring collectives: every rank sends to the next (Patarasuk and Yuan, JPDC 69(2), 2009), and rings along a grid.

On a grid a ring reduce-scatter along each dimension in turn, then all-gathers in reverse order: only D/d_1 bytes pass
the second dimension, and so on; latency grows with the sum of the dimensions instead of their product (Ying et al.,
arXiv:1811.06992, 2018, for two dimensions; Cho et al., MLSys 2019, for any). Parts of the buffer with different orders
of dimensions use all links concurrently (Sack and Gropp, PPoPP 2012).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import isqrt, prod
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import Demand, cut
from s2sim.collectives.schedules.exchange import Hops
from s2sim.collectives.schedules.groups import (
    DescribedAlgorithm,
    Groups,
    OverGroups,
    arranged,
    even_groups,
    joined,
    pattern_of_members,
    schedule_of,
    traffic_of,
)
from s2sim.collectives.schedules.pipeline import Order, channel_count, channel_groups
from s2sim.collectives.schedules.schedule import (
    LazySteps,
    Pattern,
    Pieces,
    Round,
    Schedule,
    Stage,
    Step,
    traffic_between,
)
from s2sim.errors import ContendedError, OptionError
from s2sim.options import option_text
from s2sim.topology.cluster import Cluster
from s2sim.topology.kinds.direct import TorusLayout

# Steps of pieces in flight are all kept in memory.
_MAX_STEPS = 2_000_000
_MAX_CHUNKS = 1 << 16


@dataclass(frozen=True, slots=True)
class Ring(OverGroups):
    """Ring in rank order: bandwidth-optimal, latency linear in ranks."""

    minimums: ClassVar = {"channels": 1, "chunks": 1, "in_flight": 1}
    # Rings that run side by side, each with its part of the buffer, and in every node turned so that each leaves
    # through another GPU; None takes one for each network interface of a node, where there are several nodes
    channels: int | None = None
    chunks: int = 1  # Pieces that each rank's share is cut into
    in_flight: int | None = None  # Pieces that go round together, one behind the other; None takes all
    # When a rank may send its next piece: once the one before it has arrived, or once its last byte has left
    release: Literal["delivered", "sent"] = "delivered"
    # Whether ranks follow each other by their numbers, or node by node and GPU by GPU, as NCCL has them
    order: Order = "ranks"

    def __post_init__(self) -> None:
        OverGroups.__post_init__(self)
        for field in ("channels", "chunks"):
            if (getattr(self, field) or 1) > _MAX_CHUNKS:
                raise OptionError(f"ring: {field}={getattr(self, field)} is more than {_MAX_CHUNKS}: take fewer")
        if self.in_flight is not None and self.in_flight > self.chunks:
            raise OptionError(f"ring: in_flight={self.in_flight} is more than chunks={self.chunks}: give more chunks")
        if self.chunks == 1 and (self.release == "sent" or self.in_flight is not None):
            raise OptionError(
                "ring: release and in_flight have no effect with one chunk in flight: give chunks=2 or more"
            )

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule.

        A reduce-scatter passes partial sums on until each rank has its chunk, in P - 1 rounds; an all-gather passes
        chunks on, in P - 1 rounds; an all-reduce does one after the other on chunks [i·n//P, (i+1)·n//P). With several
        channels each does so with its part of the buffer, or of every contribution.
        """
        channels = channel_count(cluster, self.channels)
        text = option_text(replace(self, channels=channels if channels > 1 else None))
        return schedule_of(demand, text, self.stage(demand.kind, channel_groups(demand, cluster, channels, self.order)))

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        return _unpipelined_rounds(kind, groups) if self.chunks == 1 else self._in_flight(kind, groups)

    def _in_flight(self, kind: Kind, groups: Groups) -> Stage:
        stages = []
        for piece in range(self.chunks):
            begin, end = cut(groups.begin, groups.end, piece, self.chunks)
            stages.append(_unpipelined_rounds(kind, Groups(groups.ranks, begin, end, groups.bytes / self.chunks)))
        # All pieces have the same bytes, and so the same steps.
        rounds = [(index, time) for index, step in enumerate(stages[0].steps) for time in range(step.times)]
        if (count := len(rounds) * self.chunks) > _MAX_STEPS:
            raise OptionError(
                f"ring: chunks={self.chunks} over {groups.members} ranks make {count:,} steps, more than "
                f"{_MAX_STEPS:,}: take fewer chunks"
            )
        flying = self.in_flight or self.chunks
        steps: list[Step] = []
        place: list[tuple[int, int]] = []
        for first in range(0, self.chunks, flying):
            batch = range(first, min(first + flying, self.chunks))
            for k, (index, _) in enumerate(rounds):
                for piece in batch:
                    sent = stages[piece].steps[index].round
                    own = (len(steps) - len(batch),) if k else ()
                    before = (len(steps) - 1,) if steps else ()
                    if self.release == "delivered" or (k == 0 and piece == first):
                        steps.append(Step(sent, after=own + before))
                    else:
                        steps.append(Step(sent, after=own, after_sent=before))
                    place.append((piece, k))

        def pieces(index: int, _time: int) -> Pieces:
            piece, k = place[index]
            return stages[piece].pieces(*rounds[k])

        return Stage(steps, pieces, partial(traffic_of, stages), chain=False)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time without shared links: the slowest hop determines every round.

        R rounds, R = 2(P-1) for an all-reduce and P - 1 else, of L + b/B; b = D/(P·C·K) with C channels and K chunks,
        or the largest contribution over C·K. With F chunks in flight, each sent once the one before has left:
        K/F times (R - 1)·max(F·b/B, L + b/B) + (F - 1)·b/B + L + b/B.
        """
        share = demand.buffer_bytes / demand.ranks if demand.shared else float(demand.sizes_bytes.max())
        size = share / (self.channels or 1) / self.chunks
        rounds = (2 if demand.shared else 1) * (demand.ranks - 1)
        hop_s, sent_s = hops.round_s(size), hops.sending_s(size)
        if rounds == 0:
            return 0.0
        if self.release == "delivered":
            return rounds * self.chunks * hop_s
        total = 0.0
        for first in range(0, self.chunks, self.in_flight or self.chunks):
            flying = min(self.in_flight or self.chunks, self.chunks - first)
            total += (rounds - 1) * max(flying * sent_s, hop_s) + (flying - 1) * sent_s + hop_s
        return total


def _unpipelined_rounds(kind: Kind, groups: Groups) -> Stage:
    """Return the rounds of undivided chunks."""
    # In an all-reduce member i first sends chunk i, and has the sum of chunk i + 1 between the two passes.
    member = np.arange(groups.members)
    pattern = pattern_of_members(groups.ranks, member, np.roll(member, -1))
    if kind == "all_reduce":
        begin, end = np.roll(groups.begin, -1, axis=1), np.roll(groups.end, -1, axis=1)
        between = Groups(groups.ranks, begin, end, np.roll(groups.bytes, -1, axis=1))
        return joined([_ring_steps(between, pattern, adding=True), _ring_steps(between, pattern, adding=False)])
    return _ring_steps(groups, pattern, adding=kind == "reduce_scatter")


def _ring_steps(groups: Groups, pattern: Pattern, *, adding: bool) -> Stage:
    """Return p - 1 rounds in which member i passes a chunk to the next: i - k, or i - 1 - k of partial sums."""
    members = groups.members
    rounds = members - 1

    def chunks(k: int) -> Ints:
        return (np.arange(members) - k - adding) % members

    def pieces(step: int, time: int) -> Pieces:
        chunk = chunks(step + time)
        return Pieces.one_each(groups.begin[:, chunk], groups.end[:, chunk], adding)

    def volume(ranks: int) -> Ints:
        # Every member sends all chunks except one: its own of partial sums, else that of the next member.
        size = groups.end - groups.begin
        sent = size.sum(axis=1, keepdims=True) - (size if adding else np.roll(size, -1, axis=1))
        return traffic_between(ranks, pattern.src, pattern.dst, sent if rounds else np.zeros_like(sent))

    if rounds == 0:
        return Stage((), pieces, volume)
    if (groups.bytes == groups.bytes[:, :1]).all():
        return Stage((Step(Round(pattern, groups.bytes.reshape(-1)), rounds),), pieces, volume)
    steps = LazySteps(rounds, lambda k: Step(Round(pattern, groups.bytes[:, chunks(k)].reshape(-1))))
    return Stage(steps, pieces, volume)


@dataclass(frozen=True, slots=True)
class Torus(DescribedAlgorithm):
    """Rings along each dimension of a grid of ranks, in the order of their GPUs."""

    # Dimensions, such as ``4x4``, of the ranks or of the nodes, whose GPUs are then one more; the last is the innermost
    # and goes first. None takes those of a torus, else the two most nearly equal factors of the nodes.
    size: str | None = None
    # Parts of the buffer that run side by side: one, one for each dimension to begin with, or two of these, one for
    # each direction of the rings
    split: Literal["off", "dimensions", "both-ways"] = "off"

    def __post_init__(self) -> None:
        DescribedAlgorithm.__post_init__(self)
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
            _axis_rounds(grid, order, (begin, end), demand.buffer_bytes / len(ways), back=back)
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


def _axis_rounds(grid: Ints, order: Sequence[int], part: tuple[int, int], size_bytes: float, *, back: bool) -> Stage:
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
