"""A collective simulated at the sizes of a log, as the log says that it ran, compared with the measured times."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import log
from typing import NamedTuple, cast

from s2sim.collectives import KINDS, Kind
from s2sim.collectives.algorithms.registry import Algorithm, ExplicitRings, ExplicitTrees, read_algorithm
from s2sim.collectives.schedules.demand import Demand, bus_factor, make_demand
from s2sim.collectives.schedules.pipeline import channel_count
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.collectives.timing.routes import RouteTable
from s2sim.collectives.timing.terms import Term, schedule_terms
from s2sim.collectives.timing.timer import AUTO, TimedSchedule, Timer
from s2sim.errors import OptionError, S2SimError, TopologyError, unknown_name
from s2sim.experiment.progress import SILENT, ProgressWatcher, watched
from s2sim.experiment.scenario.cluster import extrapolated_constants_notes
from s2sim.libraries.constants import read_version
from s2sim.libraries.nccl import NcclProfile
from s2sim.provenance import run_record
from s2sim.topology.cluster import Cluster
from s2sim.topology.describe import summary_line
from s2sim.traffic.collective_run import plan_collective
from s2sim.traffic.log_table import MeasuredRow, MeasuredTable
from s2sim.traffic.size_sweep import SizeTiming, time_sizes
from s2sim.traffic.spec import CollectiveSpec
from s2sim.units import PS_PER_S
from s2sim.validation import compare_log_result

# A log with more is taken for damaged, unless --workers requests them.
_MAX_RANKS = 1 << 16
# Ranks times rings or trees: with more, those that s2sim makes serve.
_MAX_PLACES = 1 << 16


def simulate_rows(
    spec: CollectiveSpec, found: Sequence[tuple[MeasuredRow, MeasuredTable]], progress: ProgressWatcher
) -> tuple[list[tuple[SizeTiming, tuple[Term, ...]]], Cluster, list[str]]:
    """Return timing and terms of each row, run as logged, with cluster and notes; no terms over packets or faults."""
    planned = plan_collective(spec)
    cluster, sizes = planned.cluster, [row.size_bytes for row, _ in found]
    if spec.network != "fluid" or planned.by_message:
        timed, _, notes = time_sizes(spec, sizes, progress)
        return [(replace(size, protocol=None), ()) for size in timed], cluster, notes
    asked = [(spec.kind, size) for size in sizes]
    notes = extrapolated_constants_notes(planned.library, planned.scenario, spec.workers, asked)
    timer = LogReplayTimer(cluster, planned.profile, spec.algorithm)
    simulated = []
    for row, table in watched(progress, "simulating sizes", found):
        demand = make_demand(spec.kind, row.size_bytes, spec.workers, spec.root)
        one = timer.time(demand, row, table)
        ran, time_s = one.schedule, one.duration_ps / PS_PER_S
        size = SizeTiming(row.size_bytes, time_s, ran.algorithm, ran.protocol, demand.itemsize)
        simulated.append((size, schedule_terms(one, cluster)))
    return simulated, cluster, notes


class ChosenTables(NamedTuple):
    """Tables of a log that are of one collective over one number of ranks."""

    log: str
    kind: Kind
    workers: int
    tables: tuple[MeasuredTable, ...]

    @property
    def largest_bytes(self) -> int:
        """The largest size of them."""
        return max(row.size_bytes for table in self.tables for row in table.rows)


def choose_tables(
    tables: Sequence[MeasuredTable], origin: str, kind: str | None = None, workers: int | None = None, ask: str = "KIND"
) -> ChosenTables:
    """Return the tables of a log that are of one collective over one number of ranks.

    Without ``kind`` or ``workers`` the log determines them; tables that state neither are of the requested one.
    ``origin`` names the log in the `S2SimError` for a log that states none, several, or another one; ``ask`` is what
    of the command gives the collective.
    """
    if kind is not None and kind not in KINDS:
        raise unknown_name("collective", kind, KINDS)
    named = sorted({table.collective for table in tables if table.collective is not None})
    if kind is None:
        if len(named) != 1:
            found = f"has tables of {', '.join(named)}" if named else "names no collective"
            raise OptionError(f"{origin} {found}: say which with {ask}, for example all_reduce")
        (kind,) = named
    if (known := next((each for each in KINDS if each == kind), None)) is None:
        raise OptionError(f"{origin} is of {kind}, which s2sim does not simulate: it has {', '.join(KINDS)}")
    if not (of_kind := [table for table in tables if table.collective in (None, kind)]):
        raise OptionError(f"{origin} has no table of {kind} but of {', '.join(named)}: leave {ask} out or name another")
    counts = sorted({table.ranks for table in of_kind if table.ranks is not None})
    ran = ", ".join(map(str, counts))
    if workers is None:
        if len(counts) != 1:
            found = f"has tables of {ran} ranks" if counts else "does not say how many ranks ran"
            raise OptionError(f"{origin} {found}: give --workers")
        (workers,) = counts
        if workers > _MAX_RANKS:
            raise OptionError(f"{origin} says that {workers:,} ranks ran: give --workers if that is no damage")
    if not (chosen := tuple(table for table in of_kind if table.ranks in (None, workers))):
        raise OptionError(f"{origin} is of {ran} ranks, not of {workers}: leave --workers out or name another log")
    return ChosenTables(origin, known, workers, chosen)


def check_bus_factors(chosen: ChosenTables) -> None:
    """Refuse tables of which most rows print another ratio of busbw and algbw than that of their collective."""
    own = bus_factor(chosen.kind, chosen.workers)
    # Old versions print the same bandwidth twice of what gathers or scatters.
    old = [("all_gather", 1.0), ("reduce_scatter", 1.0)]
    factors = [*((kind, bus_factor(kind, chosen.workers)) for kind in KINDS), *old]
    for table in chosen.tables if chosen.workers > 1 else ():
        printed = [row.bus_factors for row in table.rows if row.bus_factors]
        fit = [[kind for kind, factor in factors if low <= factor <= high] for low, high in printed]
        unlike = [kinds for kinds in fit if chosen.kind not in kinds]
        if 2 * len(unlike) > len(fit):
            others = dict.fromkeys(kind for kind in min(unlike, key=len) if kind != "barrier")
            raise OptionError(
                f"{chosen.log}: busbw of the table at line {table.line} is not {own:.3g} times algbw, as of "
                f"{chosen.kind} over {chosen.workers} ranks: what ran is {' or '.join(others) or 'over other ranks'}"
            )


def compare_log(
    spec: CollectiveSpec, chosen: ChosenTables, progress: ProgressWatcher = SILENT
) -> compare_log_result.LogComparisonResult:
    """Return simulated beside measured times at tables' sizes; `S2SimError` for what cannot run, or without rows."""
    check_bus_factors(chosen)
    found = [(row, table) for table in chosen.tables for row in table.timed]
    nothing = S2SimError(f"{chosen.log}: nothing to compare, no row has bytes and times above zero on both sides")
    if not found:
        raise nothing
    timed, cluster, notes = simulate_rows(spec, found, progress)
    both = [(row, size, terms) for (row, _), (size, terms) in zip(found, timed, strict=True) if size.time_s]
    if not both:
        raise nothing
    scales, parts = compare_log_result.attribute_errors([terms for *_, terms in both], [row.time_s for row, *_ in both])
    bus = bus_factor(spec.kind, spec.workers)
    rows = tuple(
        compare_log_result.ComparedRow(
            line=row.line,
            size_bytes=row.size_bytes,
            measured_s=row.time_s,
            simulated_s=size.time_s,
            measured_busbw_Bps=bus * row.size_bytes / row.time_s,
            simulated_busbw_Bps=bus * size.size_bytes / size.time_s,
            ratio=size.time_s / row.time_s,
            log_error=log(size.time_s / row.time_s),
            algorithm=size.algorithm,
            measured_algorithm=row.algorithm,
            measured_protocol=row.protocol,
            protocol=size.protocol or "",
            difference_s=size.time_s - row.time_s,
            not_explained_s=compare_log_result.unattributed_s(size.time_s - row.time_s, terms),
            terms=terms,
        )
        for (row, size, _), terms in zip(both, parts, strict=True)
    )
    return compare_log_result.LogComparisonResult(
        spec=spec,
        cluster=summary_line(cluster),
        kind=spec.kind,
        workers=spec.workers,
        log=chosen.log,
        tables=tuple(
            compare_log_result.LogTable(
                *(each.line, each.collective, each.ranks, each.hosts, each.gpus, each.library, each.channels),
                *(len(each.rings), len(each.trees), each.transports),
            )
            for each in chosen.tables
        ),
        rows=rows,
        **compare_log_result.median_log_errors(
            [row.size_bytes >= compare_log_result.LARGE_BYTES for row in rows], [row.log_error for row in rows]
        ),
        terms=tuple(scales),
        notes=(*notes, *compare_log_result.log_notes(spec, chosen.tables, cluster, rows)),
        provenance=run_record(
            spec=spec.to_json(), inputs={}, named=[spec.to_json(), chosen.log], measured=["log"], assumed=["simulation"]
        ),
    )


