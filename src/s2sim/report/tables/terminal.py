"""Tables for terminals and for text files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from s2sim.report.tables.grid import NARROW_GAP, WIDE_GAP, split, width_of

if TYPE_CHECKING:
    from s2sim.report.tables.grid import Grid


def _titled(grid: Grid, gap: int) -> Group:
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, gap - 1, 0, 0), pad_edge=False)
    for column, width in zip(grid.columns, grid.widths(), strict=True):
        table.add_column(
            Text(column.title, style="bold"),
            justify="right" if column.numeric else "left",
            vertical="bottom",
            no_wrap=True,
            min_width=width,
        )
    for place, row in enumerate(grid.rows):
        style = "dim" if place in grid.faint else "bold" if place in grid.strong else None
        table.add_row(*(Text(cell) for cell in row), style=style)
    return Group(Text(grid.title, style="bold"), table)


def rich_tables(grid: Grid, width: int) -> list[Group]:
    """Return ``grid`` as titled tables that fit in ``width`` characters, each with the first column."""
    for gap in (WIDE_GAP, NARROW_GAP):
        if width_of(grid, gap) <= width:
            return [_titled(grid, gap)]
    return [_titled(part, WIDE_GAP) for part in split(grid, width, WIDE_GAP)]
