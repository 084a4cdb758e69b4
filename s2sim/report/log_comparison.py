"""Screens of predictions beside a log, term by term, and beside testbeds; constants fitted to them."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import isinf
from statistics import median

from s2sim.report import format as fmt
from s2sim.report.grid import Grid, Screen, TableColumn, columns_of, filled, number_column, tabulate
from s2sim.report.traffic_tables import term_name
from s2sim.tables import group_by
from s2sim.testbed.measured import MeasuredTestbeds, MeasuredTiming
from s2sim.uncertainty.machine_fit import FittedConstant
from s2sim.units import format_number_of, format_rate, format_seconds
from s2sim.validation.calibrate import CalibrationResult
from s2sim.validation.compare_log_result import LARGE_BYTES, ComparedRow, LogComparisonResult, LogTable, TermScale
from s2sim.validation.testbed import ComparedTime, PredictionComparison, median_error
from s2sim.validation.testbed_fit import SettingFit

# Number of terms with a line and a column each, and the least share of differences that they explain.
_FIRST, _LEAST = 3, 0.05
# Relative difference below which times count as equal.
_SAME = 0.05
# From this ratio on, differences are given as factors.
_TIMES = 2
_SHOWN_TRANSPORTS = 2
_three_decimals = fmt.optional_text("{:.3f}".format)


def log_comparison_screen(result: LogComparisonResult) -> Screen:
    """Return the compared runs, median errors by size, and the terms that explain them."""
    large = sum(row.size_bytes >= LARGE_BYTES for row in result.rows)
    small = len(result.rows) - large
    errors = [
        ("from 1 MiB on", *_error(result.median_abs_log_error_large, result.signed_log_error_large, large)),
        ("below", *_error(result.median_abs_log_error_small, result.signed_log_error_small, small)),
    ]
    library = "the wire alone" if result.spec.library is None else result.spec.library
    lines = [
        result.cluster,
        f"{result.kind} over {fmt.workers_text(result.workers)}, {library}, against {result.log}",
        *(f"  {_measured(table)}" for table in result.tables),
        "ln(simulated / measured):",
        *fmt.aligned(errors, indent="  "),
    ]
    grids = [log_comparison_grid(result)]
    if result.terms:
        by_group = group_by(result.terms, lambda scale: scale.told_with).values()
        groups = sorted((_TermGroup(result, scales) for scales in by_group), key=lambda each: -each.explains)
        left = median(abs(row.not_explained_s) / row.measured_s for row in result.rows)
        parts = [(each.title, each.deviation(len(result.rows))) for each in groups[:_FIRST] if each.explains >= _LEAST]
        parts.append(("not explained", f"a median of {fmt.share_text(left)} of the measured time"))
        lines += ["measured against simulated, by term:", *fmt.aligned(parts, indent="  ")]
        grids += [_difference_grid(result, groups), _scales_grid(result)]
    return Screen(lines, grids, ["", *fmt.note_lines(result.notes)] if result.notes else [], lines)


class _TermGroup:
    """Terms that the log cannot distinguish, over all rows."""

    def __init__(self, result: LogComparisonResult, scales: Sequence[TermScale]) -> None:
        self.scale = scales[0].scale
        self.explains = sum(each.explains for each in scales)
        self.names = [term_name(each) for each in sorted(scales, key=lambda each: -each.explains)]
        self._keys = {(each.kind, each.of) for each in scales}
        # Simulated seconds of these terms in each row.
        self._times_s = [
            sum(term.simulated_s for term in row.terms if (term.kind, term.of) in self._keys) for row in result.rows
        ]

    @property
    def title(self) -> str:
        more = len(self.names) - 1
        return self.names[0] + (f" and {format_number_of(more, 'term')} that cannot be told from it" if more else "")

    def difference_s(self, row: ComparedRow) -> float | None:
        """Return the part of a row's difference that these terms explain; None if it has none of them."""
        differences = [term.difference_s for term in row.terms if (term.kind, term.of) in self._keys]
        return sum(differences) if differences else None

    def deviation(self, rows: int) -> str:
        """Return how much longer or shorter than simulated they were, at how many of all sizes."""
        times_s = list(filter(None, self._times_s))
        most_s = max(self._times_s)
        where = "at all sizes" if len(times_s) == rows else f"at {len(times_s)} of {rows} sizes"
        direction = "longer" if self.scale > 1 else "shorter"
        most = format_seconds(abs(self.scale - 1) * most_s)
        if most_s <= min(times_s) * (1 + _SAME):
            return f"{most} {direction} than the {format_seconds(most_s)} simulated, {where}"
        far = f"{self.scale:.1f} times as long" if self.scale >= _TIMES else f"{abs(self.scale - 1):.0%} {direction}"
        return f"{far}, up to {most}, {where}"


