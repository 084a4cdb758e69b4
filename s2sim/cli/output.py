"""Output of commands: texts and tables, JSON, files, and progress bars."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from s2sim.cli import INTERRUPTED
from s2sim.errors import S2SimError
from s2sim.experiment.json_form import finite
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.files import replace_file
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from s2sim.report.grid import Grid, Screen
    from s2sim.tables import Table

STDOUT = "-"
# Control characters, line ends of Unicode, and marks that turn the direction of reading round.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Width of pipes and files; the table of reducers fits in this.
_PIPE_COLUMNS = 132
# The share of a line that an indentation may take.
_DEEPEST_INDENT = 0.6


def printable(text: str) -> str:
    r"""Return a text for one line of a terminal, with Python's escapes for unprintable characters.

    >>> print(printable("red\x1b[31m"))
    red\x1b[31m
    """
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def printable_lines(text: str) -> str:
    """Return a text of several lines like `printable`, with its line ends."""
    return "\n".join(map(printable, text.split("\n")))


def note(text: str) -> None:
    """Print a remark on standard error."""
    sys.stderr.write(f"s2sim: {printable(text)}\n")


def show_lines(lines: Sequence[str]) -> None:
    """Print lines as `show_line` does."""
    for line in lines:
        show_line(line)


def show_line(line: str) -> None:
    """Print a line; where standard output has a width, it goes on under its last column."""
    line = printable(line)
    if len(line) > (width := _columns()) and _has_width():
        starts = [0, *(match.end() for match in re.finditer(" {2,}", line))]
        indent = " " * max(start for start in starts if start <= width * _DEEPEST_INDENT)
        line = fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    typer.echo(line)


def _has_width() -> bool:
    return sys.stdout.isatty() or bool(os.environ.get("COLUMNS"))


def show_paragraph(text: str, head: str = "") -> None:
    """Print a text after ``head``, wrapped and indented if standard output has a width, else in one line."""
    text = f"{head}{printable(text)}"
    if _has_width():
        indent = " " * len(head)
        text = fill(text, _columns(), subsequent_indent=indent, break_long_words=bool(head), break_on_hyphens=False)
    typer.echo(text)


def show_paragraphs(texts: Iterable[str]) -> None:
    """Print texts as `show_paragraph` does."""
    for text in texts:
        show_paragraph(text)


def show_entries(entries: Sequence[tuple[str, str]]) -> None:
    """Print labels, padded to the longest, and next to each a wrapped text."""
    width = max((len(printable(label)) for label, _ in entries), default=0)
    for label, text in entries:
        show_paragraph(text, f"  {printable(label).ljust(width)}  ")


def show_quantities(heading: str, quantities: Sequence[tuple[str, str, str, str]]) -> None:
    """Print a field a line, given as (field, value, kind, source)."""
    show_lines(["", f"{heading} (field, value, kind, source):"])
    show_entries([(field, f"{value}  [{kind}] {source}") for field, value, kind, source in quantities])


def _columns() -> int:
    return get_terminal_size((_PIPE_COLUMNS, 24)).columns


def show_grids(grids: Sequence[Grid]) -> None:
    """Print tables, each after an empty line; tables wider than the terminal are split."""
    from rich.console import Console

    from s2sim.report.grid import fold_grid, minimum_width, rich_tables

    width = _columns()
    for grid in grids:
        columns = tuple(replace(column, title=printable_lines(column.title)) for column in grid.columns)
        rows = tuple(tuple(map(printable, row)) for row in grid.rows)
        shown = replace(grid, title=printable(grid.title), columns=columns, rows=rows)
        if _has_width():
            shown = fold_grid(shown, width)
        # Columns of numbers may still be wider.
        console = Console(file=sys.stdout, width=max(width, minimum_width(shown)), highlight=False)
        for table in rich_tables(shown, width):
            console.print()
            console.print(table)


def working(what: str, *, quiet: bool) -> AbstractContextManager[object]:
    """Return what shows a spinner on standard error if it is a terminal."""
    if quiet or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(what)


def write_result(result: Any, target: str | None) -> bool:
    """Write a result as JSON if there is a target; return whether standard output is free for text."""
    if target is not None:
        write_json(result.to_json(), target)
    return write_tables(getattr(result, "table", None), lambda: page_text(result)) and target != STDOUT


# The tables and the page that a command is asked for, by --csv, --parquet, --latex and --html.
TABLES: ContextVar[dict[str, str | None]] = ContextVar("TABLES")


def as_path(path: str) -> str:
    """Return a path for a command line, where one without a slash may be a shipped name."""
    return shlex.quote(path if "/" in path else f"./{path}")


def own_command() -> str:
    """Return the command line of this process."""
    return shlex.join(["s2sim", *sys.argv[1:]])


def page_text(result: Any) -> str:
    """Return the page of a result that this command line made."""
    from s2sim.report.screens import screen_page

    return screen_page(result, own_command())


def write_tables(make: Callable[[], Table] | None, make_page: Callable[[], str] | None = None) -> bool:
    """Write the asked tables and page, by default the table's; return whether standard output is free for text."""
    targets = TABLES.get({})
    if make is not None and any(targets.values()):
        table = make()
        if (csv := targets["csv"]) is not None:
            write_text(table.to_csv(), csv)
        if (latex := targets["latex"]) is not None:
            write_text(table.shown().to_latex(), latex)
        if (parquet := targets["parquet"]) is not None:
            write_bytes(table.to_parquet(), parquet)
        if (html := targets["html"]) is not None:
            write_text(make_page() if make_page is not None else page_text(table), html)
    return STDOUT not in targets.values()


def show_result(
    result: Any,
    json: str | None,
    screen: Screen | None = None,
    show: Callable[[str], None] = show_paragraph,
    *,
    quiet: bool,
) -> bool:
    """Write a result as JSON if there is a target, and print its screen, or its brief lines if ``quiet``.

    ``screen`` is by default that of the result's kind; ``show`` prints a line of it. Returns whether standard output
    was free for text, and ends with the exit code of interruptions if the result is not complete.
    """
    readable = write_result(result, json)
    if readable:
        if screen is None:
            from s2sim.report.screens import screen_of

            screen = screen_of(result)
        if quiet:
            show_lines(screen.brief)
        else:
            for line in screen.before:
                show(line)
            show_grids(screen.grids)
            for line in screen.after:
                show(line)
            for line in screen.script:
                typer.echo(printable(line))
    if not getattr(result, "complete", True):
        raise typer.Exit(INTERRUPTED)
    return readable


def write_json(value: Any, target: str) -> None:
    """Write ``value`` as strict JSON to a file or standard output (``-``)."""
    write_text(json.dumps(finite(value), indent=2, allow_nan=False) + "\n", target)


def json_alone(value: Any, target: str | None) -> bool:
    """Write ``value`` as JSON if there is a target; return whether it has taken standard output."""
    if target is not None:
        write_json(value, target)
    return target == STDOUT


def write_text(text: str, target: str) -> None:
    """Write to standard output (``-``) or to a file, which is replaced atomically."""
    if target == STDOUT:
        sys.stdout.write(text)
    else:
        write_bytes(text.encode(), target)


def write_figure(figure: Figure, target: str) -> None:
    """Write a figure to a file in the format of its suffix."""
    from s2sim.report.figures.style import figure_bytes

    write_bytes(figure_bytes(figure, Path(target).suffix[1:].lower()), target)


def write_bytes(data: bytes, target: str) -> None:
    """Write to a file, which is replaced atomically; pipes and devices are written in place."""
    path = Path(target)
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.stat().st_mode):
                path.write_bytes(data)
                return
        replace_file(path, data)
    except OSError as error:
        raise S2SimError(f"cannot write {target}: {error.strerror or error}") from error


