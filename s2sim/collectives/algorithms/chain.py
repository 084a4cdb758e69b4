"""Pipelined chain from or to a root: chunks behind each other along all ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, sqrt
from typing import ClassVar

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.channels import channel_groups, mesh_ring_count
from s2sim.collectives.schedules.demand import Demand, Kind
from s2sim.collectives.schedules.exchange import Hops, require_uniform_routes
from s2sim.collectives.schedules.groups import Groups, OverGroups, cut, schedule_of
from s2sim.collectives.schedules.schedule import (
    CombinedRound,
    LazySteps,
    Pattern,
    Pieces,
    Round,
    Schedule,
    Stage,
    Step,
    traffic_between,
)
from s2sim.options import check_options, option_text
from s2sim.topology.cluster import Cluster
from s2sim.units import PS_PER_S

# Beyond so many chunks the fill of the pipeline is below a per cent up to dozens of ranks, and rounds cost time here.
_MAX_CHUNKS = 4096


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
        """Return the schedule: every channel's order of ranks, from the root on."""
        channels = self.channels or mesh_ring_count(cluster)
        groups = channel_groups(demand, cluster, channels)
        first = np.argmax(groups.ranks == demand.root, axis=1)
        from_root = (first[:, None] + np.arange(groups.members)) % groups.members
        groups = replace(groups, ranks=np.take_along_axis(groups.ranks, from_root, axis=1))
        fitted = replace(self.fitted(groups, cluster), channels=channels if channels > 1 else None)
        return schedule_of(demand, option_text(fitted), fitted.stage(demand.kind, groups))

    def fitted(self, groups: Groups, cluster: Cluster) -> Chain:
        """Return the chain with the chunks that the rates of the cluster choose."""
        return replace(self, chunks=self._chunks(groups, cluster))

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part, from or to its first member."""
        return _pipelined(kind, groups, self.chunks or 1)

    def _chunks(self, groups: Groups, cluster: Cluster) -> int:
        """Return the K that minimises (P - 2 + K)(L + b·D/K), at most one a position.

        L is the largest latency on the way, and the busiest link needs b seconds a byte: the number of pairs that
        cross it over its rate.
        """
        most = int(min(_MAX_CHUNKS, max(1, (groups.end[:, -1] - groups.begin[:, 0]).max())))
        if self.chunks is not None or groups.members <= 2:
            return self.chunks or 1
        routes = cluster.routes(groups.ranks[:, :-1].reshape(-1), groups.ranks[:, 1:].reshape(-1))
        load = np.bincount(routes.links, routes.weights, len(cluster.fabric))
        busy_s = float((load / cluster.fabric.rate_Bps).max()) * float(groups.bytes.sum(axis=1).max())
        latency_s = float(routes.latency_ps.max()) / PS_PER_S
        if latency_s == 0:
            return most
        # Convex in K: the best whole number lies beside the best of all.
        best = min(float(most), max(1.0, sqrt((groups.members - 2) * busy_s / latency_s)))
        return min(floor(best), ceil(best), key=lambda k: (groups.members - 2 + k) * (latency_s + busy_s / k))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where messages share nothing and all ways are alike: (P - 2 + K)(L + D/(C·K·B))."""
        require_uniform_routes(self.name, hops)
        chunks = self.chunks or 1
        return _rounds(demand.ranks, chunks) * hops.round_s(demand.buffer_bytes / (self.channels or 1) / chunks)


def _rounds(members: int, chunks: int) -> int:
    return members - 2 + chunks if members > 1 else 0


def _pipelined(kind: Kind, groups: Groups, chunks: int) -> Stage:
    """Return the rounds in which chunks go along each group's members, or back along them to be summed."""
    line = groups.ranks if kind == "broadcast" else groups.ranks[:, ::-1]
    pairs = groups.members - 1
    begin, end = groups.begin[:, :1], groups.end[:, -1:]
    chunk_bytes = groups.bytes.sum(axis=1, keepdims=True) / chunks
    rounds = _rounds(groups.members, chunks)
    # From round `pairs - 1` until the first chunk runs out all pairs are at work: one step. All other rounds differ.
    full = max(1, chunks - pairs + 1) if pairs else 0

    def working(step: int, time: int) -> tuple[Ints, int]:
        """Return the pairs at work, and the round."""
        round_number = step + time + (full - 1 if step >= pairs else 0)
        return np.arange(max(0, round_number - chunks + 1), min(pairs, round_number + 1)), round_number

    every = Pattern(line[:, :-1].reshape(-1), line[:, 1:].reshape(-1))
    group, pair = np.divmod(np.arange(every.messages), max(pairs, 1))

    def make(step: int) -> Step:
        at, _ = working(step, 0)
        pattern = every.part((np.arange(len(line))[:, None] * pairs + at).reshape(-1))
        sizes_bytes = np.broadcast_to(chunk_bytes, (len(line), len(at))).reshape(-1)
        return Step(Round(pattern, sizes_bytes), full if step == pairs - 1 else 1)

    def pieces(step: int, time: int) -> Pieces:
        at, round_number = working(step, time)
        start, stop = cut(begin, end, round_number - at, chunks)
        return Pieces(np.arange(start.size), start.reshape(-1), stop.reshape(-1), np.full(start.size, kind == "reduce"))

    def volume(ranks: int) -> Ints:
        """Every rank but the last of its line sends its group's part, every one but the first gets it."""
        sizes = np.broadcast_to(end - begin, (len(line), pairs))
        return traffic_between(ranks, line[:, :-1].reshape(-1), line[:, 1:].reshape(-1), sizes)

    whole = (
        CombinedRound(Round(every, np.repeat(chunk_bytes.reshape(-1), pairs)), pair, chunks, group) if pairs else None
    )
    return Stage(LazySteps(rounds - full + 1 if pairs else 0, make), pieces, volume, whole=whole)
