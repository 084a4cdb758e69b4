"""A testbed beside its prediction: errors by what and size, worst points, calls against dense, break-even rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isinf
from typing import TYPE_CHECKING, TypeAlias

from s2sim.report.format import UNDEFINED
from s2sim.report.grid import Column, Grid, number_column, tabulate, text_column
from s2sim.testbed.measured import MeasuredTestbeds, MeasuredTiming
from s2sim.units import format_bytes, format_rate, format_seconds
from s2sim.validation.calibrate_result import FittedConstant
from s2sim.validation.testbed import BreakEvenRate, ComparedTime, PredictionComparison, WinPrediction, median_error
from s2sim.validation.testbed_fit import SettingFit

if TYPE_CHECKING:
    _Figures: TypeAlias = tuple[Column, Callable[[MeasuredTiming], str]]


def measured_grids(found: MeasuredTestbeds) -> list[Grid]:
    """Return a table for each kind of which there are rows."""
    tables = (
        ("Collectives between processes", found.collectives),
        ("Reducers between processes", found.reducers),
        ("Iterations: computing, then reducing", found.iterations),
    )
    return [_grid(title, rows) for title, rows in tables if rows]


def measured_lines(found: MeasuredTestbeds) -> list[str]:
    """Return what one has to know to read the tables."""
    lines = ["From the instant at which all ranks begin until the last is done; CPU: of all processes together."]
    asleep = [setting.name for setting in found.settings if setting.workers > setting.processors]
    if found.iterations and asleep:
        lines.append(
            f"Workers of {', '.join(asleep)} slept instead of computing, because they outnumber the processors."
        )
    return lines


def _grid(title: str, rows: tuple[MeasuredTiming, ...]) -> Grid:
    codec: list[_Figures] = (
        [number_column("codec", lambda row: format_seconds(row.codec_s))] if any(row.codec_s for row in rows) else []
    )
    compute: list[_Figures] = (
        [number_column("compute", lambda row: format_seconds(row.compute_s))] if rows[0].compute_s else []
    )
    return tabulate(
        title,
        rows,
        text_column("setting", lambda row: row.setting),
        text_column("what", lambda row: row.what),
        number_column("buffer", lambda row: format_bytes(row.payload_bytes)),
        *compute,
        number_column("median", lambda row: format_seconds(row.median_s)),
        number_column("P10", lambda row: format_seconds(row.low_s)),
        number_column("P90", lambda row: format_seconds(row.high_s)),
        *codec,
        number_column("sent", lambda row: format_bytes(row.sent_bytes)),
        number_column("CPU", lambda row: format_seconds(row.cpu_s)),
        number_column("repeats", lambda row: str(row.repeats)),
    )


_WORST = 8


def comparison_lines(result: PredictionComparison) -> list[str]:
    """Return what was predicted from what, and how far off that is."""
    unseen, settings = result.unseen, dict.fromkeys(point.setting for point in result.unseen)
    large, small = (_error(point for point in unseen if point.large == size) for size in (True, False))
    lines = [
        f"{len(unseen)} times of {len(settings)} settings predicted with what {result.calibrated_on} alone tells",
        f"median |ln(predicted / measured)|: {large} from 1 MiB on, {small} below",
    ]
    if result.calls:
        right = sum(call.right for call in result.calls)
        lines.append(f"who is faster than dense: {right} of {len(result.calls)} calls right")
    return lines


def fit_lines(fit: SettingFit) -> list[str]:
    """Return to what constants were fitted, and what that makes of it."""
    where = f"{fit.setting.name} ({fit.setting.workers} workers, {rate_text(fit.setting.rate_Bps)})"
    return [
        f"{len(fit.constants)} constants of gloo fitted to {len(fit.rows)} times of {where}",
        f"median |ln(predicted / measured)|: {fit.before:.3f} with shipped constants, {fit.after:.3f} with these",
    ]


def comparison_grids(result: PredictionComparison) -> list[Grid]:
    """Return constants, errors by kind and by setting, calls that are wrong, break-even rates, and the worst points."""
    grids = [constants_grid(result.constants), errors_grid(result), settings_grid(result)]
    if wrong := [call for call in result.calls if not call.right]:
        grids.append(calls_grid(wrong))
    if result.break_even:
        grids.append(break_even_grid(result.break_even))
    grids.append(points_grid("worst predictions of unseen settings", worst_points(result.unseen)))
    return grids


def constants_grid(constants: Sequence[FittedConstant]) -> Grid:
    """Return a line a constant."""
    return tabulate(
        "constants",
        constants,
        text_column("constant", lambda each: each.name),
        number_column("shipped", lambda each: _value(each.shipped, each.unit)),
        number_column("fitted", lambda each: _value(each.fitted, each.unit)),
        text_column("90 % within", lambda each: f"{_value(each.low, each.unit)} to {_value(each.high, each.unit)}"),
    )


def errors_grid(result: PredictionComparison) -> Grid:
    """Return a line for each thing that was measured, unseen settings alone."""
    names = dict.fromkeys((point.kind, point.what) for point in result.unseen)
    of = {name: [point for point in result.unseen if (point.kind, point.what) == name] for name in names}
    return tabulate(
        "median |ln(predicted / measured)| of unseen settings",
        list(names),
        text_column("what", lambda name: name[1] if name[0] == "collectives" else f"{name[1]} ({name[0]})"),
        number_column("points", lambda name: str(len(of[name]))),
        number_column("from 1 MiB", lambda name: _error(p for p in of[name] if p.large)),
        number_column("below", lambda name: _error(p for p in of[name] if not p.large)),
    )


def settings_grid(result: PredictionComparison) -> Grid:
    """Return a line a setting."""
    names = list(dict.fromkeys(point.setting for point in result.points))
    of = {name: [point for point in result.points if point.setting == name] for name in names}
    return tabulate(
        "median |ln(predicted / measured)| by setting",
        names,
        text_column("setting", lambda name: f"{name} (calibrated)" if name == result.calibrated_on else name),
        number_column("workers", lambda name: str(of[name][0].workers)),
        number_column("rate", lambda name: rate_text(of[name][0].rate_Bps)),
        number_column("points", lambda name: str(len(of[name]))),
        number_column("from 1 MiB", lambda name: _error(p for p in of[name] if p.large)),
        number_column("below", lambda name: _error(p for p in of[name] if not p.large)),
    )


def calls_grid(calls: Sequence[WinPrediction]) -> Grid:
    """Return a line for each call that is wrong."""
    return tabulate(
        "calls against dense that are wrong: dense's time over the reducer's",
        calls,
        text_column("setting", lambda call: call.setting),
        text_column("reducer", lambda call: f"{call.what} ({call.kind})"),
        number_column("measured", lambda call: f"{call.measured:.2f}"),
        number_column("predicted", lambda call: f"{call.predicted:.2f}"),
    )


def break_even_grid(rates: Sequence[BreakEvenRate]) -> Grid:
    """Return a line for each reducer and number of workers."""
    return tabulate(
        "rate at which a reducer and dense take equally long",
        rates,
        text_column("reducer", lambda each: f"{each.what} ({each.kind})"),
        number_column("workers", lambda each: str(each.workers)),
        number_column("dense", lambda each: format_bytes(each.payload_bytes)),
        number_column("measured", lambda each: rate_text(each.measured_Bps)),
        text_column("between", lambda each: f"{rate_text(each.low_Bps)} and {rate_text(each.high_Bps)}"),
        number_column(
            "predicted", lambda each: UNDEFINED if each.predicted_Bps is None else rate_text(each.predicted_Bps)
        ),
        number_column("factor", lambda each: UNDEFINED if isinf(each.factor) else f"{each.factor:.2f}"),
    )


def points_grid(title: str, points: Sequence[ComparedTime]) -> Grid:
    """Return a line a point."""
    return tabulate(
        title,
        points,
        text_column("setting", lambda point: point.setting),
        text_column("what", lambda point: point.what),
        number_column("size", lambda point: format_bytes(point.payload_bytes)),
        number_column("measured", lambda point: format_seconds(point.measured_s)),
        number_column("predicted", lambda point: format_seconds(point.predicted_s)),
        number_column("ln", lambda point: f"{point.error:+.2f}"),
    )


def worst_points(points: Sequence[ComparedTime]) -> list[ComparedTime]:
    """Return the points that are furthest off."""
    return sorted(points, key=lambda point: -abs(point.error))[:_WORST]


def rate_text(rate_Bps: float) -> str:
    """Return a rate in bits per second, as networks are sold.

    >>> rate_text(125e6), rate_text(float("inf"))
    ('1 Gbps', 'not shaped')
    """
    return "not shaped" if isinf(rate_Bps) else format_rate(rate_Bps)


def _error(points: Iterable[ComparedTime]) -> str:
    found = median_error(points)
    return UNDEFINED if found is None else f"{found:.3f}"


def _value(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}".rstrip()
