"""How far predictions are from measured curves, as tables and lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

from s2sim.report.format import UNDEFINED, aligned
from s2sim.report.grid import Column, Grid, number_column, tabulate, text_column
from s2sim.units import format_number_of, format_seconds
from s2sim.validation.bridge_check import BridgeCheckResult, CheckRow
from s2sim.validation.calibrate_result import CalibrationResult, FittedConstant, MedianError, Suggestion
from s2sim.validation.compare_log_result import LARGE_BYTES
from s2sim.validation.curve_result import CurveErrors, Errors, Group, Parameter, ValidationResult

_COLUMNS = (
    "Values: of every rank in every step, relative L2; up to 1e-6 where sums are in the library's order. script B: "
    "what all ranks send by the lowered scripts; headers B: Gloo's, three of 48 bytes a message, and 8 bytes of each "
    "new connection; told B: shapes, and who sends, which programs know and processes have to be told; counted B: what "
    "the kernel counted on all TCP connections, less barriers and what was sent again."
)
_ok, _equal, _values_agree = map(attrgetter, ("ok", "equal", "values_agree"))
_NUMBERS = ("script B", "headers B", "told B", "counted B")


def check_grid(checked: BridgeCheckResult) -> Grid:
    """Return a row for each reducer; what does not agree stands out."""
    rows = tuple(_cells(row) for row in checked.rows)
    columns = (
        Column("reducer", numeric=False),
        Column("values", numeric=False),
        *(Column(title) for title in _NUMBERS),
        Column("bytes", numeric=False),
    )
    title = f"{checked.trace} between {checked.workers} processes of {checked.library}"
    return Grid(title, columns, rows, strong=frozenset(at for at, row in enumerate(checked.rows) if not row.ok))


def _cells(row: CheckRow) -> tuple[str, ...]:
    if row.refused:
        return (row.reducer, "not run", *[""] * len(_NUMBERS), "")
    values = "equal" if row.equal else ("undefined" if row.difference is None else f"off by {row.difference:.1e}")
    numbers = (row.payload_bytes, row.around_bytes, row.told_bytes, row.counted_bytes)
    return (row.reducer, values, *map(_grouped, numbers), "equal" if row.bytes_equal else "UNEQUAL")


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def check_lines(checked: BridgeCheckResult) -> list[str]:
    """Return what the table's columns are, what does not agree and why, and the sum of it."""
    rows = checked.rows
    agree, equal, alike = (sum(map(of, rows)) for of in (_ok, _equal, _values_agree))
    lines = [_COLUMNS]
    lines += [f"{row.reducer}: not run: {row.refused}" for row in rows if row.refused]
    lines += [f"{row.reducer}: {row.rounded}" for row in rows if row.rounded]
    lines += [
        f"{row.reducer}: {'' if row.values_agree else 'values '}"
        f"{'' if row.values_agree or row.bytes_equal else 'and '}{'' if row.bytes_equal else 'bytes '}disagree"
        for row in rows
        if not row.ok and not row.refused
    ]
    lines.append(_interface_line(checked))
    lines.append(
        f"{agree} of {len(rows)} reducers agree: {equal} with the same bits, {alike - equal} as far as the order and "
        f"the rounding of sums let them; {sum(row.bytes_equal for row in rows)} with equal bytes."
        + ("" if checked.complete else " Interrupted: what was not finished is missing.")
    )
    return lines


def _interface_line(checked: BridgeCheckResult) -> str:
    found = checked.interface
    if found is None:
        return (
            "The loopback interface is shared with whatever else runs on this machine, so that its own counter tells "
            "nothing: a network namespace of its own needs root."
        )
    text = (
        f"The interface, which nothing else uses: {_grouped(found.bytes)} bytes in {_grouped(found.packets)} packets; "
        f"connections sent {_grouped(found.connections_bytes)}, headers of IP and TCP (52 bytes a packet, 8 more of "
        "the first two of each connection, 12 more of what tells that something came twice) are "
        f"{_grouped(found.header_bytes)}"
    )
    if found.equal:
        return f"{text}: equal."
    apart = _grouped(abs(found.bytes - found.connections_bytes - found.header_bytes))
    why = ": acknowledgements of what was lost name more of what has come" if found.again_bytes else ""
    return f"{text}: {apart} apart{why}."


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
        (
            f"{format_number_of(len(result.constants), 'constant')} fitted to "
            f"{format_number_of(len(result.points), 'point')} ({counts})"
        ),
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
        text_column("constant", lambda each: each.name),
        number_column("shipped", lambda each: _value(each.shipped, each)),
        number_column("fitted", lambda each: _value(each.fitted, each)),
        text_column("90 % within", lambda each: f"{_value(each.low, each)} to {_value(each.high, each)}"),
    )


