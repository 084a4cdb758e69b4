"""Counts of settings in which compression wins, as tables and pictures."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from s2sim.study.papers.claim import HeatMap, Table
from s2sim.study.papers.grid.gain import best_of, wins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.study.papers.grid.gain import Gain

MARGINS = (0.01, 0.05, 0.2)
"""By how much a reducer has to be faster than dense to win: a hundredth is the least that anyone would notice."""

FILTERS = (None, 0.9, 0.5, 0.1, 1e-6)
"""Largest relative L2 errors that count, from all that a verdict trusts to what rounds."""


def share_text(found: int, of: int) -> str:
    """Return a count and its share.

    >>> share_text(6, 200)
    '6 of 200 (3%)'
    """
    return f"{found} of {of} ({found / of:.0%})" if of else "0 of 0"


def filter_table(gains: Sequence[Gain]) -> Table:
    """Return how many set-ups win, and in how many settings anything does, by the error that is allowed."""
    settings = {gain.setting for gain in gains}
    rows = [_filter_row("whatever the error", list(gains), len(gains), len(settings))]
    for limit in FILTERS:
        left = [gain for gain in gains if gain.trusted(limit)]
        title = "errors that verdicts trust" if limit is None else f"error at most {limit:g}"
        rows.append(_filter_row(title, left, len(gains), len(settings)))
    titles = (f"over {margin:.0%}" for margin in MARGINS)
    columns = (
        "allowed",
        *(f"set-ups that win {title}" for title in titles),
        f"settings where one wins over {MARGINS[0]:.0%}",
    )
    return Table("What the error that is allowed does to the count", columns, tuple(rows))


def _filter_row(title: str, left: Sequence[Gain], setups: int, settings: int) -> tuple[str, ...]:
    counts = (share_text(len(wins(left, margin)), setups) for margin in MARGINS)
    somewhere = {gain.setting for gain in wins(left, MARGINS[0])}
    return (title, *counts, share_text(len(somewhere), settings))


def table_by(what: str, key: Callable[[Gain], str], gains: Sequence[Gain]) -> Table:
    """Return how often set-ups win and what they gain, by something of theirs, in the order in which it comes."""
    rows = []
    for name in dict.fromkeys(map(key, gains)):
        own = [gain for gain in gains if key(gain) == name]
        speedups = [gain.speedup for gain in own]
        rows.append(
            (
                name,
                *(share_text(len(wins(own, margin)), len(own)) for margin in MARGINS),
                f"{median(speedups):.2f}x",
                f"{max(speedups):.2f}x",
            )
        )
    columns = (what, *(f"win over {margin:.0%}" for margin in MARGINS), "median", "best")
    return Table(f"Set-ups that win, by {what}", columns, tuple(rows))


def best_map(title: str, gains: Sequence[Gain]) -> HeatMap:
    """Return the speed-up of the fastest reducer: a row a model and mini-batch, a column a cluster."""
    best = best_of(gains)
    rows = list(dict.fromkeys((gain.model, gain.batch) for gain in gains))
    columns = list(dict.fromkeys(gain.where for gain in gains))
    found = {(model, batch, where): gain.speedup for (model, batch, where, _), gain in best.items()}
    return HeatMap(
        title,
        tuple(columns),
        tuple(f"{model}, batch {batch}" for model, batch in rows),
        tuple(tuple(found.get((model, batch, where)) for where in columns) for model, batch in rows),
    )


def median_map(title: str, gains: Sequence[Gain]) -> HeatMap:
    """Return the median speed-up of each reducer over models and mini-batches: a column a cluster."""
    rows = list(dict.fromkeys(gain.reducer for gain in gains))
    columns = list(dict.fromkeys(gain.where for gain in gains))

    def value(reducer: str, where: str) -> float | None:
        own = [gain.speedup for gain in gains if gain.reducer == reducer and gain.where == where]
        return median(own) if own else None

    return HeatMap(
        title,
        tuple(columns),
        tuple(rows),
        tuple(tuple(value(reducer, where) for where in columns) for reducer in rows),
    )
