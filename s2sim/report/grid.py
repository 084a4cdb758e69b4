"""A table before it has a form: titles and texts, which terminals and web pages show in their own way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

T = TypeVar("T")

# Columns stand two characters apart, or one where only that keeps the table in one piece.
WIDE_GAP, NARROW_GAP = 2, 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column, of figures at the right or of words at the left."""

    title: str  # What its cells are, with the unit where cells do not carry it; lines are separated by newlines
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Grid:
    """Texts in rows and columns under a title; the first column names the row."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    # faint, strong: rows to be shown as less, and as more, than the others
    faint: frozenset[int] = frozenset()
    strong: frozenset[int] = frozenset()

    def widths(self) -> list[int]:
        """Return the characters that each column needs to show its title and cells uncut."""
        return [
            max(len(line) for text in (column.title, *(row[i] for row in self.rows)) for line in text.split("\n"))
            for i, column in enumerate(self.columns)
        ]


def number_column(title: str, cell: Callable[[T], str]) -> tuple[Column, Callable[[T], str]]:
    """Return a column of figures, with what stands in it for a thing that has a row."""
    return Column(title), cell


def text_column(title: str, cell: Callable[[T], str]) -> tuple[Column, Callable[[T], str]]:
    """Return a column of words, with what stands in it for a thing that has a row."""
    return Column(title, numeric=False), cell


def tabulate(title: str, things: Iterable[T], *columns: tuple[Column, Callable[[T], str]]) -> Grid:
    """Return a table with a row for each thing."""
    rows = tuple(tuple(cell(thing) for _, cell in columns) for thing in things)
    return Grid(title, tuple(column for column, _ in columns), rows)


def width_of(grid: Grid, gap: int) -> int:
    """Return the characters of a line with ``gap`` characters between columns."""
    widths = grid.widths()
    return sum(widths) + gap * (len(widths) - 1)


def minimum_width(grid: Grid) -> int:
    """Return the characters of the widest line that `split_grid` cannot avoid."""
    first, *others = grid.widths()
    return first + WIDE_GAP + max(others, default=0)


def split_grid(grid: Grid, width: int, gap: int) -> list[Grid]:
    """Return ``grid`` in parts no wider than ``width``, each with the first column; no cell is ever cut.

    A part has at least one column beside the first, however narrow the terminal.
    """
    widths = grid.widths()
    parts: list[list[int]] = [[]]
    used = widths[0]
    for index in range(1, len(widths)):
        needed = gap + widths[index]
        if parts[-1] and used + needed > width:
            parts.append([])
            used = widths[0]
        parts[-1].append(index)
        used += needed
    return [_part(grid, (0, *part), "" if number == 0 else " (continued)") for number, part in enumerate(parts)]


def _part(grid: Grid, columns: Sequence[int], mark: str) -> Grid:
    """Return some columns of ``grid``, without the rows in which others alone go on."""
    cut = [tuple(row[i] for i in columns) for row in grid.rows]
    kept = [place for place, row in enumerate(cut) if any(row)]
    return Grid(
        f"{grid.title}{mark}",
        tuple(grid.columns[i] for i in columns),
        tuple(cut[place] for place in kept),
        frozenset(now for now, place in enumerate(kept) if place in grid.faint),
        frozenset(now for now, place in enumerate(kept) if place in grid.strong),
    )


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
    return [_titled(part, WIDE_GAP) for part in split_grid(grid, width, WIDE_GAP)]
