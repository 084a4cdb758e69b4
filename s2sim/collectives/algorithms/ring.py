"""Rings, in which every rank sends to the next (Patarasuk and Yuan, JPDC 69(2), 2009), and pipelined chains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import ceil, floor, sqrt
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.kinds import Kind
from s2sim.collectives.schedules.demand import Demand, cut
from s2sim.collectives.schedules.exchange import Hops, require_uniform_routes
from s2sim.collectives.schedules.groups import Groups, OverGroups, joined, pattern_of_members, schedule_of, traffic_of
from s2sim.collectives.schedules.pipeline import Pipeline, channel_count, channel_groups, mesh_ring_count
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
from s2sim.errors import OptionError
from s2sim.options import check_options, option_text
from s2sim.topology.cluster import Cluster

# Steps of pieces in flight are all kept in memory.
_MAX_STEPS = 2_000_000
_MAX_CHUNKS = 1 << 16


@dataclass(frozen=True, slots=True)
class Ring(OverGroups):
    """Ring in rank order: bandwidth-optimal, latency linear in ranks."""

    name: ClassVar[str] = "ring"
    source: ClassVar[str] = "Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce", "all_gather", "reduce_scatter", "barrier")
    auto: ClassVar[tuple[str, ...]] = ("all_reduce", "all_gather", "reduce_scatter")
    # Rings that run side by side, each with its part of the buffer, and in every node turned so that each leaves
    # through another GPU; None takes one for each network interface of a node, where there are several nodes
    channels: int | None = None
    chunks: int = 1  # Pieces that each rank's share is cut into
    in_flight: int | None = None  # Pieces that go round together, one behind the other; None takes all
    # When a rank may send its next piece: once the one before it has arrived, or once its last byte has left
    release: Literal["delivered", "sent"] = "delivered"

    def __post_init__(self) -> None:
        check_options(self, self.name, channels=1, chunks=1, in_flight=1)
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
        return schedule_of(demand, text, self.stage(demand.kind, channel_groups(demand, cluster, channels)))

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group runs ``kind`` on its part: one ring per group, concurrently."""
        return _unpipelined_rounds(kind, groups) if self.chunks == 1 else self._in_flight(kind, groups)

    def _in_flight(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds of several pieces that follow each other around the ring."""
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
        ranks = demand.ranks
        shared = demand.shared
        share = demand.buffer_bytes / ranks if shared else float(demand.sizes_bytes.max())
        size = share / (self.channels or 1) / self.chunks
        rounds = (2 if shared else 1) * (ranks - 1)
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
    """Return the rounds of undivided chunks.

    In an all-reduce member i first sends chunk i, and has the sum of chunk i + 1 between the two passes.
    """
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


# With more chunks the fill of the pipeline is below 1 % up to dozens of ranks, and rounds cost simulation time.
_MAX_FITTED_CHUNKS = 4096


@dataclass(frozen=True, slots=True)
class Chain(OverGroups):
    """Every rank passes chunks on to the next, in rank order from the root on: for large messages.

    Chunk c crosses the pair number i in round c + i, so that there are P - 2 + K rounds. All ranks together send
    (P - 1)·D bytes. Unless the number of ``chunks`` is given, it is the one that the closed form makes fastest.
    """

    name: ClassVar[str] = "chain"
    source: ClassVar[str] = "van de Geijn and Watts, Concurrency Pract. Exp. 9(4), 1997"
    kinds: ClassVar[tuple[str, ...]] = ("broadcast", "reduce")
    auto: ClassVar[tuple[str, ...]] = ("broadcast", "reduce")
    # Chains that run side by side as rings do, each with its part of the buffer; None takes those of a mesh of NVLinks
    # that has all ranks, else one
    channels: int | None = None
    chunks: int | None = None  # Pieces that each channel's part is cut into

    def __post_init__(self) -> None:
        check_options(self, self.name, channels=1, chunks=1)

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule: in every channel its order of ranks, from the root on."""
        channels = self.channels or mesh_ring_count(cluster)
        groups = channel_groups(demand, cluster, channels)
        first = np.argmax(groups.ranks == demand.root, axis=1)
        from_root = (first[:, None] + np.arange(groups.members)) % groups.members
        groups = replace(groups, ranks=np.take_along_axis(groups.ranks, from_root, axis=1))
        fitted = replace(self.fitted(groups, cluster), channels=channels if channels > 1 else None)
        return schedule_of(demand, option_text(fitted), fitted.stage(demand.kind, groups))

    def fitted(self, groups: Groups, cluster: Cluster) -> Chain:
        """Return the chain with the chunks that suit the rates of the cluster."""
        return replace(self, chunks=self._chunks(groups, cluster))

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part, from or to its first member."""
        return _line(kind, groups.members).stage(groups, self.chunks or 1)

    def _chunks(self, groups: Groups, cluster: Cluster) -> int:
        """Return the K that minimises (P - 2 + K)(L + b·D/K), at most one per position.

        L is the largest latency, b are the seconds per byte of the busiest link: the number of pairs that cross it over
        its rate.
        """
        most = int(min(_MAX_FITTED_CHUNKS, max(1, (groups.end[:, -1] - groups.begin[:, 0]).max())))
        if self.chunks is not None or groups.members <= 2:
            return self.chunks or 1
        latency_s, busy_s, _ = _line("broadcast", groups.members).loads(groups, cluster)
        if latency_s == 0:
            return most
        busy_s *= float(groups.bytes.sum(axis=1).max())
        # Convex in K: the best integer is next to the best real number.
        best = min(float(most), max(1.0, sqrt((groups.members - 2) * busy_s / latency_s)))
        return min(floor(best), ceil(best), key=lambda k: (groups.members - 2 + k) * (latency_s + busy_s / k))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time without shared links, on routes of one latency and rate: (P - 2 + K)(L + D/(C·K·B))."""
        require_uniform_routes(self.name, hops)
        chunks = self.chunks or 1
        round_s = hops.round_s(demand.buffer_bytes / (self.channels or 1) / chunks)
        return _line("broadcast", demand.ranks).rounds(chunks) * round_s


def _line(kind: Kind, members: int) -> Pipeline:
    """Return the pairs of neighbours, from the first member to the last, or for a reduce back."""
    pair = np.arange(members - 1)
    reduces = kind == "reduce"
    sender = members - 1 - pair if reduces else pair
    receiver = sender - 1 if reduces else sender + 1
    return Pipeline(1, sender, receiver, np.zeros_like(pair), pair, np.full(len(pair), reduces))
