"""The reducers there are, as a table of figures and as a page each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from textwrap import wrap

from s2sim.experiment.reducer_facts import OptionDoc, ReducerFacts
from s2sim.report.format import UNDEFINED
from s2sim.report.grid import Grid, number_column, tabulate, text_column

LEGEND = (
    "Measured in a first step, on tables and dense layers: linear, whether nothing but sums, maxima and copies "
    "travels, so that no message grows with the ranks; collectives; rounds of messages that wait for one another, + "
    "where more ranks need more; syncs, waits of the host for the GPU. feedback: whether training needs error feedback "
    "around it. bytes: sent by a rank; n elements, k kept, P ranks, L layers."
)
"""What the columns say."""

# So that a table of 80 columns holds all but bytes, and another one these; a number stays beside what it counts.
_WIDTHS, _STAYS = {"collectives": 22, "bytes": 51}, "\N{NO-BREAK SPACE}"
_ENDS = {
    "mean": "the mean",
    "sign": "the signs of the mean",
    "weights": "models of their own, around the mean one",
    "shards": "their own parts of the mean",
}
_IN_BUCKETS = {"bucket": "runs on each by itself", "gradient": "waits for the whole gradient, over which it is defined"}


def reducers_grid(facts: Sequence[ReducerFacts]) -> Grid:
    """Return the figures of all reducers; many collectives and long formulas go on in further rows."""
    grid = facts_grid(facts)
    rows = []
    for row in grid.rows:
        cells = [_wrap_cell(text, column.title) for text, column in zip(row, grid.columns, strict=True)]
        rows += list(zip_longest(*cells, fillvalue=""))
    return replace(grid, rows=tuple(rows))


def _wrap_cell(text: str, title: str) -> list[str]:
    width = _WIDTHS.get(title)
    if width is None:
        return [text]
    kept = re.sub(r"(\d) (?=[a-z])", rf"\1{_STAYS}", text)
    return [line.replace(_STAYS, " ") for line in wrap(kept, width, break_on_hyphens=False)] or [""]


def facts_grid(facts: Sequence[ReducerFacts]) -> Grid:
    """Return the figures of all reducers, a row each."""
    return tabulate(
        "reducers",
        facts,
        text_column("name", lambda item: item.name),
        text_column("linear", _linear),
        text_column("collectives", _collectives),
        number_column("rounds", _rounds),
        number_column("syncs", _host_syncs),
        text_column("feed-\nback", lambda item: item.feedback),
        text_column("bytes", lambda item: item.formula),
    )


def describe_reducer(facts: ReducerFacts) -> str:
    """Return in a line what a reducer is."""
    return facts.summary if facts.stands_for is None else f"{facts.summary} (is {facts.stands_for})"


def properties_of(facts: ReducerFacts) -> list[tuple[str, str]]:
    """Return what is known of one reducer, as pairs of a label and a text."""
    found = [
        ("is", facts.stands_for or ""),
        ("ranks end with", _ENDS[facts.estimates] + ("" if facts.agrees else ", not all with the same")),
        ("loses", "nothing but rounding" if facts.lossless else "more than rounding"),
        ("feedback", facts.feedback),
        ("in buckets", _IN_BUCKETS[facts.scope]),
        ("bytes", facts.formula),
        ("linear", _linear(facts)),
        ("collectives", _collectives(facts)),
        ("rounds", _rounds(facts)),
        ("syncs", _host_syncs(facts)),
        ("source", facts.source),
        ("known by", facts.certainty),
    ]
    return [(label, text) for label, text in found if text]


def option_text(option: OptionDoc) -> str:
    """Return an option in a line.

    >>> from s2sim.experiment.reducer_facts import OptionDoc
    >>> option_text(OptionDoc("density", "float", "0.01", "Fraction that is kept."))
    'density=0.01 (float): Fraction that is kept.'
    """
    if not option.text:
        return f"{option.name}={option.default}"
    kind = option.type.removesuffix(", optional").replace('"', "").strip("{}").replace(", ", "|")
    return f"{option.name}={option.default} ({kind}): {option.text}"


def _linear(facts: ReducerFacts) -> str:
    if facts.measured is None:
        return UNDEFINED
    return "yes" if facts.measured.linear else "no"


def _collectives(facts: ReducerFacts) -> str:
    return UNDEFINED if facts.measured is None else ", ".join(facts.measured.collectives) or "none"


def _rounds(facts: ReducerFacts) -> str:
    return UNDEFINED if facts.measured is None else f"{facts.measured.rounds}{'+' * facts.measured.rounds_grow}"


def _host_syncs(facts: ReducerFacts) -> str:
    return UNDEFINED if facts.measured is None else str(facts.measured.host_syncs)
