"""Pipelined chain from or to a root: chunks behind each other along all ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, sqrt
from typing import ClassVar

import numpy as np

from s2sim.collectives.kinds import Kind
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hops, require_uniform_routes
from s2sim.collectives.schedules.groups import Groups, OverGroups, schedule_of
from s2sim.collectives.schedules.pipeline import Pipeline, channel_groups, mesh_ring_count
from s2sim.collectives.schedules.schedule import Schedule, Stage
from s2sim.options import check_options, option_text
from s2sim.topology.cluster import Cluster

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
