"""A result as a fragment of HTML, for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from s2sim.report.tables.rows import comparison_grids, scaling_grid

if TYPE_CHECKING:
    from s2sim.report.tables.grid import Column, Grid
    from s2sim.study.measuring.result import Result


def _cell(tag: str, text: str, column: Column) -> str:
    align = "right" if column.numeric else "left"
    # A title is hyphenated for terminals only.
    lines = escape(text).replace("-\n", "").replace("\n", "<br>")
    return f'<{tag} style="text-align: {align}">{lines}</{tag}>'


def _table(grid: Grid) -> str:
    head = "".join(_cell("th", column.title, column) for column in grid.columns)
    body = "".join(
        f"<tr>{''.join(_cell('td', text, column) for text, column in zip(row, grid.columns, strict=True))}</tr>"
        for row in grid.rows
    )
    caption = f'<caption style="text-align: left">{escape(grid.title)}</caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def result_html(result: Result) -> str:
    """Return what was run, tables, notes and verdict; every text is escaped, nothing is loaded from elsewhere."""
    grids = comparison_grids(result)
    if len(grids) > 1:
        grids.append(scaling_grid(result))
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    about = "".join(f"<p>{escape(line)}</p>" for line in (result.headline, result.gradients.sentence()))
    return (
        f"<div>{about}{''.join(map(_table, grids))}<ul>{notes}</ul>"
        f"<p><strong>{escape(result.verdict.text)}</strong></p></div>"
    )
