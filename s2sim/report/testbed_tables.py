"""Tables of times measured on testbeds, and of these compared with predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isinf
from typing import TypeAlias

from s2sim.report.format import UNDEFINED, group_by, note_lines, optional_text
from s2sim.report.grid import Grid, Screen, TableColumn, filled, number_column, tabulate, text_column
from s2sim.report.log_comparison import constants_grid
from s2sim.testbed.measured import MeasuredTestbeds, MeasuredTiming
from s2sim.units import format_bytes, format_rate, format_seconds
from s2sim.validation.testbed import BreakEvenRate, ComparedTime, PredictionComparison, median_error
from s2sim.validation.testbed_fit import SettingFit

_WORST = 8


def measured_grids(measured: MeasuredTestbeds) -> list[Grid]:
    """Return a table per kind that has rows."""
    tables = (
        ("Collectives between processes", measured.collectives),
        ("Reducers between processes", measured.reducers),
        ("Iterations: computing, then reducing", measured.iterations),
    )
    return [_grid(title, rows) for title, rows in tables if rows]


def measured_lines(measured: MeasuredTestbeds) -> list[str]:
    """Return notes on the tables of measured times."""
    lines = ["From the instant at which all ranks begin until the last is done; CPU: of all processes together."]
    asleep = [setting.name for setting in measured.settings if setting.workers > setting.processors]
    if measured.iterations and asleep:
        lines.append(
            f"Workers of {', '.join(asleep)} slept instead of computing, because they outnumber the processors."
        )
    return lines


def _grid(title: str, rows: tuple[MeasuredTiming, ...]) -> Grid:
    def seconds(title: str, field: str) -> TableColumn[MeasuredTiming]:
        return number_column(title, lambda row: format_seconds(getattr(row, field)))

    return tabulate(
        title,
        rows,
        text_column("setting", lambda row: row.setting),
        text_column("what", lambda row: row.what),
        number_column("buffer", lambda row: format_bytes(row.payload_bytes)),
        seconds("compute", "compute_s") if rows[0].compute_s else None,
        seconds("median", "median_s"),
        seconds("P10", "low_s"),
        seconds("P90", "high_s"),
        seconds("codec", "codec_s") if any(row.codec_s for row in rows) else None,
        number_column("sent", lambda row: format_bytes(row.sent_bytes)),
        seconds("CPU", "cpu_s"),
        number_column("repeats", lambda row: str(row.repeats)),
    )


def comparison_lines(result: PredictionComparison) -> list[str]:
    """Return the numbers of predicted times, their median errors and the share of right calls."""
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


def comparison_screen(result: PredictionComparison) -> Screen:
    """Return predicted times against measured ones, constants, errors, calls, break-even rates and the worst points."""
    lines, notes = comparison_lines(result), note_lines(result.notes)
    return Screen(lines, comparison_grids(result), notes, [*lines, *notes])


def fit_screen(fit: SettingFit) -> Screen:
    """Return the setting that constants were fitted to, median errors before and after, and the constants."""
    where = f"{fit.setting.name} ({fit.setting.workers} workers, {rate_text(fit.setting.rate_Bps)})"
    lines = [
        f"{len(fit.constants)} constants of gloo fitted to {len(fit.rows)} times of {where}",
        f"median |ln(predicted / measured)|: {fit.before:.3f} with shipped constants, {fit.after:.3f} with these",
    ]
    return Screen(lines, [constants_grid(fit.constants)], [], lines)


def comparison_grids(result: PredictionComparison) -> list[Grid]:
    """Return constants, errors by kind and by setting, calls that are wrong, break-even rates, and the worst points."""
    wrong = tabulate(
        "calls against dense that are wrong: dense's time over the reducer's",
        [call for call in result.calls if not call.right],
        text_column("setting", lambda call: call.setting),
        text_column("reducer", lambda call: f"{call.what} ({call.kind})"),
        number_column("measured", lambda call: f"{call.measured:.2f}"),
        number_column("predicted", lambda call: f"{call.predicted:.2f}"),
    )
    worst = tabulate(
        "worst predictions of unseen settings",
        sorted(result.unseen, key=lambda point: -abs(point.error))[:_WORST],
        text_column("setting", lambda point: point.setting),
        text_column("what", lambda point: point.what),
        number_column("size", lambda point: format_bytes(point.payload_bytes)),
        number_column("measured", lambda point: format_seconds(point.measured_s)),
        number_column("predicted", lambda point: format_seconds(point.predicted_s)),
        number_column("ln", lambda point: f"{point.error:+.2f}"),
    )
    grids = [constants_grid(result.constants), _errors_grid(result), _settings_grid(result)]
    return [*grids, *filled(wrong, _break_even_grid(result.break_even)), worst]


_Points: TypeAlias = tuple[str, list[ComparedTime]]


def _error_columns() -> tuple[TableColumn[_Points], ...]:
    """Return columns with the number of points and their median errors by size."""
    return (
        number_column("points", lambda item: str(len(item[1]))),
        number_column("from 1 MiB", lambda item: _error(point for point in item[1] if point.large)),
        number_column("below", lambda item: _error(point for point in item[1] if not point.large)),
    )


def _errors_grid(result: PredictionComparison) -> Grid:
    def name(point: ComparedTime) -> str:
        return point.what if point.kind == "collectives" else f"{point.what} ({point.kind})"

    return tabulate(
        "median |ln(predicted / measured)| of unseen settings",
        group_by(result.unseen, name).items(),
        text_column("what", lambda item: item[0]),
        *_error_columns(),
    )


def _settings_grid(result: PredictionComparison) -> Grid:
    return tabulate(
        "median |ln(predicted / measured)| by setting",
        group_by(result.points, lambda point: point.setting).items(),
        text_column("setting", lambda item: f"{item[0]}{' (calibrated)' if item[0] == result.calibrated_on else ''}"),
        number_column("workers", lambda item: str(item[1][0].workers)),
        number_column("rate", lambda item: rate_text(item[1][0].rate_Bps)),
        *_error_columns(),
    )


def _break_even_grid(rates: Sequence[BreakEvenRate]) -> Grid:
    return tabulate(
        "rate at which a reducer and dense take equally long",
        rates,
        text_column("reducer", lambda item: f"{item.what} ({item.kind})"),
        number_column("workers", lambda item: str(item.workers)),
        number_column("dense", lambda item: format_bytes(item.payload_bytes)),
        number_column("measured", lambda item: rate_text(item.measured_Bps)),
        text_column("between", lambda item: f"{rate_text(item.low_Bps)} and {rate_text(item.high_Bps)}"),
        number_column("predicted", lambda item: optional_text(rate_text)(item.predicted_Bps)),
        number_column("factor", lambda item: UNDEFINED if isinf(item.factor) else f"{item.factor:.2f}"),
    )


def rate_text(rate_Bps: float) -> str:
    """Return a rate in bits per second, as networks are sold.

    >>> rate_text(125e6), rate_text(float("inf"))
    ('1 Gbps', 'not shaped')
    """
    return "not shaped" if isinf(rate_Bps) else format_rate(rate_Bps)


def _error(points: Iterable[ComparedTime]) -> str:
    return optional_text("{:.3f}".format)(median_error(points))
