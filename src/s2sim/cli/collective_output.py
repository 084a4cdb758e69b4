"""A collective as the terminal and files show it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.cli import schedule_views as views
from s2sim.cli.output import STDOUT, show_grids, show_lines, write_json
from s2sim.cli.progress import watching
from s2sim.report.tables import text
from s2sim.report.tables.screens import collective_screen
from s2sim.report.tables.terms import terms_grid
from s2sim.study.collective.outcome import result_of
from s2sim.study.collective.terms import terms_of_planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.collective.plan import PlannedCollective
    from s2sim.study.collective.result import CollectiveResult


def show_planned(
    planned: PlannedCollective,
    *,
    show: bool,
    terms: bool,
    png: str | None,
    goal: str | None,
    timeline: str | None,
    json: str | None,
    quiet: bool,
) -> None:
    """Run a planned collective, and print or write it in all forms that were asked for."""
    listed = views.listing(planned.timed.schedule) if show else []
    made_of = terms_of_planned(planned) if terms else ()
    with watching(quiet=quiet) as progress:
        result = replace(result_of(planned, progress), terms=made_of)
    if png is not None:
        views.draw(planned, text.collective_summary(result), png)
    if goal is not None:
        views.write_goal(planned, goal)
    if timeline is not None:
        views.write_timeline(planned, text.collective_summary(result), timeline)
    _show(result, listed, json, quiet=quiet, silent=goal == STDOUT)


def _show(result: CollectiveResult, listed: Sequence[str], json: str | None, *, quiet: bool, silent: bool) -> None:
    """Print or write a result; ``silent`` where standard output is taken."""
    if json is not None:
        write_json(result.to_json(), json)
    if json == STDOUT or silent:
        return
    if quiet:
        show_lines([text.collective_summary(result), *listed])
        show_grids([terms_grid(result.terms, result.time_s)] if result.terms else [])
        return
    screen = collective_screen(result)
    show_lines(screen.before)
    if listed:
        show_lines(["", *listed])
    show_grids(screen.grids)
