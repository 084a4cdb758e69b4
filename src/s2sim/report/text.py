"""Lines of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.rows import factor_text, rates_text, workers_text
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.collective import CollectiveResult
    from s2sim.study.result import Result


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Return a line a row, all cells but the last as wide as the widest of their column.

    >>> aligned([("a", "1"), ("long", "2")])
    ['a     1', 'long  2']
    """
    if not rows:
        return []
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    widths[-1] = 0
    return [
        indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def bottleneck_lines(result: Result) -> list[str]:
    """Return what each reducer waits for, a line each."""
    return aligned([(row.option_string, workers_text(row.workers), row.bottleneck) for row in result.rows])


def _asked(result: CollectiveResult) -> str:
    return f"{result.kind} of {format_bytes(result.size_bytes)} over {workers_text(result.workers)}"


def collective_summary(result: CollectiveResult) -> str:
    """Return the answer in one line."""
    return (
        f"{_asked(result)} by {result.algorithm}: "
        f"{format_seconds(result.time_s)}, bus bandwidth {rates_text(result.busbw_Bps)}"
    )


def _closed_form(result: CollectiveResult) -> str:
    if result.closed_form_s is None:
        return "none holds: messages share links"
    return f"{format_seconds(result.closed_form_s)}, without simulation"


def collective_lines(result: CollectiveResult) -> list[str]:
    """Return the answer with everything that explains it, a line a figure."""
    over = factor_text(result.time_s / result.lower_bound_s) if result.lower_bound_s else "undefined"
    return [
        _asked(result),
        *aligned(
            [
                ("time", format_seconds(result.time_s)),
                ("algbw", f"{rates_text(result.algbw_Bps)}: size over time"),
                ("busbw", f"{rates_text(result.busbw_Bps)}: as nccl-tests defines it"),
                ("lower bound", f"{format_seconds(result.lower_bound_s)}: {result.lower_bound_why}"),
                ("time / bound", over),
                ("closed form", _closed_form(result)),
                ("algorithm", f"{result.algorithm} ({result.why})"),
                ("sent per rank", format_bytes(result.bytes_per_rank)),
            ],
            indent="  ",
        ),
    ]
