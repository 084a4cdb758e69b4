"""What a collective's time is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.texts import UNDEFINED, share_text
from s2sim.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.collective.against_result import TermScale
    from s2sim.study.collective.terms import TermRow

_OF_BYTES = ("bytes", "limit")


def terms_grid(terms: Sequence[TermRow], time_s: float) -> Grid:
    """Return a line a term that takes time: how much of it, of what, and how long each takes."""
    return tabulate(
        "terms of the time",
        [term for term in terms if term.time_s],
        words("of", term_name),
        figures("count", _count),
        figures("each", _each),
        figures("time", lambda term: format_seconds(term.time_s)),
        figures("share", lambda term: share_text(term.time_s / time_s)),
    )


def term_name(term: TermRow | TermScale) -> str:
    """Return what a term is in words."""
    if term.kind == term.of:
        return term.kind
    return f"{term.kind} {term.of}" if term.kind in ("launch", "library") else f"{term.kind}, {term.of}"


def _count(term: TermRow) -> str:
    return format_bytes(term.count) if term.kind in _OF_BYTES else f"{term.count:.4g}"


def _each(term: TermRow) -> str:
    if not term.count:
        return UNDEFINED
    if term.kind in _OF_BYTES:
        return f"at {format_rate(term.count / term.time_s)}"
    return format_seconds(term.time_s / term.count)