def _difference_grid(result: LogComparisonResult, groups: Sequence[_TermGroup]) -> Grid:
    """Return simulated minus measured time of each row, by the terms that explain most of it."""

    def signed(seconds: float | None) -> str:
        return "" if seconds is None else f"{'-' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"

    def column(terms: _TermGroup) -> TableColumn[ComparedRow]:
        title = [*terms.names[0].split(", "), *(["and others"] if len(terms.names) > 1 else [])]
        return number_column("\n".join(title), lambda row: signed(terms.difference_s(row)))

    def rest(row: ComparedRow) -> str:
        return signed(sum(group.difference_s(row) or 0.0 for group in groups[_FIRST:]))

    return tabulate(
        "simulated - measured, term by term",
        result.rows,
        number_column("size\n(B)", lambda row: str(row.size_bytes)),
        number_column("all", lambda row: signed(row.difference_s)),
        *map(column, groups[:_FIRST]),
        number_column("other\nterms", rest) if groups[_FIRST:] else None,
        number_column("not\nexplained", lambda row: signed(row.not_explained_s)),
    )


def _scales_grid(result: LogComparisonResult) -> Grid:
    """Return the scale of each term, and the terms that it cannot be distinguished from."""
    ordered = sorted(result.terms, key=lambda scale: -scale.explains)

    def together(scale: TermScale) -> str:
        group = [other for other in ordered if other.told_with == scale.told_with]
        if len(group) == 1:
            return "alone"
        others = format_number_of(len(group) - 1, "other")
        return f"with {others if scale is group[0] else term_name(group[0])}"

    return tabulate("terms over all sizes", ordered, *columns_of("scales of terms", term=term_name, together=together))


def log_comparison_grid(result: LogComparisonResult) -> Grid:
    """Return a line per row of the log, in its order."""

    def measured_by(row: ComparedRow) -> str:
        return fmt.UNDEFINED if row.measured_algorithm is None else f"{row.measured_algorithm} {row.measured_protocol}"

    known = {"measured\nby": any(row.measured_algorithm for row in result.rows)}
    columns = columns_of("collective log", where=known, measured_by=measured_by)
    return tabulate("simulated beside measured", result.rows, *columns)


def _measured(table: LogTable) -> str:
    counts = [(table.ranks, "rank"), (table.hosts or None, "host")]
    facts = [f"line {table.line}", *(format_number_of(count, what) for count, what in counts if count is not None)]
    facts += [*table.gpus, *([] if table.library is None else [table.library])]
    facts += [] if table.channels is None else [format_number_of(table.channels, "channel")]
    facts += [format_number_of(count, what) for count, what in ((table.rings, "ring"), (table.trees, "tree")) if count]
    return ", ".join([*facts, *table.transports[:_SHOWN_TRANSPORTS]])


def _error(median: float | None, signed: float | None, rows: int) -> tuple[str, str]:
    if median is None or signed is None:
        return ("no row", "")
    direction = f", simulated too {'slow' if signed > 0 else 'fast'}" if signed else ""
    return (f"median |ln| {median:.2f} over {format_number_of(rows, 'row')}", f"median {signed:+.2f}{direction}")


def calibrate_screen(result: CalibrationResult) -> Screen:
    """Return fitted constants, median errors before and after, predictions with them, and what to measure next."""
    after = fmt.note_lines(result.notes)
    if (next_one := result.suggestion) is not None:
        band = f"the band of 90 % narrows from {next_one.band_now:.1%} to {next_one.band_after:.1%}"
        after = [f"Measure next ({band}): {next_one.command}", *after]
    if not result.points:
        return Screen([result.cluster], [], after, [result.cluster, *after])
    runs = dict.fromkeys(f"{point.collective} over {point.workers} workers" for point in result.points)
    large = sum(point.size_bytes >= LARGE_BYTES for point in result.points)
    constants = format_number_of(len(result.constants), "constant")
    counts = f"{large} from 1 MiB on, {len(result.points) - large} below"
    by = f", {', '.join(result.versions)}" if result.versions else ""
    errors = {"shipped constants": result.before, "fitted constants": result.after}
    errors["each point left out"] = result.held_out
    medians = [(what, _three_decimals(error.large), _three_decimals(error.small)) for what, error in errors.items()]
    before = [
        result.cluster,
        f"{constants} fitted to {format_number_of(len(result.points), 'point')} ({counts})",
        f"  {'; '.join(runs)}{by}",
        "median |ln(predicted / measured)|, from 1 MiB on and below:",
        *fmt.aligned(medians, indent="  "),
    ]
    predicted = tabulate("predicted beside measured", result.points, *columns_of("calibrated points"))
    after = ["", *after] if after else []
    return Screen(before, [constants_grid(result.constants), predicted], after, [*before, *after])


