"""Values and results as human-readable text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor, isfinite
from typing import TYPE_CHECKING, TypeVar

from s2sim.tables import group_by
from s2sim.units import format_bytes, format_number_of, format_rate, format_ratio, format_seconds

if TYPE_CHECKING:
    from s2sim.experiment.row_parts import Refused
    from s2sim.experiment.rows import Result, Row

T = TypeVar("T")

UNDEFINED, REFUSED = "-", "refused"


def factor_text(value: float | None) -> str:
    """Return a ratio as text.

    >>> factor_text(1.234), factor_text(250.0), factor_text(None)
    ('1.23x', '250x', '-')
    """
    if value is None or not isfinite(value):
        return UNDEFINED if value is None else "inf"
    return f"{value:.2f}x" if value < 100 else f"{value:.0f}x"


def optional_text(write: Callable[[T], str]) -> Callable[[T | None], str]:
    """Return what writes None as a dash, and other values as ``write`` does."""
    return lambda value: UNDEFINED if value is None else write(value)


error_text: Callable[[float | None], str] = optional_text(lambda value: format_ratio(value, 3))
"""A relative error, such as 0.0123."""

log_error_text = optional_text("{:.2f}".format)
"""The size of a log error."""

signed_text = optional_text("{:+.2f}".format)
"""A signed log error."""

cosine_text = optional_text("{:.4f}".format)
seconds_text = optional_text(format_seconds)

ENDS_WITH = {"sign": "only signs", "weights": "own models", "shards": "own parts", "update": "a step"}
"""Results of ranks that are not estimates of the mean, for which an error is of little use."""


def row_error_text(row: Row) -> str:
    """Return the error of a row, see `loss_text`."""
    return loss_text(row.error.relative_l2, row.error_range, exact=row.exact)


def loss_text(error: float | None, error_range: tuple[float, float] | None, *, exact: bool) -> str:
    """Return an error with ``~`` before one that may be off by a factor of 2, or that it is exact."""
    return "exact" if exact else f"{'~' if error_range is not None else ''}{error_text(error)}"


rates_text: Callable[[float | None], str] = optional_text(
    lambda rate_Bps: f"{format_bytes(rate_Bps)}/s ({format_rate(rate_Bps)})"
)
"""A rate in bytes and in bits a second, such as 12.5 GB/s (100 Gbps)."""


def share_text(share: float) -> str:
    """Return a share in per cent, never rounded up to all.

    >>> share_text(1.0), share_text(0.99996), share_text(0.741)
    ('all', '99.99%', '74.10%')
    """
    return "all" if share == 1 else f"{floor(share * 1e4) / 1e2:.2f}%"


def throughput_text(samples_per_s: float | None) -> str:
    """Return samples per second, with three digits below 100.

    >>> throughput_text(12345.6), throughput_text(5.1234), throughput_text(None)
    ('12,346', '5.12', '-')
    """
    if samples_per_s is None:
        return UNDEFINED
    return f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.3g}"


def workers_text(count: int) -> str:
    """Return a number of workers as text."""
    return format_number_of(count, "worker")


def group_by_workers(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Return rows by their number of workers, in their order."""
    return group_by(rows, lambda row: row.workers)


def workers_with_mark(row: Row) -> str:
    """Return the number of workers of a row, with a mark if the row is extrapolated."""
    return f"{workers_text(row.workers)}{'' if row.extrapolated is None else ', extrapolated'}"


def reason_lines(why: Mapping[str, str]) -> list[str]:
    """Return a line per reason for which reducers cannot win; ``why`` is by option string.

    >>> reason_lines({"s2": "worse than zeros", "topk": "error over 0.1", "s2:cells=1": "worse than zeros"})
    ['Worse than zeros: s2, s2:cells=1.', 'Error over 0.1: topk.']
    """
    by_reason = group_by(why, why.__getitem__)
    return [f"{reason[0].upper()}{reason[1:]}: {', '.join(names)}." for reason, names in by_reason.items()]


def refused_lines(refused: Sequence[Refused]) -> list[str]:
    """Return a line per reducer that did not run, with the reason, regardless of the number of workers.

    >>> from s2sim.experiment.row_parts import Refused
    >>> refused_lines([Refused("tree", 6, "6 is no power of two"), Refused("mask", 6, "mask names no file")])
    ['Refused: tree, 6 is no power of two.', 'Refused: mask names no file.']
    """
    reasons = dict.fromkeys((each.reducer, each.why.rstrip(".")) for each in refused)
    return [f"Refused: {why if why.startswith(reducer) else f'{reducer}, {why}'}." for reducer, why in reasons]


def note_lines(notes: Iterable[str]) -> list[str]:
    """Return a line per note."""
    return [f"Note: {note}." for note in notes]


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Return a line per row; all cells except the last are as wide as the widest of their column.

    >>> aligned([("a", "1"), ("long", "2")])
    ['a     1', 'long  2']
    """
    if not rows:
        return []
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    widths[-1] = 0
    return [indent + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def bottleneck_lines(result: Result) -> list[str]:
    """Return a line per reducer with its bottleneck."""
    return aligned([(row.reducer, workers_text(row.workers), row.bottleneck) for row in result.results])


def lowering_lines(result: Result) -> list[str]:
    """Return, for each reducer, its total compared with that of the ideal library; then reasons."""

    def against_ideal(row: Row) -> str:
        total_s, ideal_s = row.time_s.total, row.total_ideal_s
        return (
            f"total {format_seconds(total_s)} against {seconds_text(ideal_s)} if all ran as asked "
            f"({factor_text(total_s / ideal_s if ideal_s else 1.0)}); grouping and order of launches cost "
            f"{seconds_text(row.order_gap_s)}"
        )

    totals = [(row.reducer, workers_text(row.workers), against_ideal(row)) for row in result.results]
    reasons = dict.fromkeys((item.asked, item.executes, item.why) for row in result.results for item in row.lowering)
    lines = [f"{asked}{'' if executes == asked else f' -> {executes}'}: {why}." for asked, executes, why in reasons]
    return [*aligned(totals), "", *lines]
