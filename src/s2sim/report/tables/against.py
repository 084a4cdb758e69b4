"""Simulated times beside those of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.explained import explanation_lines
from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.text import aligned
from s2sim.report.tables.texts import UNDEFINED, factor_text, workers_text
from s2sim.study.collective.against_result import LARGE_BYTES
from s2sim.units import format_seconds
from s2sim.words import number_of

if TYPE_CHECKING:
    from s2sim.study.collective.against_result import AgainstResult, ComparedRow, LogTable

_SHOWN_WAYS = 2


def against_lines(result: AgainstResult) -> list[str]:
    """Return what stands beside what, and how far apart they are."""
    large = sum(row.size_bytes >= LARGE_BYTES for row in result.rows)
    small = len(result.rows) - large
    errors = [
        ("from 1 MiB on", *_error(result.median_abs_log_error_large, result.signed_log_error_large, large)),
        ("below", *_error(result.median_abs_log_error_small, result.signed_log_error_small, small)),
    ]
    library = "the wire alone" if result.spec.library is None else result.spec.library
    return [
        f"{result.kind} over {workers_text(result.workers)}, {library}, against {result.log}",
        *(f"  {_measured(table)}" for table in result.tables),
        "ln(simulated / measured):",
        *aligned(errors, indent="  "),
        *explanation_lines(result),
    ]


def against_grid(result: AgainstResult) -> Grid:
    """Return a line a row of the log, in its order."""
    known = any(row.measured_algorithm for row in result.rows)
    ran = [words("measured\nby", _ran)] if known else []
    return tabulate(
        "simulated beside measured",
        result.rows,
        figures("size\n(B)", lambda row: str(row.size_bytes)),
        figures("measured", lambda row: format_seconds(row.measured_s)),
        figures("simulated", lambda row: format_seconds(row.simulated_s)),
        figures("ratio", lambda row: factor_text(row.ratio)),
        figures("ln", lambda row: f"{row.log_error:+.2f}"),
        figures("busbw\nmeasured\n(GB/s)", lambda row: f"{row.measured_busbw_Bps / 1e9:.2f}"),
        figures("busbw\nsimulated\n(GB/s)", lambda row: f"{row.simulated_busbw_Bps / 1e9:.2f}"),
        *ran,
        words("simulated\nby", lambda row: f"{row.algorithm} {row.protocol}".rstrip()),
    )


def _measured(table: LogTable) -> str:
    """Return what the log says of a table, in one line."""
    said = [f"line {table.line}"]
    if table.ranks is not None:
        said.append(number_of(table.ranks, "rank"))
    if table.hosts:
        said.append(number_of(table.hosts, "host"))
    said += [*table.gpus, *([] if table.library is None else [table.library])]
    said += [] if table.channels is None else [number_of(table.channels, "channel")]
    said += [number_of(count, what) for count, what in ((table.rings, "ring"), (table.trees, "tree")) if count]
    return ", ".join([*said, *table.transports[:_SHOWN_WAYS]])


def _ran(row: ComparedRow) -> str:
    """Return by which algorithm and protocol a row of the log ran."""
    return UNDEFINED if row.measured_algorithm is None else f"{row.measured_algorithm} {row.measured_protocol}"


def _error(median: float | None, signed: float | None, rows: int) -> tuple[str, str]:
    if median is None or signed is None:
        return ("no row", "")
    way = f", simulated too {'slow' if signed > 0 else 'fast'}" if signed else ""
    return (f"median |ln| {median:.2f} over {number_of(rows, 'row')}", f"median {signed:+.2f}{way}")
