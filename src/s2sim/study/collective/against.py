"""A collective simulated at the sizes of a log, beside the times that this measured."""

from __future__ import annotations

from math import log
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2sim.collectives.schedules.demand import KINDS
from s2sim.errors import OptionError, S2SimError, unknown_name
from s2sim.study.collective.against_result import LARGE_BYTES, AgainstResult, ComparedRow, LogTable
from s2sim.study.collective.many_sizes import launches_by_node, time_sizes
from s2sim.study.collective.sizes import bus_factor
from s2sim.study.progress import SILENT
from s2sim.topology.describe import first_line
from s2sim.words import number_of, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.schedules.demand import Kind
    from s2sim.study.collective.many_sizes import TimedSize
    from s2sim.study.collective.spec import CollectiveSpec
    from s2sim.study.measured_logs.table import MeasuredRow, MeasuredTable
    from s2sim.study.progress import Progress
    from s2sim.topology.cluster import Cluster


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
    tables: Sequence[MeasuredTable], origin: str, kind: str | None = None, workers: int | None = None
) -> ChosenTables:
    """Return those tables of a log that are of one collective over one number of ranks.

    Parameters
    ----------
    origin : str
        Names the log in messages.
    kind, workers : str and int, optional
        What to take; without them, what the log says. A table that says neither is what is asked for.

    Raises
    ------
    S2SimError
        Where the log says nothing, several things, or something else than what is asked for.
    """
    if kind is not None and kind not in KINDS:
        raise unknown_name("collective", kind, KINDS)
    named = sorted({table.collective for table in tables if table.collective is not None})
    if kind is None:
        if len(named) != 1:
            found = f"has tables of {', '.join(named)}" if named else "names no collective"
            raise OptionError(f"{origin} {found}: say which with KIND, for example all_reduce")
        kind = named[0]
    known = next((each for each in KINDS if each == kind), None)
    if known is None:
        raise OptionError(f"{origin} is of {kind}, which s2sim does not simulate: it has {', '.join(KINDS)}")
    of_kind = [table for table in tables if table.collective in (None, kind)]
    if not of_kind:
        raise OptionError(f"{origin} has no table of {kind} but of {', '.join(named)}: leave KIND out or name another")
    counts = sorted({table.ranks for table in of_kind if table.ranks is not None})
    if workers is None:
        if len(counts) != 1:
            found = (
                f"has tables of {', '.join(map(str, counts))} ranks" if counts else "does not say how many ranks ran"
            )
            raise OptionError(f"{origin} {found}: give --workers")
        workers = counts[0]
    chosen = tuple(table for table in of_kind if table.ranks in (None, workers))
    if not chosen:
        ran = ", ".join(map(str, counts))
        raise OptionError(f"{origin} is of {ran} ranks, not of {workers}: leave --workers out or name another log")
    return ChosenTables(origin, known, workers, chosen)


def compare(spec: CollectiveSpec, chosen: ChosenTables, progress: Progress = SILENT) -> AgainstResult:
    """Return what a collective takes at the sizes of some tables, beside what these say.

    `S2SimError` for what cannot be simulated as asked, and where no row has both a size and a time.
    """
    measured = [row for table in chosen.tables for row in table.rows if row.size_bytes and row.time_s]
    nothing = S2SimError(f"{chosen.log}: nothing to compare, no row has bytes and times above zero on both sides")
    if not measured:
        raise nothing
    timed, cluster, notes = time_sizes(spec, [row.size_bytes for row in measured], progress)
    bus = bus_factor(spec.kind, spec.workers)
    rows = tuple(_row(row, size, bus) for row, size in zip(measured, timed, strict=True) if size.time_s)
    if not rows:
        raise nothing
    large = [row.log_error for row in rows if row.size_bytes >= LARGE_BYTES]
    small = [row.log_error for row in rows if row.size_bytes < LARGE_BYTES]
    return AgainstResult(
        spec=spec,
        headline=first_line(cluster),
        kind=spec.kind,
        workers=spec.workers,
        log=chosen.log,
        tables=tuple(
            LogTable(table.line, table.collective, table.ranks, table.hosts, table.gpus, table.library, table.channels)
            for table in chosen.tables
        ),
        rows=rows,
        median_abs_log_error_large=median(map(abs, large)) if large else None,
        median_abs_log_error_small=median(map(abs, small)) if small else None,
        signed_log_error_large=median(large) if large else None,
        signed_log_error_small=median(small) if small else None,
        notes=(*notes, *_notes(spec, chosen, cluster, {row.line for row in rows})),
    )


def _row(row: MeasuredRow, size: TimedSize, bus: float) -> ComparedRow:
    return ComparedRow(
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
    )


def _notes(spec: CollectiveSpec, chosen: ChosenTables, cluster: Cluster, compared: set[int]) -> list[str]:
    """Return what else to know: what the log does not say or says otherwise, and which of its lines are left out."""
    notes = []
    if spec.library is None:
        notes.append("simulated is the wire alone: --library nccl adds launches, hops and protocols")
    nodes = len(np.unique(cluster.node_of_rank[: spec.workers]))
    for table in chosen.tables:
        where = f"the table at line {table.line}"
        if table.collective is None:
            notes.append(f"{where} names no collective and is taken for {spec.kind}")
        if table.ranks is None:
            notes.append(f"{where} does not say how many ranks ran and is taken for {spec.workers}")
        if len(table.devices) == spec.workers and table.hosts != nodes:
            notes.append(f"{where} ran on {number_of(table.hosts, 'host')}, simulated are {number_of(nodes, 'node')}")
        by_node = (table.gpus_per_thread or 1) > 1
        if by_node and spec.library is not None and not launches_by_node(spec.library):
            notes.append(f"{where} launched on {table.gpus_per_thread} GPUs from one thread: launch=node charges that")
        wrong = [row.line for row in table.rows if row.wrong]
        if wrong:
            notes.append(f"{_lines(wrong)} measured sums that came out wrong")
        if table.unfinished:
            notes.append(f"{_lines(table.unfinished)} left out: no figures")
        idle = [row.line for row in table.rows if row.line not in compared]
        if idle:
            notes.append(f"{_lines(idle)} left out: no bytes, or no time")
    return notes


def _lines(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[:8]]
    more = len(numbers) - len(shown)
    return f"{plural(len(numbers), 'line')} {', '.join(shown)}{f' and {more} more' if more else ''}"
