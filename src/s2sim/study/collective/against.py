"""A collective simulated at the sizes of a log, beside the times that this measured."""

from __future__ import annotations

from math import log
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from s2sim.collectives.kinds import KINDS
from s2sim.collectives.schedules.demand import bus_factor
from s2sim.errors import OptionError, S2SimError, unknown_name
from s2sim.study.collective.against_notes import notes_of
from s2sim.study.collective.against_result import LARGE_BYTES, AgainstResult, ComparedRow, LogTable
from s2sim.study.collective.explained import explain, not_explained_s
from s2sim.study.collective.simulated_rows import FoundRow, simulate_rows
from s2sim.study.progress import SILENT
from s2sim.topology.describe import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.kinds import Kind
    from s2sim.study.collective.against_result import TermDifference
    from s2sim.study.collective.simulated_rows import SimulatedRow
    from s2sim.study.collective.spec import CollectiveSpec
    from s2sim.study.measured_logs.table import MeasuredRow, MeasuredTable
    from s2sim.study.progress import Progress


# More are taken for damage of a log, unless asked for.
_MOST_RANKS = 1 << 16


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
        if workers > _MOST_RANKS:
            raise OptionError(f"{origin} says that {workers:,} ranks ran: give --workers if that is no damage")
    chosen = tuple(table for table in of_kind if table.ranks in (None, workers))
    if not chosen:
        ran = ", ".join(map(str, counts))
        raise OptionError(f"{origin} is of {ran} ranks, not of {workers}: leave --workers out or name another log")
    return ChosenTables(origin, known, workers, chosen)


def compare(spec: CollectiveSpec, chosen: ChosenTables, progress: Progress = SILENT) -> AgainstResult:
    """Return what a collective takes at the sizes of some tables, beside what these say.

    `S2SimError` for what cannot be simulated as asked, and where no row has both a size and a time.
    """
    found = [FoundRow(row, table) for table in chosen.tables for row in table.rows if row.size_bytes and row.time_s]
    nothing = S2SimError(f"{chosen.log}: nothing to compare, no row has bytes and times above zero on both sides")
    if not found:
        raise nothing
    timed, cluster, notes = simulate_rows(spec, found, progress)
    both = [(each, size) for each, size in zip(found, timed, strict=True) if size.time_s]
    if not both:
        raise nothing
    scales, parts = explain([size.terms for _, size in both], [each.row.time_s for each, _ in both])
    bus = bus_factor(spec.kind, spec.workers)
    rows = tuple(_row(each.row, size, bus, terms) for (each, size), terms in zip(both, parts, strict=True))
    large = [row.log_error for row in rows if row.size_bytes >= LARGE_BYTES]
    small = [row.log_error for row in rows if row.size_bytes < LARGE_BYTES]
    return AgainstResult(
        spec=spec,
        cluster=first_line(cluster),
        kind=spec.kind,
        workers=spec.workers,
        log=chosen.log,
        tables=tuple(map(_table, chosen.tables)),
        rows=rows,
        median_abs_log_error_large=median(map(abs, large)) if large else None,
        median_abs_log_error_small=median(map(abs, small)) if small else None,
        signed_log_error_large=median(large) if large else None,
        signed_log_error_small=median(small) if small else None,
        terms=tuple(scales),
        notes=(*notes, *notes_of(spec, chosen.tables, cluster, rows)),
    )


def _table(table: MeasuredTable) -> LogTable:
    return LogTable(
        line=table.line,
        collective=table.collective,
        ranks=table.ranks,
        hosts=table.hosts,
        gpus=table.gpus,
        library=table.library,
        channels=table.channels,
        rings=len(table.rings),
        trees=len(table.trees),
        transports=table.transports,
    )


def _row(row: MeasuredRow, size: SimulatedRow, bus: float, terms: tuple[TermDifference, ...]) -> ComparedRow:
    difference_s = size.time_s - row.time_s
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
        protocol=size.protocol,
        difference_s=difference_s,
        not_explained_s=not_explained_s(difference_s, terms),
        terms=terms,
    )
