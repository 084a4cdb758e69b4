"""Tables of predictions compared with measurements: curves, iterations, and reducers between processes."""

from collections.abc import Sequence
from dataclasses import replace

from s2sim.files import own_tables
from s2sim.report.format import UNDEFINED, log_error_text, note_lines, signed_text
from s2sim.report.grid import Grid, Screen, columns_of, filled, tabulate
from s2sim.validation.bridge_check import BridgeCheckResult, CheckRow
from s2sim.validation.curve_result import CurveErrors, Group, Parameter, ValidationResult
from s2sim.validation.iteration_result import IterationError, IterationsResult

_LEGENDS: dict[str, str] = own_tables(__file__, "texts.toml")["legends"]
LEGEND, ITERATIONS_LEGEND = _LEGENDS["validate"], _LEGENDS["iterations"]


def check_grid(checked: BridgeCheckResult) -> Grid:
    """Return a row per reducer; those that disagree stand out."""

    def values(row: CheckRow) -> str:
        if row.refused:
            return "not run"
        return "equal" if row.equal else "undefined" if row.difference is None else f"off by {row.difference:.1e}"

    return tabulate(
        f"{checked.trace} between {checked.workers} processes of {checked.library}",
        [(row, None if row.refused else row) for row in checked.rows],
        *columns_of("bridge", values=values, grouped=_grouped, agree=lambda equal: "equal" if equal else "UNEQUAL"),
        strong=lambda row: not row[0].ok,
    )


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def check_lines(checked: BridgeCheckResult) -> list[str]:
    """Return the description of the columns, disagreements with their reasons, and totals."""
    rows = checked.rows
    agree, equal, values_agree = (sum(getattr(row, field) for row in rows) for field in ("ok", "equal", "values_agree"))
    lines = [_LEGENDS["bridge"]]
    lines += [f"{row.reducer}: not run: {row.refused}" for row in rows if row.refused]
    lines += [f"{row.reducer}: {row.rounded}" for row in rows if row.rounded]
    for row in rows:
        wrong = [what for what, agrees in (("values", row.values_agree), ("bytes", row.bytes_equal)) if not agrees]
        if not row.ok and not row.refused:
            lines.append(f"{row.reducer}: {' and '.join(wrong)} disagree")
    lines.append(_interface_line(checked))
    lines.append(
        f"{agree} of {len(rows)} reducers agree: {equal} with the same bits, {values_agree - equal} as far as the "
        f"order and the rounding of sums let them; {sum(row.bytes_equal for row in rows)} with equal bytes."
        + ("" if checked.complete else " Interrupted: what was not finished is missing.")
    )
    return lines


def _interface_line(checked: BridgeCheckResult) -> str:
    counted = checked.interface
    if counted is None:
        return (
            "The loopback interface is shared with whatever else runs on this machine, so that its own counter tells "
            "nothing: a network namespace of its own needs root."
        )
    text = (
        f"The interface, which nothing else uses: {_grouped(counted.bytes)} bytes in {_grouped(counted.packets)} "
        f"packets; connections sent {_grouped(counted.connections_bytes)}, headers of IP and TCP (52 bytes a packet, 8 "
        "more of the first two of each connection, 12 more of what tells that something came twice) are "
        f"{_grouped(counted.header_bytes)}"
    )
    if counted.equal:
        return f"{text}: equal."
    apart = _grouped(abs(counted.bytes - counted.connections_bytes - counted.header_bytes))
    why = ": acknowledgements of what was lost name more of what has come" if counted.again_bytes else ""
    return f"{text}: {apart} apart{why}."


_WORST = 10


def answer_lines(result: ValidationResult) -> list[str]:
    """Return median errors of good curves without a doubt, first of sources left out, a line per range of sizes."""
    overall = result.overall
    lines = [f"{overall.predicted} of {overall.curves} good curves without a doubt are predicted"]
    if result.leave_one_source_out is not None:
        lines += _error_range_lines("source left out of the fit, ", result.leave_one_source_out.overall)
    return lines + _error_range_lines("in the fit, " if result.leave_one_source_out else "", overall)


