"""Which terms of simulated times explain how far these are from measured ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from s2sim.report.format import UNDEFINED, aligned, factor_text, share_text, workers_text
from s2sim.report.grid import Column, Grid, number_column, tabulate, text_column
from s2sim.report.traffic_tables import term_name
from s2sim.units import format_number_of, format_seconds
from s2sim.validation.compare_log_result import LARGE_BYTES, ComparedRow, LogComparisonResult, LogTable, TermScale

# Terms that are named first and have columns of their own, and what they explain at least.
_FIRST, _LEAST = 3, 0.05
# Times that are this near each other count as one.
_SAME = 0.05
# From here on a factor reads better than per cent more.
_TIMES = 2


class _TermGroup:
    """Terms that are told together, over all rows."""

    def __init__(self, result: LogComparisonResult, scales: Sequence[TermScale]) -> None:
        self.scale = scales[0].scale
        self.explains = sum(each.explains for each in scales)
        self.names = [term_name(each) for each in sorted(scales, key=lambda each: -each.explains)]
        self._keys = {(each.kind, each.of) for each in scales}
        times_s = [self.simulated_s(row) for row in result.rows]
        self.rows = [row for row, time_s in zip(result.rows, times_s, strict=True) if time_s]
        self.least_s, self.most_s = min(filter(None, times_s)), max(times_s)

    def simulated_s(self, row: ComparedRow) -> float:
        """Return what these terms of a row take in simulation."""
        return sum(term.simulated_s for term in row.terms if (term.kind, term.of) in self._keys)

    def difference_s(self, row: ComparedRow) -> float | None:
        """Return what of a row's difference these terms stand for; None where it has none of them."""
        found = [term.difference_s for term in row.terms if (term.kind, term.of) in self._keys]
        return sum(found) if found else None


def attribution_lines(result: LogComparisonResult) -> list[str]:
    """Return what explains most of the difference, in a line each; nothing where no terms are known."""
    if not result.terms:
        return []
    found = [each for each in _sort_by_share(result)[:_FIRST] if each.explains >= _LEAST]
    left = median(abs(row.not_explained_s) / row.measured_s for row in result.rows)
    lines = [(_term_group_title(each), _deviation_text(each, len(result.rows))) for each in found]
    lines.append(("not explained", f"a median of {share_text(left)} of the measured time"))
    return ["measured against simulated, by term:", *aligned(lines, indent="  ")]


def difference_grid(result: LogComparisonResult) -> Grid:
    """Return simulated minus measured of each row, by those terms that stand for most of it."""
    known = _sort_by_share(result)
    first, others = known[:_FIRST], known[_FIRST:]

    def rest(row: ComparedRow) -> str:
        return _signed(sum(each.difference_s(row) or 0.0 for each in others))

    return tabulate(
        "simulated - measured, term by term",
        result.rows,
        number_column("size\n(B)", lambda row: str(row.size_bytes)),
        number_column("all", lambda row: _signed(row.difference_s)),
        *(_column(each) for each in first),
        *([number_column("other\nterms", rest)] if others else []),
        number_column("not\nexplained", lambda row: _signed(row.not_explained_s)),
    )


def scales_grid(result: LogComparisonResult) -> Grid:
    """Return how long each term takes as measured, and with which others it is told."""
    ordered = sorted(result.terms, key=lambda scale: -scale.explains)

    def together(scale: TermScale) -> str:
        group = [other for other in ordered if other.told_with == scale.told_with]
        if len(group) == 1:
            return "alone"
        return (
            f"with {format_number_of(len(group) - 1, 'other')}" if scale is group[0] else f"with {term_name(group[0])}"
        )

    return tabulate(
        "terms over all sizes",
        ordered,
        text_column("of", term_name),
        number_column("measured /\nsimulated", lambda scale: f"{scale.scale:.2f}"),
        number_column("of all\ndifferences", lambda scale: share_text(scale.explains)),
        text_column("told", together),
    )


def _sort_by_share(result: LogComparisonResult) -> list[_TermGroup]:
    groups: dict[int, list[TermScale]] = {}
    for scale in result.terms:
        groups.setdefault(scale.told_with, []).append(scale)
    return sorted((_TermGroup(result, scales) for scales in groups.values()), key=lambda each: -each.explains)


def _term_group_title(terms: _TermGroup) -> str:
    more = len(terms.names) - 1
    return terms.names[0] + (f" and {format_number_of(more, 'term')} that cannot be told from it" if more else "")


