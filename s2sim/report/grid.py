"""Tables as titles and texts, independent of the terminal or page that shows them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from string import Formatter
from textwrap import wrap
from typing import Any, NamedTuple, TypeAlias, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from s2sim.files import read_table
from s2sim.report import format as fmt
from s2sim.tables import Table as ScalarTable
from s2sim.tables import group_by
from s2sim.units import brief_seconds, format_bytes, format_percent, format_rate, format_seconds

T = TypeVar("T")

# Characters between columns; one only where it keeps the table in one piece.
WIDE_GAP, NARROW_GAP = 2, 1
# Characters of names, beyond those of their title, where a table is too wide for its terminal, and of texts at least.
_FOLDED_NAME, _LEAST_TEXT = 10, 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column, of numbers aligned at the right or of texts at the left."""

    title: str  # With the unit unless cells have theirs; lines are separated by newlines
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Grid:
    """Texts in rows and columns under a title; the first column names the row."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    # faint, strong: numbers of rows that are dimmed, and of rows that stand out
    faint: frozenset[int] = frozenset()
    strong: frozenset[int] = frozenset()

    def widths(self) -> list[int]:
        """Return the characters that each column needs to show its title and cells uncut."""
        return [
            max(len(line) for text in (column.title, *(row[i] for row in self.rows)) for line in text.split("\n"))
            for i, column in enumerate(self.columns)
        ]


class Screen(NamedTuple):
    """Lines, tables and lines after them, and the few lines that answer the question alone."""

    before: Sequence[str]
    grids: Sequence[Grid]
    after: Sequence[str]
    brief: Sequence[str]
    script: Sequence[str] = ()  # Lines of code, shown last, as they are


TableColumn: TypeAlias = tuple[Column, Callable[[T], str]]
"""A column with the function that returns its cell in the row of an item."""


def number_column(title: str, cell: Callable[[T], str]) -> TableColumn[T]:
    """Return a column of numbers, aligned at the right."""
    return Column(title), cell


def text_column(title: str, cell: Callable[[T], str]) -> TableColumn[T]:
    """Return a column of texts, aligned at the left."""
    return Column(title, numeric=False), cell


def tabulate(
    title: str, items: Iterable[T], *columns: TableColumn[T] | None, strong: Callable[[T], bool] | None = None
) -> Grid:
    """Return a table with a row for each item, without columns that are None; rows that are ``strong`` stand out."""
    items, shown = list(items), [column for column in columns if column is not None]
    return Grid(
        title,
        tuple(column for column, _ in shown),
        tuple(tuple(cell(item) for _, cell in shown) for item in items),
        strong=frozenset(number for number, item in enumerate(items) if strong is not None and strong(item)),
    )


_FORMS: dict[str, Callable[[Any], str]] = {
    "seconds": format_seconds,
    "brief": brief_seconds,
    "bytes": format_bytes,
    "GB/s": lambda rate_Bps: f"{rate_Bps / 1e9:.2f}",
    "factor": fmt.factor_text,
    "share": fmt.share_text,
    "percent": format_percent,
    "error": fmt.error_text,
    "throughput": fmt.throughput_text,
    "len": lambda items: str(len(items)),
    "name": lambda name: name or fmt.UNDEFINED,
    "yes": lambda true: "yes" if true else "no",
}


def columns_of(
    table: str, titles: Mapping[str, str] = {}, *, where: Mapping[str, object] = {}, **own: Callable[[Any], str]
) -> list[TableColumn[Any]]:
    """Return the columns that ``columns.csv`` lists for a table, less those whose titles are false in ``where``.

    Titles may have ``titles`` in braces, and cells fields of the item, or the item itself, with a form: one of `_FORMS`
    or of the table's ``own``, or a format. None is written as nothing, or as a dash by a form that ends with ``?``.

    >>> [cell(("topk", None)) for _, cell in columns_of("break-even")]
    ['topk', '']
    """
    forms = _FORMS | own
    return [
        (Column(title.format_map(titles), numeric=cells["align"] == "right"), _cell_writer(cells["cell"], forms))
        for cells in _columns()[table]
        if where.get(title := cells["title"].replace("\\n", "\n"), True)
    ]


@cache
def _columns() -> dict[str, list[dict[str, str]]]:
    """Return the rows of ``columns.csv`` by their table."""
    rows = read_table(Path(__file__).with_name("columns.csv"), ("table", "align", "title", "cell"))
    return group_by((cells for _, cells in rows), itemgetter("table"))


def _cell_writer(cell: str, forms: Mapping[str, Callable[[Any], str]]) -> Callable[[Any], str]:
    parts = [(before, field, spec or "") for before, field, spec, _ in Formatter().parse(cell)]

    def write(item: Any) -> str:
        texts = (before + ("" if field is None else field_text(item, field, spec)) for before, field, spec in parts)
        return "".join(texts).rstrip()

    def field_text(value: Any, field: str, spec: str) -> str:
        for name in filter(None, field.split(".")):
            if value is not None:
                value = value[int(name)] if name.lstrip("-").isdigit() else getattr(value, name)
        form = spec.removesuffix("?")
        if value is None:
            return "" if form == spec else fmt.UNDEFINED
        return forms[form](value) if form in forms else format(value, form)

    return write


def filled(*grids: Grid) -> list[Grid]:
    """Return the tables that have rows."""
    return [grid for grid in grids if grid.rows]


def width_of(grid: Grid, gap: int) -> int:
    """Return the characters of a line with ``gap`` characters between columns."""
    return sum(widths := grid.widths()) + gap * (len(widths) - 1)


def minimum_width(grid: Grid) -> int:
    """Return the characters of the widest line that `split_grid` cannot avoid."""
    first, *others = grid.widths()
    return first + WIDE_GAP + max(others, default=0)


def continue_cells(grid: Grid, split: Callable[[int, str], Sequence[str]]) -> Grid:
    """Return ``grid`` with the lines that ``split`` makes of (column, cell), those after the first in further rows."""
    rows = [
        (number, line)
        for number, row in enumerate(grid.rows)
        for line in zip_longest(*(split(column, cell) for column, cell in enumerate(row)), fillvalue="")
    ]
    return _with_rows(grid, rows)


def _with_rows(grid: Grid, rows: Sequence[tuple[int, tuple[str, ...]]]) -> Grid:
    """Return ``grid`` with other rows, each given with the number of the row that it comes from."""
    faint, strong = (
        frozenset(new for new, (old, _) in enumerate(rows) if old in marked) for marked in (grid.faint, grid.strong)
    )
    return replace(grid, rows=tuple(cells for _, cells in rows), faint=faint, strong=strong)


def continue_names(grid: Grid, width: int) -> Grid:
    """Return ``grid`` with names of more than about ``width`` characters continued in further rows."""
    return continue_cells(grid, lambda column, cell: [cell] if column else _name_lines(cell, width))


def _name_lines(name: str, width: int) -> list[str]:
    """Return a marked option string in lines of about ``width`` characters, broken after commas.

    >>> _name_lines("* s2:rows=3,cells=2,layers=all,bitmap=byte", 27)
    ['* s2:rows=3,cells=2,', '    layers=all,bitmap=byte']
    """
    lines = [""]
    for part in re.findall(r"[^,]*,|[^,]+$", name):
        if len(lines[-1]) + len(part) > width + 2 and lines[-1]:
            lines.append("    ")
        lines[-1] += part
    return lines


def fold_grid(grid: Grid, width: int) -> Grid:
    """Return ``grid`` with names and texts that no line of ``width`` characters holds continued in further rows."""
    if minimum_width(grid) <= width:
        return grid
    named = continue_names(grid, max(map(len, grid.columns[0].title.split("\n"))) + _FOLDED_NAME)
    space = max(_LEAST_TEXT, width - named.widths()[0] - WIDE_GAP)
    # Columns of numbers have no text to fold.
    texts = [number > 0 and not column.numeric for number, column in enumerate(grid.columns)]
    return continue_cells(
        named, lambda column, cell: wrap(cell, space, break_on_hyphens=False) or [""] if texts[column] else [cell]
    )


def split_grid(grid: Grid, width: int, gap: int) -> list[Grid]:
    """Return ``grid`` in parts, no wider than ``width`` unless two columns are; each has the first column."""
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
    grids: list[Grid] = []
    for part in parts:
        shown = (0, *part)
        # Without rows that only continue cells of other columns.
        rows = [(number, cells) for number, row in enumerate(grid.rows) if any(cells := tuple(row[i] for i in shown))]
        title = f"{grid.title} (continued)" if grids else grid.title
        grids.append(replace(_with_rows(grid, rows), title=title, columns=tuple(grid.columns[i] for i in shown)))
    return grids


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


def table_grid(table: ScalarTable, title: str = "", value: str | None = None) -> Grid:
    """Return a table of scalars, figures with their units; ``value`` names the column whose figures a pivot shows."""
    shown = table.shown()
    first = shown.columns[:1] if value is not None else ()
    return Grid(
        title,
        tuple(Column(name, numeric=shown.is_numeric(name)) for name in shown.columns),
        tuple(
            tuple(scalar_text(name if value is None or name in first else value, row[name]) for name in shown.columns)
            for row in shown.rows
        ),
    )


def scalar_text(column: str, value: Any) -> str:
    """Return a value of a table as text, in the unit that its column's name ends with."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if not isinstance(value, float) and not (isinstance(value, int) and "bytes" in column):
        return str(value)
    if column.endswith("_s"):
        return format_seconds(value)
    if column.endswith("_Bps"):
        return f"{format_bytes(value)}/s" if column.endswith("bw_Bps") else format_rate(value)
    return format_bytes(value) if "bytes" in column else f"{value:.4g}"
