"""The first screen of a run: one table of 80 columns, sorted, with what cannot win and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.texts import factor_text, marked_workers, row_error_text
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.result import Result, Row, Verdict
    from s2sim.study.measuring.row_parts import Judgement

_BAR = 12
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"
# Why a row cannot win, in so many characters as a bar has.
_IN_A_WORD = {
    "worse than zeros": "worse than 0",
    "error over": "over limit",
    "error undefined": "undefined",
    "residuals diverge": "diverges",
}


def _judgement(row: Row) -> Judgement:
    assert row.judgement is not None
    return row.judgement


def _bar(share: float) -> str:
    """Return a bar of up to 12 characters.

    >>> _bar(0.5), _bar(0.01)
    ('██████', '▏')
    """
    eighths = max(1, round(share * _BAR * 8))
    return _FULL * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _why_not(row: Row, dense: Row) -> str | None:
    """Return in a word why a row cannot win; None where it could."""
    judgement = _judgement(row)
    if row is dense:
        return None
    if judgement.rejected is not None:
        return in_a_word(judgement.rejected)
    if judgement.time_s >= _judgement(dense).time_s:
        return "slower"
    return "beaten" if judgement.dominated_by is not None else None


def in_a_word(rejected: str) -> str:
    """Return why a row cannot win, as short as a bar.

    >>> in_a_word("worse than zeros on encoder.weight")
    'worse than 0'
    """
    return next(text for reason, text in _IN_A_WORD.items() if rejected.startswith(reason))


def answer_grid(rows: Sequence[Row], verdict: Verdict) -> tuple[Grid, str | None]:
    """Return the table of one number of workers, the fastest first, and what does as dense does, in words."""
    named = {verdict.best, verdict.without_assumption}
    folded = [row for row in rows if _judgement(row).as_dense and row.option_string not in named]
    shown = sorted((row for row in rows if row not in folded), key=lambda row: _judgement(row).time_s)
    dense = next(row for row in rows if row.reducer == "dense")
    why = {row.option_string: _why_not(row, dense) for row in shown}
    longest_s = max(_judgement(row).time_s for row in shown if why[row.option_string] is None)
    unit = "communication" if rows[0].iteration_s is None else "an iteration"
    median = ", of the median step" if any(row.steps for row in rows) else ""
    grid = tabulate(
        f"{marked_workers(rows[0])}: time of {unit}{median}, bytes that the busiest rank sends",
        shown,
        words("reducer", lambda row: f"{'*' if row.option_string == verdict.best else ' '} {row.option_string}"),
        figures("time", lambda row: format_seconds(_judgement(row).time_s)),
        figures("speed-up", lambda row: factor_text(_judgement(row).speedup)),
        figures("sent", lambda row: format_bytes(row.bytes_sent_per_rank)),
        figures("error", row_error_text),
        words("", lambda row: why[row.option_string] or _bar(_judgement(row).time_s / longest_s if longest_s else 0)),
    )
    as_dense = f"As dense does: {', '.join(row.option_string for row in folded)}." if folded else None
    return (
        Grid(
            grid.title,
            grid.columns,
            grid.rows,
            faint=frozenset(place for place, row in enumerate(shown) if why[row.option_string] is not None),
            strong=frozenset(place for place, row in enumerate(shown) if row.option_string == verdict.best),
        ),
        as_dense,
    )


def break_even_grid(result: Result) -> Grid | None:
    """Return at which rates each reducer pays; None where nobody has looked."""
    if not result.verdict.pays:
        return None
    return tabulate(
        f"break-even with dense, {marked_workers(result.rows[-1])}",
        list(result.verdict.pays.items()),
        words("reducer", lambda item: item[0]),
        words("when", lambda item: item[1]),
    )