def _error_range_lines(what: str, group: Group) -> list[str]:
    lines = []
    for name, errors in (("1 MiB and larger", group.large), ("below 1 MiB", group.small)):
        if errors is not None:
            voice = errors.one_voice
            interval = "" if voice.low is None else f" ({log_error_text(voice.low)} to {log_error_text(voice.high)})"
            lines.append(
                f"{what}{name}: off by {log_error_text(errors.median)} (median), bias {signed_text(errors.bias)}; "
                f"one voice a source: {log_error_text(voice.median)}{interval}"
            )
    return lines


def validate_grids(result: ValidationResult) -> list[Grid]:
    """Return the tables over all curves, by class, by source, and of single curves."""
    grids = []
    if (left_out := result.leave_one_source_out) is not None:
        found = [replace(item.group, name=f"{item.kind} {item.group.name}") for item in left_out.by_class]
        groups = [replace(left_out.overall, name="all good curves"), *found]
        by_size = columns_of("errors by size", binary=_binary_text)
        of_sizes = tabulate("sources left out of the fit, by size", left_out.by_size, *by_size)
        grids = [of_sizes, groups_grid("sources left out of the fit, classes of three or more", "class", groups)]
    unreadable = [result.apart.unreadable] if result.apart.unreadable.curves else []
    groups = [result.overall, result.apart.doubtful, result.apart.suspect, *unreadable]
    grids.append(groups_grid("over curves", "", groups))
    for kind in dict.fromkeys(item.kind for item in result.by_class):
        found = [item.group for item in result.by_class if item.kind == kind]
        grids.append(groups_grid(f"good curves by {kind}", kind, found))
    grids.append(groups_grid("good curves by source", "source", result.by_source))

    def drift(parameter: Parameter) -> str:
        if (drift := parameter.drift) is None:
            return UNDEFINED
        return f"{constant_text(drift.low, parameter.unit)} to {constant_text(drift.high, parameter.unit)}"

    constants = tabulate(
        "fitted constants",
        result.parameters,
        *columns_of(
            "fitted constants",
            shipped=lambda parameter: constant_text(parameter.value, parameter.unit),
            refitted=lambda parameter: constant_text(parameter.refitted, parameter.unit),
            drift=drift,
        ),
    )
    good = [curve for curve in result.curves if curve.counts]
    apart = [curve for curve in result.curves if curve.quality and not curve.counts]
    of_curves = {"good curves": good, "apart: doubtful or suspect": apart}
    return grids + filled(
        constants, *(tabulate(title, curves, *columns_of("curves")) for title, curves in of_curves.items())
    )


def _binary_text(size_bytes: int) -> str:
    """Return a power of two in bytes.

    >>> _binary_text(16), _binary_text(4 * 2**20)
    ('16 B', '4 MiB')
    """
    thousands = (size_bytes.bit_length() - 1) // 10
    return f"{size_bytes >> 10 * thousands} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[thousands]}"


def groups_grid(title: str, what: str, groups: Sequence[Group]) -> Grid:
    """Return a line per group of curves."""
    return tabulate(title, groups, *columns_of("groups of curves", {"what": what}))


def constant_text(value: float, unit: str) -> str:
    """Return a constant with its unit.

    >>> constant_text(8.4e-6, "s"), constant_text(0.915, "share")
    ('8.4 us', '0.915')
    """
    return f"{value * 1e6:.3g} us" if unit == "s" else f"{value / 1e9:.3g} GB/s" if unit == "B/s" else f"{value:.3f}"


def worst_lines(result: ValidationResult) -> list[str]:
    """Return a line on each of the ten good curves with the largest errors at large sizes, else at small ones."""

    def error(curve: CurveErrors) -> tuple[float, float]:
        return curve.median_abs_log_error_large or 0.0, curve.median_abs_log_error_small or 0.0

    curves = sorted((curve for curve in result.curves if curve.counts and curve.predicted), key=error, reverse=True)
    return _with_reasons(
        "Worst of the good curves at large sizes (bias large / small), and what the model lacks there:",
        [
            (curve.id, curve.signed_log_error_large, curve.signed_log_error_small, "; ".join(curve.likely_why))
            for curve in curves[:_WORST]
        ],
    )


