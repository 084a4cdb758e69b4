"""Which terms of simulated times explain how far these are from measured ones."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.terms import term_name
from s2sim.report.tables.text import aligned
from s2sim.report.tables.texts import share_text
from s2sim.units import format_seconds
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.report.tables.grid import Column
    from s2sim.study.collective.against_result import AgainstResult, ComparedRow, TermScale

# Terms that are named first and have columns of their own, and what they explain at least.
_FIRST, _LEAST = 3, 0.05
# Times that are this near each other count as one.
_SAME = 0.05
# From here on a factor reads better than per cent more.
_TIMES = 2


class _Together:
    """Terms that are told together, over all rows."""

    def __init__(self, result: AgainstResult, scales: Sequence[TermScale]) -> None:
        self.scale = scales[0].scale
        self.explains = sum(each.explains for each in scales)
        self.names = [term_name(each) for each in sorted(scales, key=lambda each: -each.explains)]
        self._keys = {(each.kind, each.of) for each in scales}
        times_s = [self.simulated_s(row) for row in result.rows]
        self.rows = [row for row, time_s in zip(result.rows, times_s, strict=True) if time_s]
        self.least_s, self.most_s = min(filter(None, times_s)), max(times_s)

    def simulated_s(self, row: ComparedRow) -> float:
        """Return what these terms of a row take in simulation."""
        return sum(term.simulated_s for term in row.terms if (term.kind, term.of) in self._keys)

    def difference_s(self, row: ComparedRow) -> float | None:
        """Return what of a row's difference these terms stand for; None where it has none of them."""
        found = [term.difference_s for term in row.terms if (term.kind, term.of) in self._keys]
        return sum(found) if found else None


def explanation_lines(result: AgainstResult) -> list[str]:
    """Return what explains most of the difference, in a line each; nothing where no terms are known."""
    if not result.terms:
        return []
    found = [each for each in _by_what_they_explain(result)[:_FIRST] if each.explains >= _LEAST]
    left = median(abs(row.not_explained_s) / row.measured_s for row in result.rows)
    lines = [(_title(each), _said(each, len(result.rows))) for each in found]
    lines.append(("not explained", f"a median of {share_text(left)} of the measured time"))
    return ["measured against simulated, by term:", *aligned(lines, indent="  ")]


def difference_grid(result: AgainstResult) -> Grid:
    """Return simulated minus measured of each row, by those terms that stand for most of it."""
    known = _by_what_they_explain(result)
    first, others = known[:_FIRST], known[_FIRST:]

    def rest(row: ComparedRow) -> str:
        return _signed(sum(each.difference_s(row) or 0.0 for each in others))

    return tabulate(
        "simulated - measured, term by term",
        result.rows,
        figures("size\n(B)", lambda row: str(row.size_bytes)),
        figures("all", lambda row: _signed(row.difference_s)),
        *(_column(each) for each in first),
        *([figures("other\nterms", rest)] if others else []),
        figures("not\nexplained", lambda row: _signed(row.not_explained_s)),
    )


def scales_grid(result: AgainstResult) -> Grid:
    """Return how long each term takes as measured, and with which others it is told."""
    ordered = sorted(result.terms, key=lambda scale: -scale.explains)

    def together(scale: TermScale) -> str:
        group = [other for other in ordered if other.told_with == scale.told_with]
        if len(group) == 1:
            return "alone"
        return f"with {number_of(len(group) - 1, 'other')}" if scale is group[0] else f"with {term_name(group[0])}"

    return tabulate(
        "terms over all sizes",
        ordered,
        words("of", term_name),
        figures("measured /\nsimulated", lambda scale: f"{scale.scale:.2f}"),
        figures("of all\ndifferences", lambda scale: share_text(scale.explains)),
        words("told", together),
    )


def _by_what_they_explain(result: AgainstResult) -> list[_Together]:
    groups: dict[int, list[TermScale]] = {}
    for scale in result.terms:
        groups.setdefault(scale.told_with, []).append(scale)
    return sorted((_Together(result, scales) for scales in groups.values()), key=lambda each: -each.explains)


def _title(terms: _Together) -> str:
    more = len(terms.names) - 1
    return terms.names[0] + (f" and {number_of(more, 'term')} that cannot be told from it" if more else "")


def _said(terms: _Together, rows: int) -> str:
    """Return how far terms are from what was measured."""
    where = "at all sizes" if len(terms.rows) == rows else f"at {len(terms.rows)} of {rows} sizes"
    way = "longer" if terms.scale > 1 else "shorter"
    most = format_seconds(abs(terms.scale - 1) * terms.most_s)
    if terms.most_s <= terms.least_s * (1 + _SAME):
        return f"{most} {way} than the {format_seconds(terms.most_s)} simulated, {where}"
    far = f"{terms.scale:.1f} times as long" if terms.scale >= _TIMES else f"{abs(terms.scale - 1):.0%} {way}"
    return f"{far}, up to {most}, {where}"


def _column(terms: _Together) -> tuple[Column, Callable[[ComparedRow], str]]:
    return figures(
        "\n".join([*terms.names[0].split(", "), *(["and others"] if len(terms.names) > 1 else [])]),
        lambda row: _signed(terms.difference_s(row)),
    )


def _signed(seconds: float | None) -> str:
    """Return a difference with its sign; nothing where there is none."""
    if seconds is None:
        return ""
    return f"{'-' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"