def points_grid(result: CalibrationResult) -> Grid:
    """Return a line a measured point."""
    return tabulate(
        "predicted beside measured",
        result.points,
        text_column("collective", lambda point: point.collective),
        number_column("workers", lambda point: str(point.workers)),
        number_column("size (B)", lambda point: str(point.size_bytes)),
        number_column("measured", lambda point: format_seconds(point.measured_s)),
        number_column("shipped", lambda point: format_seconds(point.before_s)),
        number_column("fitted", lambda point: format_seconds(point.after_s)),
        number_column(
            "left out", lambda point: UNDEFINED if point.held_out_s is None else format_seconds(point.held_out_s)
        ),
    )


def _value(value: float, constant: FittedConstant) -> str:
    return f"{value:.3g}{' ' * bool(constant.unit)}{constant.unit}"


def _errors(error: MedianError) -> tuple[str, str]:
    large, small = (UNDEFINED if each is None else f"{each:.3f}" for each in (error.large, error.small))
    return large, small


_WORST = 10
_SOURCES_OF_A_CLASS = 3
_MAX_NAME = 38
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
        *_error_range_lines("", overall),
    ]
    if result.leave_one_source_out is not None:
        lines += _error_range_lines("source left out of the fit, ", result.leave_one_source_out.overall)
    return lines


def _error_range_lines(what: str, group: Group) -> list[str]:
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
        text_column(what, lambda group: group.name[:_MAX_NAME]),
        number_column("pre-\ndicted", lambda group: f"{group.predicted}/{group.curves}"),
        number_column("large:\nmedian", of_large(lambda errors: error_text(errors.median))),
        number_column("P90", of_large(lambda errors: error_text(errors.p90))),
        number_column("bias", of_large(lambda errors: signed_text(errors.bias))),
        number_column("over\n0.5", of_large(lambda errors: str(errors.off_by_half))),
        number_column("small:\nmedian", of_small(lambda errors: error_text(errors.median))),
        number_column("P90", of_small(lambda errors: error_text(errors.p90))),
        number_column("bias", of_small(lambda errors: signed_text(errors.bias))),
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
        text_column("constant", lambda parameter: parameter.name),
        number_column("shipped", lambda parameter: constant_text(parameter.value, parameter.unit)),
        number_column("refitted", lambda parameter: constant_text(parameter.refitted, parameter.unit)),
        number_column("a source\nleft out", drift),
        number_column("sources", lambda parameter: str(len(parameter.fitted_on))),
        number_column("curves", lambda parameter: str(parameter.curves)),
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
        text_column("curve", lambda curve: curve.id),
        number_column("points", lambda curve: str(curve.n_points)),
        number_column("large", lambda curve: error_text(curve.median_abs_log_error_large)),
        number_column("signed", lambda curve: signed_text(curve.signed_log_error_large)),
        number_column("small", lambda curve: error_text(curve.median_abs_log_error_small)),
        number_column("signed", lambda curve: signed_text(curve.signed_log_error_small)),
    )


def worst_curves(result: ValidationResult) -> list[CurveErrors]:
    """Return the ten good curves that are predicted worst at large sizes, or small ones where they have no other."""
    found = [curve for curve in result.curves if curve.counts and curve.predicted]
    return sorted(found, key=_curve_error, reverse=True)[:_WORST]


def _curve_error(curve: CurveErrors) -> tuple[float, float]:
    return curve.median_abs_log_error_large or 0.0, curve.median_abs_log_error_small or 0.0


def curve_error_line(curve: CurveErrors) -> str:
    """Return how far off a curve is and, as far as its row tells, why."""
    errors = f"{signed_text(curve.signed_log_error_large)} / {signed_text(curve.signed_log_error_small)}"
    return f"{curve.id}: {errors}; {'; '.join(curve.likely_why) or 'its row does not tell why'}"


def worst_lines(result: ValidationResult) -> list[str]:
    """Return a line on each of the worst."""
    found = worst_curves(result)
    head = "Worst of the good curves at large sizes (bias large / small), and what the model lacks there:"
    return [head, *(f"- {curve_error_line(curve)}" for curve in found)] if found else []


def band_lines(result: ValidationResult) -> list[str]:
    """Return which share of points lies in the bands of 90 %: of all good curves, and of classes of three sources."""
    held = [curve for curve in result.curves if curve.counts and curve.band_holds_share is not None]
    if not held:
        return []
    lines = [f"- all good curves: {_coverage(held):.0%}"]
    for kind in ("gpu", "transport", "collective", "launch"):
        for name in sorted({getattr(curve, kind) for curve in held}):
            alike = [curve for curve in held if getattr(curve, kind) == name]
            if len({curve.source for curve in alike}) >= _SOURCES_OF_A_CLASS:
                lines.append(f"- {kind} {name or 'not known'}: {_coverage(alike):.0%}")
    return lines


def _coverage(curves: Sequence[CurveErrors]) -> float:
    """Return the share of points in their bands."""
    points = sum(curve.n_points for curve in curves)
    return sum((curve.band_holds_share or 0.0) * curve.n_points for curve in curves) / points


def not_predicted_lines(result: ValidationResult) -> list[str]:
    """Return why some curves are not predicted."""
    return [f"Not predicted: {curve.id}: {curve.reason}" for curve in result.curves if not curve.predicted]
