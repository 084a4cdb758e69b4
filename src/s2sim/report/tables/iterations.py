"""How far predictions are from measured iterations, as tables and lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.texts import UNDEFINED
from s2sim.report.tables.validate import error_text, signed_text
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from s2sim.study.validate.iterations.result import (
        Calls,
        IterationError,
        IterationsResult,
        SourceErrors,
        TimeErrors,
    )

_WORST = 10
_LONGEST_NAME = 38
ITERATIONS_LEGEND = (
    "Errors are |ln(predicted/measured)|, 0.1 is about 10 %. bias: ln(predicted/measured), below 0 predicted too fast. "
    "P90: nine of ten rows are below. right calls: faster or slower than dense of the same source and set-up."
)


def iterations_lines(result: IterationsResult) -> list[str]:
    """Return the answer: one voice a source."""
    overall = result.overall
    lines = [f"{overall.predicted} of {overall.rows} are predicted, {overall.scored} scored"]
    for name, errors in (("iteration", overall.iteration), ("communication", overall.communication)):
        if errors is not None:
            lines.append(
                f"{name}: off by {error_text(errors.median)} (median of sources), P90 {error_text(errors.p90)}, bias "
                f"{signed_text(errors.bias)}"
            )
    if overall.calls_right_share is not None:
        lines.append(
            f"faster or slower than dense: {overall.calls_right_share:.0%} of calls are right (mean of sources)"
        )
    return lines


def iterations_grids(result: IterationsResult) -> list[Grid]:
    """Return the tables: by source, right and wrong calls, a line a row, and apart those that contradict themselves."""
    scored = [row for row in result.iterations if row.scored]
    apart = [row for row in result.iterations if row.predicted and not row.scored]
    grids = [_sources_grid(result.by_source)] if result.by_source else []
    grids += [_calls_grid(result.overall.calls)] if result.overall.calls is not None else []
    grids += [_rows_grid("iterations", scored)] if scored else []
    grids += [_rows_grid("apart: parts do not sum to the whole", apart)] if apart else []
    return grids


def worst_iteration_lines(result: IterationsResult) -> list[str]:
    """Return a line on each of the ten that are predicted worst."""
    scored = [row for row in result.iterations if row.scored and row.log_error is not None]
    found = sorted(scored, key=lambda row: abs(row.log_error or 0.0), reverse=True)[:_WORST]
    head = "Worst of the iterations (bias of iteration / communication), and what the model lacks there:"
    lines = [
        f"- {row.id}: {signed_text(row.log_error)} / {signed_text(row.communication_log_error)}; "
        f"{row.likely_why or 'its row does not tell why'}"
        for row in found
    ]
    return [head, *lines] if lines else []


def unpredicted_iteration_lines(result: IterationsResult) -> list[str]:
    """Return why some iterations are not predicted."""
    return [f"Not predicted: {row.id}: {row.reason}" for row in result.iterations if not row.predicted]


def _sources_grid(sources: tuple[SourceErrors, ...]) -> Grid:
    def median(errors: TimeErrors | None) -> str:
        return error_text(None if errors is None else errors.median)

    def p90(errors: TimeErrors | None) -> str:
        return error_text(None if errors is None else errors.p90)

    def bias(errors: TimeErrors | None) -> str:
        return signed_text(None if errors is None else errors.bias)

    return tabulate(
        "by source",
        sources,
        words("source", lambda source: source.name[:_LONGEST_NAME]),
        figures("scored", lambda source: f"{source.scored}/{source.rows}"),
        figures("iteration:\nmedian", lambda source: median(source.iteration)),
        figures("P90", lambda source: p90(source.iteration)),
        figures("bias", lambda source: bias(source.iteration)),
        figures("communication:\nmedian", lambda source: median(source.communication)),
        figures("P90", lambda source: p90(source.communication)),
        figures("bias", lambda source: bias(source.communication)),
        figures(
            "right\ncalls", lambda source: UNDEFINED if source.calls is None else f"{source.calls.right_share:.0%}"
        ),
    )


def _calls_grid(calls: Calls) -> Grid:
    rows = [
        ("faster than dense", calls.wins_as_predicted, calls.missed_wins),
        ("slower than dense", calls.false_wins, calls.losses_as_predicted),
    ]
    return tabulate(
        "calls",
        rows,
        words("measured", lambda row: row[0]),
        figures("called\nfaster", lambda row: str(row[1])),
        figures("called\nslower", lambda row: str(row[2])),
    )


def _rows_grid(title: str, rows: list[IterationError]) -> Grid:
    def seconds(value_s: float | None) -> str:
        return UNDEFINED if value_s is None else format_seconds(value_s)

    return tabulate(
        title,
        rows,
        words("iteration", lambda row: row.id[:_LONGEST_NAME]),
        words("reducer", lambda row: row.reducer.partition(" ")[0]),
        figures("workers", lambda row: str(row.workers)),
        figures("predicted", lambda row: seconds(row.iteration_s)),
        figures("measured", lambda row: seconds(row.measured_iteration_s)),
        figures("bias", lambda row: signed_text(row.log_error)),
        figures("communication:\nbias", lambda row: signed_text(row.communication_log_error)),
        words("call", _call_text),
    )


def _call_text(row: IterationError) -> str:
    if row.right_call is None:
        return ""
    return "right" if row.right_call else "wrong"