def _deviation_text(terms: _TermGroup, rows: int) -> str:
    """Return how far terms are from what was measured."""
    where = "at all sizes" if len(terms.rows) == rows else f"at {len(terms.rows)} of {rows} sizes"
    way = "longer" if terms.scale > 1 else "shorter"
    most = format_seconds(abs(terms.scale - 1) * terms.most_s)
    if terms.most_s <= terms.least_s * (1 + _SAME):
        return f"{most} {way} than the {format_seconds(terms.most_s)} simulated, {where}"
    far = f"{terms.scale:.1f} times as long" if terms.scale >= _TIMES else f"{abs(terms.scale - 1):.0%} {way}"
    return f"{far}, up to {most}, {where}"


def _column(terms: _TermGroup) -> tuple[Column, Callable[[ComparedRow], str]]:
    return number_column(
        "\n".join([*terms.names[0].split(", "), *(["and others"] if len(terms.names) > 1 else [])]),
        lambda row: _signed(terms.difference_s(row)),
    )


def _signed(seconds: float | None) -> str:
    """Return a difference with its sign; nothing where there is none."""
    if seconds is None:
        return ""
    return f"{'-' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"


_SHOWN_TRANSPORTS = 2


def log_comparison_lines(result: LogComparisonResult) -> list[str]:
    """Return what stands beside what, and how far apart they are."""
    large = sum(row.size_bytes >= LARGE_BYTES for row in result.rows)
    small = len(result.rows) - large
    errors = [
        ("from 1 MiB on", *_error(result.median_abs_log_error_large, result.signed_log_error_large, large)),
        ("below", *_error(result.median_abs_log_error_small, result.signed_log_error_small, small)),
    ]
    library = "the wire alone" if result.spec.library is None else result.spec.library
    return [
        f"{result.kind} over {workers_text(result.workers)}, {library}, against {result.log}",
        *(f"  {_measured(table)}" for table in result.tables),
        "ln(simulated / measured):",
        *aligned(errors, indent="  "),
        *attribution_lines(result),
    ]


def log_comparison_grid(result: LogComparisonResult) -> Grid:
    """Return a line a row of the log, in its order."""
    known = any(row.measured_algorithm for row in result.rows)
    ran = [text_column("measured\nby", _algorithm_text)] if known else []
    return tabulate(
        "simulated beside measured",
        result.rows,
        number_column("size\n(B)", lambda row: str(row.size_bytes)),
        number_column("measured", lambda row: format_seconds(row.measured_s)),
        number_column("simulated", lambda row: format_seconds(row.simulated_s)),
        number_column("ratio", lambda row: factor_text(row.ratio)),
        number_column("ln", lambda row: f"{row.log_error:+.2f}"),
        number_column("busbw\nmeasured\n(GB/s)", lambda row: f"{row.measured_busbw_Bps / 1e9:.2f}"),
        number_column("busbw\nsimulated\n(GB/s)", lambda row: f"{row.simulated_busbw_Bps / 1e9:.2f}"),
        *ran,
        text_column("simulated\nby", lambda row: f"{row.algorithm} {row.protocol}".rstrip()),
    )


def _measured(table: LogTable) -> str:
    """Return what the log says of a table, in one line."""
    said = [f"line {table.line}"]
    if table.ranks is not None:
        said.append(format_number_of(table.ranks, "rank"))
    if table.hosts:
        said.append(format_number_of(table.hosts, "host"))
    said += [*table.gpus, *([] if table.library is None else [table.library])]
    said += [] if table.channels is None else [format_number_of(table.channels, "channel")]
    said += [format_number_of(count, what) for count, what in ((table.rings, "ring"), (table.trees, "tree")) if count]
    return ", ".join([*said, *table.transports[:_SHOWN_TRANSPORTS]])


def _algorithm_text(row: ComparedRow) -> str:
    """Return by which algorithm and protocol a row of the log ran."""
    return UNDEFINED if row.measured_algorithm is None else f"{row.measured_algorithm} {row.measured_protocol}"


def _error(median: float | None, signed: float | None, rows: int) -> tuple[str, str]:
    if median is None or signed is None:
        return ("no row", "")
    way = f", simulated too {'slow' if signed > 0 else 'fast'}" if signed else ""
    return (f"median |ln| {median:.2f} over {format_number_of(rows, 'row')}", f"median {signed:+.2f}{way}")
