"""What a run shows first, whatever shows it: paragraphs and tables in their order."""

from __future__ import annotations

import re
from io import StringIO
from textwrap import fill
from typing import TYPE_CHECKING

from s2sim.report.tables.answer import answer_grid
from s2sim.report.tables.grid import narrowest
from s2sim.report.tables.scaling import scaling_grid
from s2sim.report.tables.texts import workers_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.report.tables.grid import Grid
    from s2sim.study.measuring.result import Result

_COLUMNS = 80


def verdict_lines(result: Result) -> list[str]:
    """Return what to do with each number of workers, and all about the largest: three lines where there is one."""
    first, *others = result.verdict.lines
    if len(result.verdicts) == 1:
        return [first, *others]
    by_text: dict[str, list[int]] = {}
    for each in result.verdicts:
        by_text.setdefault(each.lines[0], []).append(each.workers)
    return [*(f"{_several_workers(counts)}: {line}" for line, counts in by_text.items()), *others]


def _several_workers(counts: list[int]) -> str:
    """Return some numbers of workers for reading."""
    *others, last = counts
    return f"{', '.join(map(str, others))}{' and ' if others else ''}{workers_text(last)}"


def result_table(result: Result) -> tuple[Grid, list[str]]:
    """Return the reducers of the only number of workers, or times over several; and what stands below the table."""
    if len(result.verdicts) > 1:
        return scaling_grid(result)
    return answer_grid(result.results, result.verdict, result.refused)


def about_lines(result: Result) -> list[str]:
    """Return on what cluster, with what, and of whose gradients."""
    machines = f"{result.machines[0].upper()}{result.machines[1:]}."
    return [result.cluster, machines, result.gradients.sentence()]


def result_text(result: Result) -> str:
    """Return the first screen as plain text of 80 columns."""
    grid, below = result_table(result)
    after = [*below, "", *about_lines(result)]
    after += [f"Note: {note}." for note in result.caveats]
    return lines_text(verdict_lines(result), [grid], after)


def lines_text(before: Sequence[str], grids: Sequence[Grid], after: Sequence[str]) -> str:
    """Return lines, tables and lines as plain text of 80 columns, or of as many as a table cannot do without."""
    tables = [line for grid in grids for line in _table_lines(grid)]
    return "\n".join([*map(_filled, before), *tables, *map(_filled, after)])


def _table_lines(grid: Grid) -> list[str]:
    from rich.console import Console

    from s2sim.report.tables.terminal import rich_tables

    stream = StringIO()
    console = Console(file=stream, width=max(_COLUMNS, narrowest(grid)), highlight=False, color_system=None)
    for table in rich_tables(grid, _COLUMNS):
        console.print()
        console.print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _filled(line: str) -> str:
    # What goes on stands under what it goes on from: behind a label, where there is one.
    label = re.match(r"\s+(\S+( \S+)*\s{2,})?", line)
    indent = " " * (0 if label is None else label.end())
    return fill(line, _COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
