"""Figures of result rows as they are written for people, in tables and pictures alike."""

from __future__ import annotations

from math import floor, isfinite
from typing import TYPE_CHECKING

from s2sim.units import format_bytes, format_rate, format_ratio, format_seconds
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.study.measuring.result import Row
    from s2sim.study.measuring.row_parts import Refused

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
    return number_of(count, "worker")


def marked_workers(row: Row) -> str:
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

    >>> from s2sim.study.measuring.row_parts import Refused
    >>> refused_lines([Refused("tree", 6, "6 is no power of two"), Refused("mask", 6, "mask names no file")])
    ['Refused: tree, 6 is no power of two.', 'Refused: mask names no file.']
    """
    reasons = dict.fromkeys((each.reducer, each.why.rstrip(".")) for each in refused)
    return [f"Refused: {why if why.startswith(reducer) else f'{reducer}, {why}'}." for reducer, why in reasons]
