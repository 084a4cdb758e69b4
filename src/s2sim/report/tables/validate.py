"""How far predictions are from measured curves, as tables and lines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.texts import UNDEFINED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.study.validate.result import CurveErrors, Errors, Group, Parameter, ValidationResult

_WORST = 10
_SOURCES_OF_A_CLASS = 3
_LONGEST_NAME = 38
LEGEND = (
    "Errors are |ln(predicted/measured)|, 0.1 is about 10 %: of a curve the median over powers of two from 1 MiB on "
    "(large) and below (small). bias: ln(predicted/measured), below 0 predicted too fast. P90: nine of ten curves are "
    "below."
)


def error_text(value: float | None) -> str:
    """Return a log error for reading.

    >>> error_text(0.123), error_text(None)
    ('0.12', '-')
    """
    return UNDEFINED if value is None else f"{value:.2f}"


def signed_text(value: float | None) -> str:
    """Return a signed log error for reading.

    >>> signed_text(-0.123), signed_text(None)
    ('-0.12', '-')
    """
    return UNDEFINED if value is None else f"{value:+.2f}"


def answer_lines(result: ValidationResult) -> list[str]:
    """Return the answer: of good curves without a doubt, in one line for each range of sizes."""
    overall = result.overall
    lines = [
        f"{overall.predicted} of {overall.curves} good curves without a doubt are predicted",
        *_off_by("", overall),
    ]
    if result.leave_one_source_out is not None:
        lines += _off_by("source left out of the fit, ", result.leave_one_source_out.overall)
    return lines


def _off_by(what: str, group: Group) -> list[str]:
    """Return a line for each range of sizes."""
    lines = []
    for name, errors in (("1 MiB and larger", group.large), ("below 1 MiB", group.small)):
        if errors is not None:
            voice = errors.one_voice
            interval = "" if voice.low is None else f" ({error_text(voice.low)} to {error_text(voice.high)})"
            lines.append(
                f"{what}{name}: off by {error_text(errors.median)} (median), bias {signed_text(errors.bias)}; "
                f"one voice a source: {error_text(voice.median)}{interval}"
            )
    return lines


def validate_grids(result: ValidationResult) -> list[Grid]:
    """Return the tables: all curves together, by class, by source, and a line a curve, the others apart."""
    groups = [result.overall, result.apart.doubtful, result.apart.suspect]
    grids = [groups_grid("over curves", "", groups)]
    for kind in dict.fromkeys(item.kind for item in result.by_class):
        found = [item.group for item in result.by_class if item.kind == kind]
        grids.append(groups_grid(f"good curves by {kind}", kind, found))
    grids.append(groups_grid("good curves by source", "source", result.by_source))
    if (left_out := result.leave_one_source_out) is not None:
        found = [replace(item.group, name=f"{item.kind} {item.group.name}") for item in left_out.by_class]
        groups = [replace(left_out.overall, name="all good curves"), *found]
        grids.append(groups_grid("sources left out of the fit, classes of three or more", "class", groups))
    grids += [parameters_grid(result.parameters)] if result.parameters else []
    counted = [curve for curve in result.curves if curve.counts]
    others = [curve for curve in result.curves if not curve.counts]
    grids += [curves_grid("good curves", counted)] if counted else []
    grids += [curves_grid("apart: doubtful or suspect", others)] if others else []
    return grids


def groups_grid(title: str, what: str, groups: Sequence[Group]) -> Grid:
    """Return a line a group of curves."""

    def of_large(cell: Callable[[Errors], str]) -> Callable[[Group], str]:
        return lambda group: UNDEFINED if group.large is None else cell(group.large)

    def of_small(cell: Callable[[Errors], str]) -> Callable[[Group], str]:
        return lambda group: UNDEFINED if group.small is None else cell(group.small)

    return tabulate(
        title,
        groups,
        words(what, lambda group: group.name[:_LONGEST_NAME]),
        figures("pre-\ndicted", lambda group: f"{group.predicted}/{group.curves}"),
        figures("large:\nmedian", of_large(lambda errors: error_text(errors.median))),
        figures("P90", of_large(lambda errors: error_text(errors.p90))),
        figures("bias", of_large(lambda errors: signed_text(errors.bias))),
        figures("over\n0.5", of_large(lambda errors: str(errors.off_by_half))),
        figures("small:\nmedian", of_small(lambda errors: error_text(errors.median))),
        figures("P90", of_small(lambda errors: error_text(errors.p90))),
        figures("bias", of_small(lambda errors: signed_text(errors.bias))),
    )


def parameters_grid(parameters: Sequence[Parameter]) -> Grid:
    """Return a line a constant: what is shipped, what fits best now, and where it goes without a source."""

    def drift(parameter: Parameter) -> str:
        found = parameter.drift
        if found is None:
            return UNDEFINED
        return f"{constant_text(found.low, parameter.unit)} to {constant_text(found.high, parameter.unit)}"

    return tabulate(
        "fitted constants",
        parameters,
        words("constant", lambda parameter: parameter.name),
        figures("shipped", lambda parameter: constant_text(parameter.value, parameter.unit)),
        figures("refitted", lambda parameter: constant_text(parameter.refitted, parameter.unit)),
        figures("a source\nleft out", drift),
        figures("sources", lambda parameter: str(len(parameter.fitted_on))),
        figures("curves", lambda parameter: str(parameter.curves)),
    )


def constant_text(value: float, unit: str) -> str:
    """Return a constant for reading.

    >>> constant_text(8.4e-6, "s"), constant_text(0.915, "share")
    ('8.4 us', '0.915')
    """
    if unit == "s":
        return f"{value * 1e6:.3g} us"
    return f"{value / 1e9:.3g} GB/s" if unit == "B/s" else f"{value:.3f}"


def curves_grid(title: str, curves: Sequence[CurveErrors]) -> Grid:
    """Return a line a curve."""
    return tabulate(
        title,
        curves,
        words("curve", lambda curve: curve.id),
        figures("points", lambda curve: str(curve.n_points)),
        figures("large", lambda curve: error_text(curve.median_abs_log_error_large)),
        figures("signed", lambda curve: signed_text(curve.signed_log_error_large)),
        figures("small", lambda curve: error_text(curve.median_abs_log_error_small)),
        figures("signed", lambda curve: signed_text(curve.signed_log_error_small)),
    )


def worst(result: ValidationResult) -> list[CurveErrors]:
    """Return the ten good curves that are predicted worst at large sizes, or small ones where they have no other."""
    found = [curve for curve in result.curves if curve.counts and curve.predicted]
    return sorted(found, key=_off, reverse=True)[:_WORST]


def _off(curve: CurveErrors) -> tuple[float, float]:
    return curve.median_abs_log_error_large or 0.0, curve.median_abs_log_error_small or 0.0


def why_line(curve: CurveErrors) -> str:
    """Return how far off a curve is and, as far as its row tells, why."""
    errors = f"{signed_text(curve.signed_log_error_large)} / {signed_text(curve.signed_log_error_small)}"
    return f"{curve.id}: {errors}; {'; '.join(curve.likely_why) or 'its row does not tell why'}"


def worst_lines(result: ValidationResult) -> list[str]:
    """Return a line on each of the worst."""
    found = worst(result)
    head = "Worst of the good curves at large sizes (bias large / small), and what the model lacks there:"
    return [head, *(f"- {why_line(curve)}" for curve in found)] if found else []


def band_lines(result: ValidationResult) -> list[str]:
    """Return which share of points lies in the bands of 90 %: of all good curves, and of classes of three sources."""
    held = [curve for curve in result.curves if curve.counts and curve.band_holds_share is not None]
    if not held:
        return []
    lines = [f"- all good curves: {_held(held):.0%}"]
    for kind in ("gpu", "transport", "collective", "launch"):
        for name in sorted({getattr(curve, kind) for curve in held}):
            alike = [curve for curve in held if getattr(curve, kind) == name]
            if len({curve.source for curve in alike}) >= _SOURCES_OF_A_CLASS:
                lines.append(f"- {kind} {name or 'not known'}: {_held(alike):.0%}")
    return lines


def _held(curves: Sequence[CurveErrors]) -> float:
    """Return the share of points in their bands."""
    points = sum(curve.n_points for curve in curves)
    return sum((curve.band_holds_share or 0.0) * curve.n_points for curve in curves) / points


def not_predicted_lines(result: ValidationResult) -> list[str]:
    """Return why some curves are not predicted."""
    return [f"Not predicted: {curve.id}: {curve.reason}" for curve in result.curves if not curve.predicted]
