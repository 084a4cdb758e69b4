"""Constants fitted to measurements of one machine, and what they make of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.text import aligned
from s2sim.report.tables.texts import UNDEFINED
from s2sim.study.collective.against_result import LARGE_BYTES
from s2sim.units import format_seconds
from s2sim.words import number_of

if TYPE_CHECKING:
    from s2sim.study.calibrate.result import CalibrationResult, FittedConstant, MedianError, Suggestion


def calibration_lines(result: CalibrationResult) -> list[str]:
    """Return to what the constants were fitted, and how far off predictions were and are."""
    if not result.points:
        return []
    runs = dict.fromkeys(f"{point.collective} over {point.workers} workers" for point in result.points)
    large = sum(point.size_bytes >= LARGE_BYTES for point in result.points)
    counts = f"{large} from 1 MiB on, {len(result.points) - large} below"
    by = f", {', '.join(result.versions)}" if result.versions else ""
    errors = [
        ("shipped constants", *_errors(result.before)),
        ("fitted constants", *_errors(result.after)),
        ("each point left out", *_errors(result.held_out)),
    ]
    return [
        f"{number_of(len(result.constants), 'constant')} fitted to {number_of(len(result.points), 'point')} ({counts})",
        f"  {'; '.join(runs)}{by}",
        "median |ln(predicted / measured)|, from 1 MiB on and below:",
        *aligned(errors, indent="  "),
    ]


def suggestion_lines(suggestion: Suggestion | None) -> list[str]:
    """Return what to measure next, and how."""
    if suggestion is None:
        return []
    band = f"the band of 90 % narrows from {suggestion.band_now:.1%} to {suggestion.band_after:.1%}"
    return [f"Measure next ({band}): {suggestion.command}"]


def constants_grid(result: CalibrationResult) -> Grid:
    """Return a line a constant."""
    return tabulate(
        "constants",
        result.constants,
        words("constant", lambda each: each.name),
        figures("shipped", lambda each: _value(each.shipped, each)),
        figures("fitted", lambda each: _value(each.fitted, each)),
        words("90 % within", lambda each: f"{_value(each.low, each)} to {_value(each.high, each)}"),
    )


def points_grid(result: CalibrationResult) -> Grid:
    """Return a line a measured point."""
    return tabulate(
        "predicted beside measured",
        result.points,
        words("collective", lambda point: point.collective),
        figures("workers", lambda point: str(point.workers)),
        figures("size (B)", lambda point: str(point.size_bytes)),
        figures("measured", lambda point: format_seconds(point.measured_s)),
        figures("shipped", lambda point: format_seconds(point.before_s)),
        figures("fitted", lambda point: format_seconds(point.after_s)),
        figures("left out", lambda point: UNDEFINED if point.held_out_s is None else format_seconds(point.held_out_s)),
    )


def _value(value: float, constant: FittedConstant) -> str:
    return f"{value:.3g}{' ' * bool(constant.unit)}{constant.unit}"


def _errors(error: MedianError) -> tuple[str, str]:
    large, small = (UNDEFINED if each is None else f"{each:.3f}" for each in (error.large, error.small))
    return large, small
