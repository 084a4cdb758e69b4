"""The screen of each kind of result: lines, tables and lines, as text or HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from s2sim.report.answer import alternative_lines, lines_text, price_lines, verdict_lines
from s2sim.report.format import collective_lines
from s2sim.report.grid import filled
from s2sim.report.html import lines_html
from s2sim.report.iteration_tables import train_grid, train_lines
from s2sim.report.log_comparison import (
    calibration_lines,
    constants_grid,
    difference_grid,
    log_comparison_grid,
    log_comparison_lines,
    points_grid,
    scales_grid,
    suggestion_lines,
)
from s2sim.report.run_tables import fault_lines, links_grid
from s2sim.report.study_tables import (
    advice_grid,
    claims_grid,
    names_line,
    paper_head,
    papers_lines,
    regime_grids,
    topologies_grid,
    why_lines,
)
from s2sim.report.traffic_tables import flows_grid, flows_lines, terms_grid
from s2sim.report.validation_tables import (
    ITERATIONS_LEGEND,
    LEGEND,
    answer_lines,
    iterations_grids,
    iterations_lines,
    not_predicted_lines,
    validate_grids,
    worst_iteration_lines,
    worst_lines,
)
from s2sim.units import format_number_of

if TYPE_CHECKING:
    from s2sim.advice.advise import Advice
    from s2sim.claims.paper import PapersResult
    from s2sim.experiment.json_form import ResultForm
    from s2sim.experiment.topologies import TopologiesResult
    from s2sim.regimes.map import RegimeMap
    from s2sim.report.grid import Grid
    from s2sim.traffic.collective_result import CollectiveResult
    from s2sim.traffic.flows import FlowsResult
    from s2sim.training.result import TrainResult
    from s2sim.validation.calibrate_result import CalibrationResult
    from s2sim.validation.compare_log_result import LogComparisonResult
    from s2sim.validation.curve_result import ValidationResult
    from s2sim.validation.iteration_result import IterationsResult


class Screen(NamedTuple):
    """Lines, tables, and lines after them."""

    before: list[str]
    grids: list[Grid]
    after: list[str]


def _notes(notes: Sequence[str]) -> list[str]:
    return [f"Note: {note}." for note in notes]


def collective_screen(result: CollectiveResult) -> Screen:
    """Return the answer and its explanation, its terms if there are any, and the busiest links."""
    lines = [result.cluster, *collective_lines(result), *fault_lines(result.effects), *_notes(result.notes)]
    return Screen(lines, filled(terms_grid(result.terms, result.time_s), links_grid(result.bottlenecks)), [])


def log_comparison_screen(result: LogComparisonResult) -> Screen:
    """Return simulated times compared with a log, and the terms that explain their differences."""
    terms = [difference_grid(result), scales_grid(result)] if result.terms else []
    after = ["", *_notes(result.notes)] if result.notes else []
    return Screen([result.cluster, *log_comparison_lines(result)], [log_comparison_grid(result), *terms], after)


def flows_screen(result: FlowsResult) -> Screen:
    """Return the answer, the transfers that waited most, and the busiest links."""
    grids = filled(flows_grid(result), links_grid(result.bottlenecks))
    return Screen([*flows_lines(result), *fault_lines(result.effects)], grids, [])


def regimes_screen(result: RegimeMap) -> Screen:
    """Return the winners by rate, latency, density and overlap."""
    names = names_line(result.spec.reducers)
    after = ["", *([] if names is None else [names]), *_notes(result.notes), "", result.summary]
    return Screen([result.cluster], regime_grids(result), after)


def validate_screen(result: ValidationResult) -> Screen:
    """Return the errors of predicted curves: over all, by class and source, of single curves, and the worst."""
    after = ["", LEGEND, "", *worst_lines(result), *not_predicted_lines(result.curves), "", *_notes(result.notes)]
    return Screen([result.what, *answer_lines(result)], validate_grids(result), after)


def iterations_screen(result: IterationsResult) -> Screen:
    """Return the errors of predicted iterations: by source, right calls, of single rows, and the worst."""
    details = [*worst_iteration_lines(result), *not_predicted_lines(result.iterations)]
    after = ["", ITERATIONS_LEGEND, "", *details, "", *_notes(result.notes)]
    return Screen([result.what, *iterations_lines(result)], iterations_grids(result), after)


def calibrate_screen(result: CalibrationResult) -> Screen:
    """Return fitted constants, predictions with them, and what to measure next."""
    grids = [constants_grid(result.constants), points_grid(result)] if result.points else []
    after = [*suggestion_lines(result.suggestion), *_notes(result.notes)]
    return Screen([result.cluster, *calibration_lines(result)], grids, ["", *after] if grids and after else after)


def papers_screen(result: PapersResult) -> Screen:
    """Return the claims of papers with judgements and reasons."""
    why = [line for paper in result.papers for line in ("", *paper_head(paper), *why_lines(paper))]
    return Screen(papers_lines(result), [claims_grid(paper) for paper in result.papers], why)


def topologies_screen(result: TopologiesResult) -> Screen:
    """Return which topology is fastest and cheapest, a row for each, and what to do on it."""
    from s2sim.experiment.topologies import topology_name  # it knows of runs, which other screens do not need

    says: dict[str, list[str]] = {}
    for each in result.results:
        for line in (
            *verdict_lines(each)[: len(each.verdicts)],
            *alternative_lines(each),
            *price_lines(each),
            *_notes(each.caveats),
        ):
            says.setdefault(line, []).append(topology_name(each.spec.topology))
    of_all = [line for line, names in says.items() if len(names) == len(result.results)]
    of_some = [f"{', '.join(names)}: {line}" for line, names in says.items() if line not in of_all]
    return Screen(list(result.lines), [topologies_grid(result)], [*of_some, *of_all])


def advice_screen(result: Advice) -> Screen:
    """Return the answer, the cells that it rests on, and how many were looked at."""
    looked = f"{result.runs} runs for {format_number_of(result.combinations, 'combination')}."
    return Screen(list(result.lines), [advice_grid(result)], [looked, *_notes(result.notes)])


def train_screen(result: TrainResult) -> Screen:
    """Return the steps, time and bytes to the target of each reducer, and the verdict."""
    after = ["", *_notes(result.notes), "", *result.verdict]
    return Screen([result.headline, *train_lines(result)], [train_grid(result)], after)


_SCREENS: dict[str, Callable[[Any], Screen]] = {
    "advise": advice_screen,
    "against": log_comparison_screen,
    "calibrate": calibrate_screen,
    "collective": collective_screen,
    "flows": flows_screen,
    "iterations": iterations_screen,
    "paper": papers_screen,
    "regimes": regimes_screen,
    "topologies": topologies_screen,
    "train": train_screen,
    "validate": validate_screen,
}


def screen_text(result: ResultForm) -> str:
    """Return the screen of an answer as plain text."""
    return lines_text(*_SCREENS[result.answers](result))


def screen_html(result: ResultForm) -> str:
    """Return the screen of an answer as a fragment of HTML."""
    return lines_html(*_SCREENS[result.answers](result))
