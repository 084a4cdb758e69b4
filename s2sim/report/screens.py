"""The screen of each kind of result, as text or HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from s2sim.report.answer import lines_text
from s2sim.report.html import fragment, screen_report
from s2sim.report.iteration_tables import train_screen
from s2sim.report.log_comparison import calibrate_screen, log_comparison_screen
from s2sim.report.study_tables import advice_screen, papers_screen, regimes_screen, topologies_screen
from s2sim.report.traffic_tables import collective_screen, flows_screen
from s2sim.report.validation_tables import iterations_screen, validate_screen

if TYPE_CHECKING:
    from s2sim.experiment.json_form import ResultForm
    from s2sim.report.grid import Screen

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


def screen_of(result: ResultForm) -> Screen:
    """Return the lines and tables of a result."""
    return _SCREENS[result.answers](result)


def screen_text(result: ResultForm) -> str:
    """Return the screen of a result as plain text."""
    screen = screen_of(result)
    return lines_text(screen.before, screen.grids, screen.after)


def screen_html(result: ResultForm) -> str:
    """Return the screen of a result as a fragment of HTML."""
    return fragment(screen_report(result, screen_of(result)))