@contextmanager
def watching(*, quiet: bool) -> Iterator[ProgressWatcher]:
    """Yield a progress bar if standard error is a terminal, a line every ten seconds if not; silent if ``quiet``."""
    progress = SILENT if quiet else Bar() if sys.stderr.isatty() else Log()
    try:
        yield progress
    finally:
        progress.stop()


LOG_EVERY_S, _AT_ONCE_S = 10.0, 1.0


class Log(ProgressWatcher):
    """A line on standard error whenever ten seconds have passed."""

    def __init__(self) -> None:
        self._logged_s = self._began_s = monotonic()
        self._what, self._done, self._total, self._told = "", 0, 0, ""

    def tell(self, line: str) -> None:
        """Remember what the next line ends with."""
        self._told = f"; {printable(line)}"

    def start(self, total: int, what: str) -> None:
        """Begin a phase of ``total`` advances."""
        self._what, self._done, self._total, self._began_s = what, 0, total, monotonic()
        self.advance(0)

    def advance(self, steps: int = 1) -> None:
        """Take some steps of the phase."""
        self._done += steps
        if monotonic() - self._logged_s >= LOG_EVERY_S:
            self._logged_s = monotonic()
            of = f" of {self._total}" if self._total else ""
            left_s = (monotonic() - self._began_s) * max(0.0, self._total / (self._done or 1) - 1)
            of += f", {format_seconds(left_s)} left" if self._total and self._done else ""
            sys.stderr.write(f"s2sim: {printable(self._what)}, {self._done}{of}{self._told}\n")


class Bar(ProgressWatcher):
    """A transient progress bar per phase; results of work longer than a second are printed above as they finish."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._began_s = monotonic()
        self._untold: list[str] = []

    def start(self, total: int, what: str) -> None:
        """Begin a phase of ``total`` advances."""
        from rich import progress
        from rich.console import Console

        self.stop()
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(printable(what), total=total or None)
        self._bar.start()

    def advance(self, steps: int = 1) -> None:
        """Take some steps of the phase."""
        if self._bar is not None:
            self._bar.advance(self._task, steps)

    def tell(self, line: str) -> None:
        """Print a result."""
        self._untold.append(printable(line))
        if self._bar is not None and monotonic() > self._began_s + _AT_ONCE_S:
            for each in self._untold:
                self._bar.console.print(each, markup=False, highlight=False, soft_wrap=True)
            self._untold.clear()

    def stop(self) -> None:
        """End the phase."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
