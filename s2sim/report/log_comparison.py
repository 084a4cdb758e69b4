"""Screens of simulated times compared with a log, term by term, and of constants that are fitted to logs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from s2sim.report import format as fmt
from s2sim.report.grid import Grid, Screen, TableColumn, number_column, tabulate, text_column
from s2sim.report.traffic_tables import term_name
from s2sim.units import format_number_of, format_seconds
from s2sim.validation.calibrate_result import CalibrationResult, FittedConstant, MedianError
from s2sim.validation.compare_log_result import LARGE_BYTES, ComparedRow, LogComparisonResult, LogTable, TermScale

# Number of terms with a line and a column each, and the least share of differences that they explain.
_FIRST, _LEAST = 3, 0.05
# Relative difference below which times count as equal.
_SAME = 0.05
# From this ratio on, differences are given as factors.
_TIMES = 2
_SHOWN_TRANSPORTS = 2


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
        by_group = fmt.group_by(result.terms, lambda scale: scale.told_with).values()
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

    return tabulate(
        "terms over all sizes",
        ordered,
        text_column("of", term_name),
        number_column("measured /\nsimulated", lambda scale: f"{scale.scale:.2f}"),
        number_column("of all\ndifferences", lambda scale: fmt.share_text(scale.explains)),
        text_column("told", together),
    )


def log_comparison_grid(result: LogComparisonResult) -> Grid:
    """Return a line per row of the log, in its order."""

    def measured_by(row: ComparedRow) -> str:
        return fmt.UNDEFINED if row.measured_algorithm is None else f"{row.measured_algorithm} {row.measured_protocol}"

    known = any(row.measured_algorithm for row in result.rows)
    return tabulate(
        "simulated beside measured",
        result.rows,
        number_column("size\n(B)", lambda row: str(row.size_bytes)),
        number_column("measured", lambda row: format_seconds(row.measured_s)),
        number_column("simulated", lambda row: format_seconds(row.simulated_s)),
        number_column("ratio", lambda row: fmt.factor_text(row.ratio)),
        number_column("ln", lambda row: f"{row.log_error:+.2f}"),
        number_column("busbw\nmeasured\n(GB/s)", lambda row: f"{row.measured_busbw_Bps / 1e9:.2f}"),
        number_column("busbw\nsimulated\n(GB/s)", lambda row: f"{row.simulated_busbw_Bps / 1e9:.2f}"),
        text_column("measured\nby", measured_by) if known else None,
        text_column("simulated\nby", lambda row: f"{row.algorithm} {row.protocol}".rstrip()),
    )


def _measured(table: LogTable) -> str:
    """Return the facts that a log states of a table."""
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

    def errors(what: str, error: MedianError) -> tuple[str, ...]:
        return what, *(fmt.UNDEFINED if value is None else f"{value:.3f}" for value in (error.large, error.small))

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
    medians = [
        errors("shipped constants", result.before),
        errors("fitted constants", result.after),
        errors("each point left out", result.held_out),
    ]
    before = [
        result.cluster,
        f"{constants} fitted to {format_number_of(len(result.points), 'point')} ({counts})",
        f"  {'; '.join(runs)}{by}",
        "median |ln(predicted / measured)|, from 1 MiB on and below:",
        *fmt.aligned(medians, indent="  "),
    ]
    predicted = tabulate(
        "predicted beside measured",
        result.points,
        text_column("collective", lambda point: point.collective),
        number_column("workers", lambda point: str(point.workers)),
        number_column("size (B)", lambda point: str(point.size_bytes)),
        number_column("measured", lambda point: format_seconds(point.measured_s)),
        number_column("shipped", lambda point: format_seconds(point.before_s)),
        number_column("fitted", lambda point: format_seconds(point.after_s)),
        number_column("left out", lambda point: fmt.seconds_text(point.held_out_s)),
    )
    after = ["", *after] if after else []
    return Screen(before, [constants_grid(result.constants), predicted], after, [*before, *after])


def constants_grid(constants: Sequence[FittedConstant]) -> Grid:
    """Return a line per constant."""

    def value(value: float, constant: FittedConstant) -> str:
        return f"{value:.3g} {constant.unit}".rstrip()

    return tabulate(
        "constants",
        constants,
        text_column("constant", lambda item: item.name),
        number_column("shipped", lambda item: value(item.shipped, item)),
        number_column("fitted", lambda item: value(item.fitted, item)),
        text_column("90 % within", lambda item: f"{value(item.low, item)} to {value(item.high, item)}"),
    )
