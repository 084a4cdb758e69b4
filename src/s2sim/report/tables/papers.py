"""Rebuilt papers as tables: claims with judgements, why, set-up, and the numbers behind."""

from __future__ import annotations

from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Column, Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.papers.claim import Claim, Papers, Rebuilt, Table

# Characters of a claim, what was published, what came out, and the judgement.
_WIDTHS = (30, 12, 18, 14)


def paper_head(paper: Rebuilt) -> list[str]:
    """Return what a paper is."""
    return [f"{paper.name}: {paper.title}", paper.source]


def claims_grid(paper: Rebuilt) -> Grid:
    """Return claim, published figure, ours and judgement; what was not reproduced stands out."""
    rows: list[tuple[str, ...]] = []
    strong: set[int] = set()
    for number, claim in enumerate(paper.claims, 1):
        cells = (f"{number}. {claim.text}", claim.published, claim.ours, claim.judgement)
        # Long texts go on in rows of their own, so that a table fits a terminal.
        lines = list(zip_longest(*map(_folded, cells, _WIDTHS), fillvalue=""))
        if claim.judgement == "not reproduced":
            strong |= set(range(len(rows), len(rows) + len(lines)))
        rows += lines
    columns = tuple(Column(title, numeric=False) for title in ("claim", "published", "ours", "judgement"))
    return Grid(f"Claims of {paper.name}", columns, tuple(rows), strong=frozenset(strong))


def _folded(text: str, width: int) -> list[str]:
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def why_lines(paper: Rebuilt) -> list[str]:
    """Return for every claim where it stands, by which rule it was judged, and why it came out so."""
    return [f"{number}. {_why(claim)}" for number, claim in enumerate(paper.claims, 1)]


def _why(claim: Claim) -> str:
    head = f"{claim.judgement[0].upper()}{claim.judgement[1:]}"
    return f"{head}: {claim.why} ({claim.source}; {claim.rule})"


def setup_lines(paper: Rebuilt) -> list[tuple[str, str]]:
    """Return what was computed and what was assumed, as (label, text)."""
    return [
        *(("set-up" if number == 0 else "", text) for number, text in enumerate(paper.setup)),
        *(("assumed" if number == 0 else "", text) for number, text in enumerate(paper.assumed)),
    ]


def numbers_grid(table: Table) -> Grid:
    """Return a table of the numbers behind claims; columns of figures stand at the right."""
    columns = tuple(
        Column(title, numeric=place > 0 and _figures([row[place] for row in table.rows]))
        for place, title in enumerate(table.columns)
    )
    return Grid(table.title, columns, table.rows)


def _figures(cells: Sequence[str]) -> bool:
    return all(not cell or cell[0].isdigit() or cell[0] in "-+<>" for cell in cells)


def papers_lines(result: Papers) -> list[str]:
    """Return how many claims were judged how, and what there is to know."""
    return [result.headline, *(f"Note: {note}." for note in result.notes)]
