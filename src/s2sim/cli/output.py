"""Where output goes: text to standard output, JSON to a file or standard output, bars to a terminal."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import typer

from s2sim.cli.printable import printable, printable_lines
from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.figure import Figure

    from s2sim.report.tables.grid import Grid

STDOUT = "-"
# Where standard output is a pipe or a file there is no width to ask for; the table of reducers fits in this.
_PIPE_COLUMNS = 132


def show_lines(lines: Sequence[str]) -> None:
    """Print lines as they are: never wrapped, never coloured."""
    for line in lines:
        typer.echo(printable(line))


def show_paragraph(text: str) -> None:
    """Print a text, broken between words where there is a width to ask for and in one line elsewhere."""
    text = printable(text)
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        text = fill(text, _columns(), break_long_words=False, break_on_hyphens=False)
    typer.echo(text)


def show_entry(label: str, text: str, *, labels: int = 0) -> None:
    """Print a label and beside it a text, broken like a paragraph's; ``labels`` is the width of the widest label."""
    head = f"  {printable(label).ljust(labels)}  "
    text = f"{head}{printable(text)}"
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        indent = " " * len(head)
        text = fill(text, _columns(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    typer.echo(text)


def _columns() -> int:
    """Return the width to fit tables in: ``COLUMNS``, else the terminal's, else 132."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    with suppress(OSError, ValueError):
        if sys.stdout.isatty():
            return os.get_terminal_size(sys.stdout.fileno()).columns
    return _PIPE_COLUMNS


def show_grids(grids: Sequence[Grid]) -> None:
    """Print tables, each after an empty line; a table too wide for the terminal is shown in parts."""
    from rich.console import Console

    from s2sim.report.tables.grid import narrowest
    from s2sim.report.tables.terminal import rich_tables

    width = _columns()
    for grid in map(_printable_grid, grids):
        # A column too wide for the terminal is left for the terminal to wrap, never cut.
        console = Console(file=sys.stdout, width=max(width, narrowest(grid)), highlight=False)
        for table in rich_tables(grid, width):
            console.print()
            console.print(table)


def _printable_grid(grid: Grid) -> Grid:
    columns = tuple(replace(column, title=printable_lines(column.title)) for column in grid.columns)
    return replace(
        grid, title=printable(grid.title), columns=columns, rows=tuple(tuple(map(printable, row)) for row in grid.rows)
    )


@contextmanager
def working(what: str, *, quiet: bool) -> Iterator[None]:
    """Show on a terminal's standard error that something takes its time."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def _finite(value: Any) -> Any:
    """Return ``value`` with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def write_json(value: Any, target: str) -> None:
    """Write ``value`` as strict JSON, see `write_text`."""
    write_text(json.dumps(_finite(value), indent=2, allow_nan=False) + "\n", target)


def write_text(text: str, target: str) -> None:
    """Write to standard output (``-``) or to a file, which is replaced only as a whole."""
    if target == STDOUT:
        sys.stdout.write(text)
    else:
        write_bytes(text.encode(), target)


def write_figure(figure: Figure, target: str) -> None:
    """Write a figure to a file in the format that its name ends in."""
    from s2sim.report.figures.figure_file import figure_bytes

    write_bytes(figure_bytes(figure, Path(target).suffix[1:].lower()), target)


def write_bytes(data: bytes, target: str) -> None:
    """Write to a file, which is replaced only as a whole."""
    try:
        _write_whole(Path(target), data)
    except OSError as error:
        raise S2SimError(f"cannot write {target}: {error.strerror or error}") from error


def partial_of(path: Path) -> Path:
    """Return the file that becomes ``path``, or what it links to, once it is whole."""
    target = path.resolve()
    return target.with_name(f".{target.name}.partial-{os.getpid()}")


def _write_whole(path: Path, data: bytes) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            # A pipe or a device: renaming over it would replace it by a file.
            path.write_bytes(data)
            return
    partial = partial_of(path)
    try:
        partial.write_bytes(data)
        partial.replace(path.resolve())
    finally:
        partial.unlink(missing_ok=True)
