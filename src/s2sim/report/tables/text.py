"""Lines of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.texts import factor_text, rates_text, seconds_text, workers_text
from s2sim.study.fidelity.band import band_text
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.collective.result import CollectiveResult
    from s2sim.study.measuring.result import Result, Row

_LEAST_DIFFERENCE = 0.0005  # what a tenth of a per cent rounds to


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
    return aligned([(row.reducer, workers_text(row.workers), row.bottleneck) for row in result.results])


def _against_ideal(row: Row) -> str:
    factor = row.time_s.total / row.total_ideal_s if row.total_ideal_s else 1.0
    return (
        f"total {format_seconds(row.time_s.total)} against {seconds_text(row.total_ideal_s)} if all ran as asked "
        f"({factor_text(factor)}); grouping and order of launches cost {seconds_text(row.order_gap_s)}"
    )


def lowering_lines(result: Result) -> list[str]:
    """Return, for each reducer, its total as executed against that of the ideal library, then why things are so."""
    totals = [(row.reducer, workers_text(row.workers), _against_ideal(row)) for row in result.results]
    reasons = dict.fromkeys((item.asked, item.executes, item.why) for row in result.results for item in row.lowering)
    return [
        *aligned(totals),
        "",
        *(
            f"{asked}: {why}." if executes == asked else f"{asked} -> {executes}: {why}."
            for asked, executes, why in reasons
        ),
    ]


def _asked(result: CollectiveResult) -> str:
    what, beside = f"{result.kind} of {format_bytes(result.size_bytes)} over", result.groups
    if beside is None:
        return f"{what} {workers_text(result.workers)}"
    return f"{what} {workers_text(beside.dp)} in each of {beside.groups} groups (tp={beside.tp}, pp={beside.pp})"


def collective_summary(result: CollectiveResult) -> str:
    """Return the answer in one line."""
    return f"{_asked(result)} by {result.algorithm}: {_time(result)}, bus bandwidth {rates_text(result.busbw_Bps)}"


def _closed_form(result: CollectiveResult) -> str:
    if result.closed_form_s is None:
        shared = "messages share links"
        return f"none holds: {'things happen meanwhile, or ' if result.effects else ''}{shared}"
    return f"{format_seconds(result.closed_form_s)}, without simulation"


def _time(result: CollectiveResult) -> str:
    text = format_seconds(result.time_s) + (" as packets" if result.network == "packet" else "")
    return text if result.band is None else f"{text} ({band_text(result.band.low_s, result.band.high_s)})"


def _clocked(result: CollectiveResult) -> list[tuple[str, str]]:
    if result.clocked_s is None:
        return []
    difference = (result.time_s - result.clocked_s) / (result.clocked_s or 1)
    takes = f"{difference:+.1%}" if abs(difference) >= _LEAST_DIFFERENCE else "the same"
    text = f"{format_seconds(result.clocked_s)} where all ranks wait for whole rounds: by message it takes {takes}"
    return [("in rounds", text)]


def _cross_check(result: CollectiveResult) -> list[tuple[str, str]]:
    check = result.cross_check
    if check is None:
        return []
    model = (
        f"{check.other} with packets of {format_bytes(check.packet_bytes)}" if check.other == "packet" else check.other
    )
    fill = "" if check.fill_s is None else f", fill of {format_seconds(check.fill_s)} subtracted"
    difference = f"{check.difference:+.2%} from packets to fluid{fill}"
    return [("cross-check", f"{format_seconds(check.time_s)} by {model}: {difference}")]


def _beside(result: CollectiveResult) -> list[tuple[str, str]]:
    beside = result.groups
    if beside is None:
        return []
    factor = "no time" if beside.contention is None else factor_text(beside.contention)
    return [("one group alone", f"{format_seconds(beside.alone_s)}: all {beside.groups} at once take {factor}")]


def collective_lines(result: CollectiveResult) -> list[str]:
    """Return the answer with everything that explains it, a line a figure."""
    over = factor_text(result.time_s / result.lower_bound_s) if result.lower_bound_s else "undefined"
    return [
        _asked(result),
        *aligned(
            [
                ("time", _time(result)),
                *_clocked(result),
                *_cross_check(result),
                *_beside(result),
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
