"""What one collective, traffic and a regime map show first, whatever shows it: lines and tables in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from s2sim.report.tables.against import against_grid, against_lines
from s2sim.report.tables.calibrate import calibration_lines, constants_grid, points_grid, suggestion_lines
from s2sim.report.tables.explained import difference_grid, scales_grid
from s2sim.report.tables.faults import fault_lines
from s2sim.report.tables.flows import flows_grid, flows_lines
from s2sim.report.tables.html import lines_html
from s2sim.report.tables.iterations import (
    ITERATIONS_LEGEND,
    iterations_grids,
    iterations_lines,
    unpredicted_iteration_lines,
    worst_iteration_lines,
)
from s2sim.report.tables.papers import claims_grid, numbers_grid, paper_head, papers_lines, setup_lines, why_lines
from s2sim.report.tables.regimes import names_line, regime_grids
from s2sim.report.tables.rows import links_grid
from s2sim.report.tables.screen import lines_text
from s2sim.report.tables.terms import terms_grid
from s2sim.report.tables.text import aligned, collective_lines
from s2sim.report.tables.train import train_grid, train_lines
from s2sim.report.tables.validate import LEGEND, answer_lines, not_predicted_lines, validate_grids, worst_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.report.tables.grid import Grid
    from s2sim.study.calibrate.result import CalibrationResult
    from s2sim.study.collective.against_result import AgainstResult
    from s2sim.study.collective.result import CollectiveResult
    from s2sim.study.convergence.result import Trained
    from s2sim.study.flows.result import FlowsResult
    from s2sim.study.papers.claim import Papers, Rebuilt
    from s2sim.study.regimes.map import RegimeMap
    from s2sim.study.result_form import ResultForm
    from s2sim.study.validate.iterations.result import IterationsResult
    from s2sim.study.validate.result import ValidationResult


class Screen(NamedTuple):
    """Lines, tables, and lines after them."""

    before: list[str]
    grids: list[Grid]
    after: list[str]


def collective_screen(result: CollectiveResult) -> Screen:
    """Return the answer with everything that explains it, its terms if there are any, and the busiest links."""
    terms = [terms_grid(result.terms, result.time_s)] if result.terms else []
    links = [links_grid(result.bottlenecks)] if result.bottlenecks else []
    notes = [f"Note: {note}." for note in result.notes]
    return Screen(
        [result.cluster, *collective_lines(result), *fault_lines(result.effects), *notes], [*terms, *links], []
    )


def against_screen(result: AgainstResult) -> Screen:
    """Return how far simulated times are from measured ones, over all, by size, and which terms explain it."""
    terms = [difference_grid(result), scales_grid(result)] if result.terms else []
    notes = [f"Note: {note}." for note in result.notes]
    return Screen(
        [result.cluster, *against_lines(result)], [against_grid(result), *terms], ["", *notes] if notes else []
    )


def flows_screen(result: FlowsResult) -> Screen:
    """Return the answer, the transfers that waited most, and the busiest links."""
    grids = [flows_grid(result), links_grid(result.bottlenecks)] if len(result.finish_s) else []
    return Screen([*flows_lines(result), *fault_lines(result.effects)], grids, [])


def regimes_screen(result: RegimeMap) -> Screen:
    """Return who wins where, and what that means."""
    names = names_line(result.spec.reducers)
    notes = [f"Note: {note}." for note in result.notes]
    return Screen(
        [result.cluster],
        regime_grids(result),
        ["", *([] if names is None else [names]), *notes, "", result.summary],
    )


def validate_screen(result: ValidationResult) -> Screen:
    """Return how far off predictions are: over curves and sources, by class, a line a curve, and the worst."""
    notes = [f"Note: {note}." for note in result.notes]
    return Screen(
        [result.what, *answer_lines(result)],
        validate_grids(result),
        ["", LEGEND, "", *worst_lines(result), *not_predicted_lines(result), "", *notes],
    )


def iterations_screen(result: IterationsResult) -> Screen:
    """Return how far off predictions of iterations are: by source, right calls, a line a row, and the worst."""
    notes = [f"Note: {note}." for note in result.notes]
    more = [*worst_iteration_lines(result), *unpredicted_iteration_lines(result)]
    return Screen(
        [result.what, *iterations_lines(result)],
        iterations_grids(result),
        ["", ITERATIONS_LEGEND, "", *more, "", *notes],
    )


def calibrate_screen(result: CalibrationResult) -> Screen:
    """Return the constants that were fitted, what they make of predictions, and what to measure next."""
    notes = [f"Note: {note}." for note in result.notes]
    grids = [constants_grid(result), points_grid(result)] if result.points else []
    after = [*suggestion_lines(result.suggestion), *notes]
    return Screen([result.cluster, *calibration_lines(result)], grids, ["", *after] if grids and after else after)


def paper_screen(paper: Rebuilt) -> Screen:
    """Return the claims of a paper with judgements, why, set-up and what is assumed, and the numbers behind."""
    about = aligned(setup_lines(paper), indent="  ")
    return Screen(
        paper_head(paper), [claims_grid(paper), *map(numbers_grid, paper.tables)], ["", *why_lines(paper), "", *about]
    )


def papers_screen(result: Papers) -> Screen:
    """Return the claims of several papers with judgements and why."""
    why = [line for paper in result.papers for line in ("", *paper_head(paper), *why_lines(paper))]
    return Screen(papers_lines(result), [claims_grid(paper) for paper in result.papers], why)


def train_screen(result: Trained) -> Screen:
    """Return what each reducer needed to reach the target, and the answer."""
    notes = [f"Note: {note}." for note in result.notes]
    return Screen([result.headline, *train_lines(result)], [train_grid(result)], ["", *notes, "", *result.verdict])


_SCREENS: dict[str, Callable[[Any], Screen]] = {
    "against": against_screen,
    "calibrate": calibrate_screen,
    "collective": collective_screen,
    "flows": flows_screen,
    "iterations": iterations_screen,
    "paper": papers_screen,
    "regimes": regimes_screen,
    "train": train_screen,
    "validate": validate_screen,
}


def screen_text(result: ResultForm) -> str:
    """Return the screen of an answer as plain text."""
    return lines_text(*_SCREENS[result.answers](result))


def screen_html(result: ResultForm) -> str:
    """Return the screen of an answer as a fragment of HTML."""
    return lines_html(*_SCREENS[result.answers](result))