class LogReplayTimer:
    """Times a collective's logged rows on a cluster, protocols in ``profile``; ``algorithm`` overrides the log's."""

    def __init__(self, cluster: Cluster, profile: LibraryProfile, algorithm: str) -> None:
        self._cluster, self._profile, self._asked = cluster, profile, algorithm
        ways = RouteTable(cluster)
        kept = cache(lambda algorithm, profile: Timer(cluster, algorithm, ways, profile))
        self._timer = cast("Callable[[str | Algorithm, LibraryProfile], Timer]", kept)

    def time(self, demand: Demand, row: MeasuredRow, table: MeasuredTable) -> TimedSchedule:
        """Return a demand run as a row of a table states; what the log lacks, or is impossible here, is chosen."""
        profile = self._profile
        if isinstance(profile, NcclProfile):
            if row.protocol in profile.protocol_names:
                profile = replace(profile, only=str(row.protocol))
            library, _, version = (table.library or "").partition(" ")
            if library.lower() == profile.library and not profile.version:
                profile = replace(profile, version=read_version(version))
        if self._asked != AUTO:
            return self._timer(self._asked, profile).time(demand)
        name = compare_log_result.ALGORITHMS.get(row.algorithm or "")
        found: list[TimedSchedule] = []
        if name is not None:
            options = [each for each in profile.candidates(demand, self._cluster) if each.partition(":")[0] == name]
            with suppress(OptionError, TopologyError):
                found = [self._as_given(each, demand, row, table, profile) for each in options or [name]]
        if not found:
            chosen = self._timer(AUTO, profile).time(demand)
            found = [self._as_given(chosen.schedule.algorithm, demand, row, table, profile)]
        return min(found, key=lambda timed: timed.duration_ps)

    def _as_given(
        self, option: str, demand: Demand, row: MeasuredRow, table: MeasuredTable, profile: LibraryProfile
    ) -> TimedSchedule:
        name, channels = option.partition(":")[0], row.channels or table.channels
        given: str | Algorithm = option
        if name == "ring" and (rings := self._each_once(table.rings[: row.channels])):
            given = ExplicitRings(len(rings) if len(rings) > 1 else None, orders=rings)
        elif name == "ring" and channels and channels < channel_count(self._cluster, None):
            given = f"ring:channels={channels}"
        elif name == "double-binary-tree" and (trees := self._each_once(table.trees[: row.channels])):
            chunks = getattr(read_algorithm(option), "chunks", None)
            if chunks is None:
                made = self._timer(option, profile).time(demand).schedule.algorithm
                chunks = getattr(read_algorithm(made), "chunks", None)
            given = ExplicitTrees(len(trees) // 2 if len(trees) > 3 else None, chunks or 1, parents=trees)
        return self._timer(given, profile).time(demand)

    def _each_once(self, channels: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """Return channels that come equally often and so carry the same; None for too many, or not as long as ranks."""
        if any(len(channel) != self._cluster.workers for channel in channels):
            return ()
        times = Counter(channels)
        kept = tuple(times) if len(set(times.values())) == 1 else tuple(channels)
        return kept if len(kept) * self._cluster.workers <= _MAX_PLACES else ()
