"""Lines of plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, isfinite

from s2sim.experiment.row_parts import Refused
from s2sim.experiment.rows import Result, Row
from s2sim.traffic.collective_result import CollectiveResult
from s2sim.uncertainty.interval import format_interval
from s2sim.units import format_bytes, format_number_of, format_rate, format_ratio, format_seconds

UNDEFINED = "-"
REFUSED = "refused"


def factor_text(value: float | None) -> str:
    """Return a ratio for reading.

    >>> factor_text(1.234), factor_text(250.0), factor_text(None)
    ('1.23x', '250x', '-')
    """
    if value is None or not isfinite(value):
        return UNDEFINED if value is None else "inf"
    return f"{value:.2f}x" if value < 100 else f"{value:.0f}x"


def error_text(value: float | None) -> str:
    """Return a relative error for reading.

    >>> error_text(0.012345), error_text(0.0)
    ('0.0123', '0')
    """
    return UNDEFINED if value is None else format_ratio(value, 3)


ENDS_WITH = {"sign": "only signs", "weights": "own models", "shards": "own parts"}
"""What ranks end with instead of a mean, of which an error tells little, for people."""


def row_error_text(row: Row) -> str:
    """Return the error of a row for reading, where it is more than rounding."""
    return "exact" if row.exact else error_text(row.error.relative_l2)


def seconds_text(value_s: float | None) -> str:
    """Return a time for reading.

    >>> seconds_text(0.0036771), seconds_text(None)
    ('3.677 ms', '-')
    """
    return UNDEFINED if value_s is None else format_seconds(value_s)


def cosine_text(value: float | None) -> str:
    """Return a cosine for reading.

    >>> cosine_text(0.99999)
    '1.0000'
    """
    return UNDEFINED if value is None else f"{value:.4f}"


def rates_text(rate_Bps: float | None) -> str:
    """Return a rate in bytes and in bits a second.

    >>> rates_text(12.5e9)
    '12.5 GB/s (100 Gbps)'
    """
    return UNDEFINED if rate_Bps is None else f"{format_bytes(rate_Bps)}/s ({format_rate(rate_Bps)})"


def share_text(share: float) -> str:
    """Return a share for reading, never rounded up to all.

    >>> share_text(1.0), share_text(0.99996), share_text(0.741)
    ('all', '99.99%', '74.10%')
    """
    return "all" if share == 1 else f"{floor(share * 1e4) / 1e2:.2f}%"


def throughput_text(samples_per_s: float | None) -> str:
    """Return samples a second for reading, to three digits where they are few.

    >>> throughput_text(12345.6), throughput_text(5.1234), throughput_text(None)
    ('12,346', '5.12', '-')
    """
    if samples_per_s is None:
        return UNDEFINED
    return f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.3g}"


def percent_text(share: float) -> str:
    """Return a share in whole percents, never rounded up to all or down to nothing.

    >>> percent_text(0.999), percent_text(1.0), percent_text(0.0), percent_text(0.001)
    ('99%', '100%', '0%', '1%')
    """
    percent = round(100 * share)
    return f"{percent if share in (0, 1) else min(max(percent, 1), 99)}%"


def brief_seconds(value_s: float) -> str:
    """Return a time in three digits.

    >>> brief_seconds(0.0018677)
    '1.87 ms'
    """
    return format_seconds(float(f"{value_s:.3g}"))


def workers_text(count: int) -> str:
    """Return a number of workers for reading."""
    return format_number_of(count, "worker")


def workers_with_mark(row: Row) -> str:
    """Return the number of workers of a row, with a mark where the row goes beyond what was recorded."""
    return f"{workers_text(row.workers)}{'' if row.extrapolated is None else ', extrapolated'}"


def rounds_text(row: Row) -> str:
    """Return the rounds of a row, those before the gradient apart."""
    return f"{row.rounds_before_gradient}+{row.rounds}" if row.rounds_before_gradient else str(row.rounds)


def reason_lines(why: Mapping[str, str]) -> list[str]:
    """Return why reducers cannot win, by option string, a line a reason.

    >>> reason_lines({"s2": "worse than zeros", "topk": "error over 0.1", "s2:cells=1": "worse than zeros"})
    ['Worse than zeros: s2, s2:cells=1.', 'Error over 0.1: topk.']
    """
    by_reason: dict[str, list[str]] = {}
    for name, reason in why.items():
        by_reason.setdefault(reason, []).append(name)
    return [f"{reason[0].upper()}{reason[1:]}: {', '.join(names)}." for reason, names in by_reason.items()]


def refused_lines(refused: Sequence[Refused]) -> list[str]:
    """Return why reducers did not run, a line each, whatever the number of workers.

    >>> from s2sim.experiment.row_parts import Refused
    >>> refused_lines([Refused("tree", 6, "6 is no power of two"), Refused("mask", 6, "mask names no file")])
    ['Refused: tree, 6 is no power of two.', 'Refused: mask names no file.']
    """
    reasons = dict.fromkeys((each.reducer, each.why.rstrip(".")) for each in refused)
    return [f"Refused: {why if why.startswith(reducer) else f'{reducer}, {why}'}." for reducer, why in reasons]


_MIN_DIFFERENCE = 0.0005  # what a tenth of a per cent rounds to


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


def _request_text(result: CollectiveResult) -> str:
    what, beside = f"{result.kind} of {format_bytes(result.size_bytes)} over", result.groups
    if beside is None:
        return f"{what} {workers_text(result.workers)}"
    return f"{what} {workers_text(beside.dp)} in each of {beside.groups} groups (tp={beside.tp}, pp={beside.pp})"


def collective_summary(result: CollectiveResult) -> str:
    """Return the answer in one line."""
    return (
        f"{_request_text(result)} by {result.algorithm}: {_time(result)}, bus bandwidth {rates_text(result.busbw_Bps)}"
    )


def _closed_form(result: CollectiveResult) -> str:
    if result.closed_form_s is None:
        shared = "messages share links"
        return f"none holds: {'things happen meanwhile, or ' if result.effects else ''}{shared}"
    return f"{format_seconds(result.closed_form_s)}, without simulation"


def _time(result: CollectiveResult) -> str:
    text = format_seconds(result.time_s) + (" as packets" if result.network == "packet" else "")
    return text if result.band is None else f"{text} ({format_interval(result.band.low_s, result.band.high_s)})"


def _clocked_text(result: CollectiveResult) -> list[tuple[str, str]]:
    if result.clocked_s is None:
        return []
    difference = (result.time_s - result.clocked_s) / (result.clocked_s or 1)
    takes = f"{difference:+.1%}" if abs(difference) >= _MIN_DIFFERENCE else "the same"
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


def _concurrent_groups_text(result: CollectiveResult) -> list[tuple[str, str]]:
    beside = result.groups
    if beside is None:
        return []
    factor = "no time" if beside.contention is None else factor_text(beside.contention)
    return [("one group alone", f"{format_seconds(beside.alone_s)}: all {beside.groups} at once take {factor}")]


def collective_lines(result: CollectiveResult) -> list[str]:
    """Return the answer with everything that explains it, a line a figure."""
    over = factor_text(result.time_s / result.lower_bound_s) if result.lower_bound_s else "undefined"
    return [
        _request_text(result),
        *aligned(
            [
                ("time", _time(result)),
                *_clocked_text(result),
                *_cross_check(result),
                *_concurrent_groups_text(result),
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
