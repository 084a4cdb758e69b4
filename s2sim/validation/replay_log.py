"""Times sizes as a log says that they ran: by its algorithm and protocol, over its rings and trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from s2sim.collectives.algorithms.registry import Algorithm, ExplicitRings, ExplicitTrees, read_algorithm
from s2sim.collectives.schedules.channels import channel_count
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.collectives.timing.routes import RouteTable
from s2sim.collectives.timing.timer import AUTO, TimedSchedule, Timer
from s2sim.errors import OptionError, TopologyError
from s2sim.libraries.constants import read_version
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import Cluster
from s2sim.traffic.log_table import MeasuredRow, MeasuredTable

T = TypeVar("T")


ALGORITHMS = {
    "ring": "ring",
    "tree": "double-binary-tree",
    "nvls": "in-network",
    "nvls-tree": "nvls-tree",
    "collnet-direct": "in-network",
    "collnet-chain": "in-network",
    "pat": "pat",
}
"""What s2sim calls the algorithms of a log."""

# Ranks times rings or trees: with more, those that s2sim makes serve.
_MAX_PLACES = 1 << 16


class LogReplayTimer:
    """Times rows of one collective on one cluster.

    The protocol of a row and the version of a table are put into ``profile``; ``algorithm`` is an option string that
    overrides the log's, or ``auto``.
    """

    def __init__(self, cluster: Cluster, profile: LibraryProfile, algorithm: str) -> None:
        self._cluster, self._profile, self._asked = cluster, profile, algorithm
        self._ways = RouteTable(cluster)
        self._timers: dict[tuple[str | Algorithm, LibraryProfile], Timer] = {}

    def time(self, demand: Demand, row: MeasuredRow, table: MeasuredTable) -> TimedSchedule:
        """Return how a demand runs as a row of a table says; what the log lacks, or cannot be here, is chosen."""
        profile = self._profile_of(row, table)
        if self._asked != AUTO:
            return self._timer(self._asked, profile).time(demand)
        name = ALGORITHMS.get(row.algorithm or "")
        found: list[TimedSchedule] = []
        if name is not None:
            options = [each for each in profile.candidates(demand, self._cluster) if each.partition(":")[0] == name]
            with suppress(OptionError, TopologyError):
                found = [self._as_given(each, demand, row, table, profile) for each in options or [name]]
        if not found:
            chosen = self._timer(AUTO, profile).time(demand)
            found = [self._as_given(chosen.schedule.algorithm, demand, row, table, profile)]
        return min(found, key=lambda timed: timed.duration_ps)

    def _timer(self, algorithm: str | Algorithm, profile: LibraryProfile) -> Timer:
        key = algorithm, profile
        if key not in self._timers:
            self._timers[key] = Timer(self._cluster, algorithm, self._ways, profile)
        return self._timers[key]

    def _as_given(
        self, option: str, demand: Demand, row: MeasuredRow, table: MeasuredTable, profile: LibraryProfile
    ) -> TimedSchedule:
        name, channels = option.partition(":")[0], row.channels or table.channels
        given: str | Algorithm = option
        if name == "ring" and (rings := self._each_once(table.rings[: row.channels])):
            given = ExplicitRings(rings)
        elif name == "ring" and channels and channels < channel_count(self._cluster, None):
            given = f"ring:channels={channels}"
        elif name == "double-binary-tree" and (trees := self._each_once(table.trees[: row.channels])):
            chunks = getattr(read_algorithm(option), "chunks", None)
            if chunks is None:
                made = self._timer(option, profile).time(demand).schedule.algorithm
                chunks = getattr(read_algorithm(made), "chunks", None)
            given = ExplicitTrees(trees, chunks or 1)
        return self._timer(given, profile).time(demand)

    def _each_once(self, channels: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """Return channels of which each comes as often as the others once: together they carry the same.

        None where there are too many, or not as long as there are ranks.
        """
        if any(len(channel) != self._cluster.workers for channel in channels):
            return ()
        times = Counter(channels)
        kept = tuple(times) if len(set(times.values())) == 1 else tuple(channels)
        return kept if len(kept) * self._cluster.workers <= _MAX_PLACES else ()

    def _profile_of(self, row: MeasuredRow, table: MeasuredTable) -> LibraryProfile:
        profile = self._profile
        if not isinstance(profile, NcclProfile):
            return profile
        if row.protocol in profile.protocol_names:
            profile = replace(profile, only=str(row.protocol))
        library, _, version = (table.library or "").partition(" ")
        if library.lower() == profile.library and not profile.version:
            profile = replace(profile, version=read_version(version))
        return profile
