"""A collective as the terminal shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.cli.output import STDOUT, show_grids, show_lines, write_json
from s2sim.report.tables import text
from s2sim.report.tables.screens import collective_screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.collective.result import CollectiveResult


def show_collective(
    result: CollectiveResult, listed: Sequence[str], json: str | None, *, quiet: bool, silent: bool
) -> None:
    """Print or write a result; ``silent`` where standard output is taken."""
    if json is not None:
        write_json(result.to_json(), json)
    if json == STDOUT or silent:
        return
    if quiet:
        show_lines([text.collective_summary(result), *listed])
        return
    screen = collective_screen(result)
    show_lines(screen.before)
    if listed:
        show_lines(["", *listed])
    show_grids(screen.grids)
