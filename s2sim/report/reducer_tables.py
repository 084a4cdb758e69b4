"""All reducers as a table, and one reducer as a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap

from s2sim.experiment.reducer_facts import OptionDoc, ReducerFacts
from s2sim.report.format import UNDEFINED
from s2sim.report.grid import Grid, continue_cells, number_column, tabulate, text_column

LEGEND = (
    "Measured in a first step, on tables and dense layers: linear, whether nothing but sums, maxima and copies "
    "travels, so that no message grows with the ranks; collectives; rounds of messages that wait for one another, + "
    "where more ranks need more; syncs, waits of the host for the GPU. feedback: whether training needs error feedback "
    "around it. bytes: sent by a rank; n elements, k kept, P ranks, L layers."
)

# With these widths a table of 80 columns has all columns but bytes, and another has bytes. No line ends after a number.
_WIDTHS, _STAYS = {"collectives": 22, "bytes": 51}, "\N{NO-BREAK SPACE}"
_ENDS = {
    "mean": "the mean",
    "sign": "the signs of the mean",
    "weights": "models of their own, around the mean one",
    "shards": "their own parts of the mean",
}
_IN_BUCKETS = {"bucket": "runs on each by itself", "gradient": "waits for the whole gradient, over which it is defined"}


def reducers_grid(facts: Sequence[ReducerFacts]) -> Grid:
    """Return the properties of all reducers; many collectives and long formulas continue in further rows."""
    grid = facts_grid(facts)
    return continue_cells(grid, lambda column, text: _wrap_cell(text, grid.columns[column].title))


def _wrap_cell(text: str, title: str) -> list[str]:
    width = _WIDTHS.get(title)
    if width is None:
        return [text]
    kept = re.sub(r"(\d) (?=[a-z])", rf"\1{_STAYS}", text)
    return [line.replace(_STAYS, " ") for line in wrap(kept, width, break_on_hyphens=False)] or [""]


def facts_grid(facts: Sequence[ReducerFacts]) -> Grid:
    """Return the properties of all reducers, a row each."""
    return tabulate(
        "reducers",
        facts,
        text_column("name", lambda item: item.name),
        text_column("linear", lambda item: _measured(item)[0]),
        text_column("collectives", lambda item: _measured(item)[1]),
        number_column("rounds", lambda item: _measured(item)[2]),
        number_column("syncs", lambda item: _measured(item)[3]),
        text_column("feed-\nback", lambda item: item.feedback),
        text_column("bytes", lambda item: item.formula),
    )


def properties_of(facts: ReducerFacts) -> list[tuple[str, str]]:
    """Return the known properties of one reducer as (label, text)."""
    linear, collectives, rounds, host_syncs = _measured(facts)
    properties = [
        ("is", facts.stands_for or ""),
        ("ranks end with", _ENDS[facts.estimates] + ("" if facts.agrees else ", not all with the same")),
        ("loses", "nothing but rounding" if facts.lossless else "more than rounding"),
        ("feedback", facts.feedback),
        ("in buckets", _IN_BUCKETS[facts.scope]),
        ("bytes", facts.formula),
        ("linear", linear),
        ("collectives", collectives),
        ("rounds", rounds),
        ("syncs", host_syncs),
        ("source", facts.source),
        ("known by", facts.certainty),
    ]
    return [(label, text) for label, text in properties if text]


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


def _measured(facts: ReducerFacts) -> tuple[str, str, str, str]:
    """Return whether a reducer is linear, its collectives, rounds and host syncs."""
    measured = facts.measured
    if measured is None:
        return UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED
    return (
        "yes" if measured.linear else "no",
        ", ".join(measured.collectives) or "none",
        f"{measured.rounds}{'+' * measured.rounds_grow}",
        str(measured.host_syncs),
    )