def _with_reasons(head: str, found: Sequence[tuple[str, float | None, float | None, str | None]]) -> list[str]:
    """Return lines below a head: name, two signed errors and their likely reason."""
    lines = [
        f"- {name}: {signed_text(one)} / {signed_text(other)}; {why or 'its row does not tell why'}"
        for name, one, other, why in found
    ]
    return [head, *lines] if lines else []


def not_predicted_lines(rows: Sequence[CurveErrors | IterationError]) -> list[str]:
    """Return the reasons for which curves or iterations are not predicted."""
    return [f"Not predicted: {row.id}: {row.reason}" for row in rows if not row.predicted]


def iterations_lines(result: IterationsResult) -> list[str]:
    """Return the answer, with each source weighted equally."""
    overall = result.overall
    lines = [f"{overall.predicted} of {overall.rows} are predicted, {overall.scored} scored"]
    for name, errors in (("iteration", overall.iteration), ("communication", overall.communication)):
        if errors is not None:
            lines.append(
                f"{name}: off by {log_error_text(errors.median)} (median of sources), "
                f"P90 {log_error_text(errors.p90)}, bias {signed_text(errors.bias)}"
            )
    if (share := overall.calls_right_share) is not None:
        lines.append(f"faster or slower than dense: {share:.0%} of calls are right (mean of sources)")
    if (calls := overall.calls) is not None and calls.decided_right_share is not None:
        wins, losses = calls.wins_as_predicted + calls.missed_wins, calls.losses_as_predicted + calls.false_wins
        lines[-1] += f"; a coin is right in 50%, always saying faster in {wins / (wins + losses):.0%}"
        lines.append(
            f"calls with a probability of 80% or more: {calls.decided_right_share:.0%} are right, {calls.undecided} "
            f"others are undecided; Brier score {calls.brier:.2f}, always saying the share of wins "
            f"{calls.brier_of_base_rate:.2f}"
        )
    return lines


def iterations_grids(result: IterationsResult) -> list[Grid]:
    """Return the tables by source, of calls, of all rows, and of rows with contradictory parts."""
    apart = [row for row in result.iterations if row.predicted and not row.scored]
    sources = tabulate("by source", result.by_source, *columns_of("sources of iterations"))
    rows = []
    if (calls := result.overall.calls) is not None:
        rows = [
            ("faster than dense", calls.wins_as_predicted, calls.missed_wins),
            ("slower than dense", calls.false_wins, calls.losses_as_predicted),
        ]
    called = tabulate("calls", rows, *columns_of("calls of iterations"))
    scored = _rows_grid("iterations", [row for row in result.iterations if row.scored])
    return filled(sources, called, scored, _rows_grid("apart: parts do not sum to the whole", apart))


def worst_iteration_lines(result: IterationsResult) -> list[str]:
    """Return a line on each of the ten with the largest errors."""
    scored = [row for row in result.iterations if row.scored and row.log_error is not None]
    worst = sorted(scored, key=lambda row: abs(row.log_error or 0.0), reverse=True)[:_WORST]
    return _with_reasons(
        "Worst of the iterations (bias of iteration / communication), and what the model lacks there:",
        [(row.id, row.log_error, row.communication_log_error, row.likely_why) for row in worst],
    )


def _rows_grid(title: str, rows: list[IterationError]) -> Grid:
    columns = columns_of(
        "measured iterations",
        first=lambda reducer: reducer.partition(" ")[0],
        call=lambda right: "right" if right else "wrong",
    )
    return tabulate(title, rows, *columns)


def validate_screen(result: ValidationResult) -> Screen:
    """Return the errors of predicted curves: over all, by class and source, of single curves, and the worst."""
    after = ["", LEGEND, "", *worst_lines(result), *not_predicted_lines(result.curves), "", *note_lines(result.notes)]
    brief = answer_lines(result)
    return Screen([result.what, *brief], validate_grids(result), after, brief)


def iterations_screen(result: IterationsResult) -> Screen:
    """Return the errors of predicted iterations: by source, right calls, of single rows, and the worst."""
    details = [*worst_iteration_lines(result), *not_predicted_lines(result.iterations)]
    after = ["", ITERATIONS_LEGEND, "", *details, "", *note_lines(result.notes)]
    brief = iterations_lines(result)
    return Screen([result.what, *brief], iterations_grids(result), after, brief)