def constants_grid(constants: Sequence[FittedConstant]) -> Grid:
    """Return a line per constant."""

    def within(item: FittedConstant) -> str:
        return " to ".join(f"{value:.3g} {item.unit}".rstrip() for value in (item.low, item.high))

    return tabulate("constants", constants, *columns_of("constants of a machine", within=within))


_WORST = 8


def measured_grids(measured: MeasuredTestbeds) -> list[Grid]:
    """Return a table per kind that has rows."""
    tables = (
        ("Collectives between processes", measured.collectives),
        ("Reducers between processes", measured.reducers),
        ("Iterations: computing, then reducing", measured.iterations),
        ("Training: iterations of DistributedDataParallel, by hook", measured.training),
    )
    return [_grid(title, rows) for title, rows in tables if rows]


def measured_lines(measured: MeasuredTestbeds) -> list[str]:
    """Return notes on the tables of measured times."""
    lines = ["From the instant at which all ranks begin until the last is done; CPU: of all processes together."]
    if measured.training:
        lines.append("Training goes on from one iteration to the next, each as long as on its slowest rank.")
    asleep = ", ".join(setting.name for setting in measured.settings if setting.workers > setting.processors)
    if measured.iterations and asleep:
        lines.append(f"Workers of {asleep} slept instead of computing, because they outnumber the processors.")
    return lines


def _grid(title: str, rows: tuple[MeasuredTiming, ...]) -> Grid:
    known = {"compute": rows[0].compute_s, "codec": any(row.codec_s for row in rows)}
    return tabulate(title, rows, *columns_of("measured on testbeds", where=known))


def comparison_lines(result: PredictionComparison) -> list[str]:
    """Return the numbers of predicted times, their median errors and the share of right calls."""
    unseen, settings = result.unseen, dict.fromkeys(point.setting for point in result.unseen)
    large, small = (_median_text(unseen, large=size) for size in (True, False))
    told = f"{result.calibrated_on} alone tells" if result.constants else "recordings tell"
    lines = [
        f"{len(unseen)} times of {len(settings)} settings predicted with what {told}",
        f"median |ln(predicted / measured)|: {large} from 1 MiB on, {small} below",
    ]
    if result.calls:
        right = [call.right for call in result.calls if call.decided]
        undecided = len(result.calls) - len(right)
        others = f", {undecided} undecided" if undecided else ""
        lines.append(f"who is faster than dense: {sum(right)} of {len(right)} calls right{others}")
    return lines


def comparison_screen(result: PredictionComparison) -> Screen:
    """Return predicted times against measured ones, constants, errors, calls, break-even rates and the worst points."""
    lines, notes = comparison_lines(result), fmt.note_lines(result.notes)
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
    calibrated = " (calibrated)" if result.constants else ""

    large, small = (partial(_median_text, large=size) for size in (True, False))
    wrong = tabulate(
        "calls against dense that are wrong: dense's time over the reducer's",
        [call for call in result.calls if call.decided and not call.right],
        *columns_of("wrong calls on testbeds"),
    )
    worst = tabulate(
        "worst predictions of unseen settings",
        sorted(result.unseen, key=lambda point: -abs(point.error))[:_WORST],
        *columns_of("worst on testbeds"),
    )
    errors = tabulate(
        "median |ln(predicted / measured)| of unseen settings",
        group_by(result.unseen, lambda p: p.what if p.kind == "collectives" else f"{p.what} ({p.kind})").items(),
        *columns_of("errors on testbeds", large=large, small=small),
    )
    settings = tabulate(
        "median |ln(predicted / measured)| by setting",
        group_by(result.points, lambda point: point.setting).items(),
        *columns_of(
            "errors by testbed",
            setting=lambda name: f"{name}{calibrated if name == result.calibrated_on else ''}",
            rate=rate_text,
            large=large,
            small=small,
        ),
    )
    break_even = tabulate(
        "rate at which a reducer and dense take equally long",
        result.break_even,
        *columns_of(
            "break-even on testbeds",
            rate=rate_text,
            finite=lambda factor: fmt.UNDEFINED if isinf(factor) else f"{factor:.2f}",
        ),
    )
    return filled(constants_grid(result.constants), errors, settings, wrong, break_even, worst)


def rate_text(rate_Bps: float) -> str:
    """Return a rate in bits per second, as networks are sold.

    >>> rate_text(125e6), rate_text(float("inf"))
    ('1 Gbps', 'not shaped')
    """
    return "not shaped" if isinf(rate_Bps) else format_rate(rate_Bps)


def _median_text(points: Iterable[ComparedTime], *, large: bool) -> str:
    return _three_decimals(median_error(point for point in points if point.large == large))
