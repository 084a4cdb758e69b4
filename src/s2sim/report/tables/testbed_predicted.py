"""A testbed beside its prediction: errors by what and size, worst points, calls against dense, break-even rates."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.texts import UNDEFINED
from s2sim.study.testbed.result import median_error
from s2sim.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.study.calibrate.result import FittedConstant
    from s2sim.study.testbed.fit import SettingFit
    from s2sim.study.testbed.result import BreakEvenRate, Call, Comparison, Point

_WORST = 8


def comparison_lines(result: Comparison) -> list[str]:
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


def comparison_grids(result: Comparison) -> list[Grid]:
    """Return constants, errors by kind and by setting, calls that are wrong, break-even rates, and the worst points."""
    grids = [constants_grid(result.constants), errors_grid(result), settings_grid(result)]
    if wrong := [call for call in result.calls if not call.right]:
        grids.append(calls_grid(wrong))
    if result.break_even:
        grids.append(break_even_grid(result.break_even))
    grids.append(points_grid("worst predictions of unseen settings", worst(result.unseen)))
    return grids


def constants_grid(constants: Sequence[FittedConstant]) -> Grid:
    """Return a line a constant."""
    return tabulate(
        "constants",
        constants,
        words("constant", lambda each: each.name),
        figures("shipped", lambda each: _value(each.shipped, each.unit)),
        figures("fitted", lambda each: _value(each.fitted, each.unit)),
        words("90 % within", lambda each: f"{_value(each.low, each.unit)} to {_value(each.high, each.unit)}"),
    )


def errors_grid(result: Comparison) -> Grid:
    """Return a line for each thing that was measured, unseen settings alone."""
    names = dict.fromkeys((point.kind, point.what) for point in result.unseen)
    of = {name: [point for point in result.unseen if (point.kind, point.what) == name] for name in names}
    return tabulate(
        "median |ln(predicted / measured)| of unseen settings",
        list(names),
        words("what", lambda name: name[1] if name[0] == "collectives" else f"{name[1]} ({name[0]})"),
        figures("points", lambda name: str(len(of[name]))),
        figures("from 1 MiB", lambda name: _error(p for p in of[name] if p.large)),
        figures("below", lambda name: _error(p for p in of[name] if not p.large)),
    )


def settings_grid(result: Comparison) -> Grid:
    """Return a line a setting."""
    names = list(dict.fromkeys(point.setting for point in result.points))
    of = {name: [point for point in result.points if point.setting == name] for name in names}
    return tabulate(
        "median |ln(predicted / measured)| by setting",
        names,
        words("setting", lambda name: f"{name} (calibrated)" if name == result.calibrated_on else name),
        figures("workers", lambda name: str(of[name][0].workers)),
        figures("rate", lambda name: rate_text(of[name][0].rate_Bps)),
        figures("points", lambda name: str(len(of[name]))),
        figures("from 1 MiB", lambda name: _error(p for p in of[name] if p.large)),
        figures("below", lambda name: _error(p for p in of[name] if not p.large)),
    )


def calls_grid(calls: Sequence[Call]) -> Grid:
    """Return a line for each call that is wrong."""
    return tabulate(
        "calls against dense that are wrong: dense's time over the reducer's",
        calls,
        words("setting", lambda call: call.setting),
        words("reducer", lambda call: f"{call.what} ({call.kind})"),
        figures("measured", lambda call: f"{call.measured:.2f}"),
        figures("predicted", lambda call: f"{call.predicted:.2f}"),
    )


def break_even_grid(rates: Sequence[BreakEvenRate]) -> Grid:
    """Return a line for each reducer and number of workers."""
    return tabulate(
        "rate at which a reducer and dense take equally long",
        rates,
        words("reducer", lambda each: f"{each.what} ({each.kind})"),
        figures("workers", lambda each: str(each.workers)),
        figures("dense", lambda each: format_bytes(each.payload_bytes)),
        figures("measured", lambda each: rate_text(each.measured_Bps)),
        words("between", lambda each: f"{rate_text(each.low_Bps)} and {rate_text(each.high_Bps)}"),
        figures("predicted", lambda each: UNDEFINED if each.predicted_Bps is None else rate_text(each.predicted_Bps)),
        figures("factor", lambda each: UNDEFINED if isinf(each.factor) else f"{each.factor:.2f}"),
    )


def points_grid(title: str, points: Sequence[Point]) -> Grid:
    """Return a line a point."""
    return tabulate(
        title,
        points,
        words("setting", lambda point: point.setting),
        words("what", lambda point: point.what),
        figures("size", lambda point: format_bytes(point.payload_bytes)),
        figures("measured", lambda point: format_seconds(point.measured_s)),
        figures("predicted", lambda point: format_seconds(point.predicted_s)),
        figures("ln", lambda point: f"{point.error:+.2f}"),
    )


def worst(points: Sequence[Point]) -> list[Point]:
    """Return the points that are furthest off."""
    return sorted(points, key=lambda point: -abs(point.error))[:_WORST]


def rate_text(rate_Bps: float) -> str:
    """Return a rate in bits per second, as networks are sold.

    >>> rate_text(125e6), rate_text(float("inf"))
    ('1 Gbps', 'not shaped')
    """
    return "not shaped" if isinf(rate_Bps) else format_rate(rate_Bps)


def _error(points: Iterable[Point]) -> str:
    found = median_error(points)
    return UNDEFINED if found is None else f"{found:.3f}"


def _value(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}".rstrip()
