"""A collective as the terminal shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.cli.output import STDOUT, show_grids, show_lines, write_json
from s2sim.report.tables import text
from s2sim.report.tables.faults import fault_lines
from s2sim.report.tables.rows import links_grid

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
    show_lines([result.headline, *text.collective_lines(result), *fault_lines(result.effects)])
    if listed:
        show_lines(["", *listed])
    if result.bottlenecks:
        show_grids([links_grid(result.bottlenecks)])
