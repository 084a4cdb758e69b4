"""How far predictions are from measured iterations, as tables and lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from s2sim.experiment.row_parts import IterationRow
from s2sim.experiment.rows import Result, Row
from s2sim.report.format import UNDEFINED, brief_seconds, percent_text, throughput_text, workers_with_mark
from s2sim.report.grid import Column, Grid, number_column, tabulate, text_column
from s2sim.report.validation_tables import error_text, signed_text
from s2sim.training.curve import Interval
from s2sim.training.result import TrainResult, TrainRow, interval_text, target_text
from s2sim.units import format_bytes, format_number_of, format_seconds
from s2sim.validation.iteration_result import Calls, IterationError, IterationsResult, SourceErrors, TimeErrors


def iteration_of(row: Row) -> IterationRow:
    """Return where the time of a row's iteration went; its run simulated one."""
    assert row.iteration is not None
    return row.iteration


def exchange_text(rows: Sequence[Row]) -> str:
    """Return how gradients were exchanged in iterations, for a title; those of dense, the most that there are."""
    dense = iteration_of(next((row for row in rows if row.baseline), rows[0]))
    together = ", codec beside compute" if dense.streams > 1 else ""
    return f"{dense.discipline}, {format_number_of(dense.buckets, 'bucket')}{together}"


def iteration_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, where the time of an iteration of each reducer went."""
    by_workers: dict[int, list[Row]] = {}
    for row in result.results:
        if row.iteration is not None:
            by_workers.setdefault(row.workers, []).append(row)
    return [_parts_grid(rows) for rows in by_workers.values()]


def _parts_grid(rows: Sequence[Row]) -> Grid:
    ran = iteration_of(rows[0]).iterations
    of = f"median of {ran} iterations" if ran > 1 else "an iteration"
    return tabulate(
        f"{workers_with_mark(rows[0])}: where {of} goes on the slowest rank, {exchange_text(rows)}",
        rows,
        text_column("reducer", lambda row: row.reducer),
        number_column("iteration", lambda row: format_seconds(iteration_of(row).total_s)),
        number_column("forward", lambda row: brief_seconds(iteration_of(row).forward)),
        number_column("backward", lambda row: brief_seconds(iteration_of(row).backward)),
        number_column("codec", lambda row: brief_seconds(iteration_of(row).codec)),
        number_column("communi-\ncation,\nexposed", lambda row: brief_seconds(iteration_of(row).exposed_communication)),
        number_column("waiting", lambda row: brief_seconds(iteration_of(row).waiting)),
        number_column("opti-\nmizer", lambda row: brief_seconds(iteration_of(row).optimizer)),
        number_column("5% to\n95%", lambda row: brief_seconds(iteration_of(row).spread_s)),
        number_column("communi-\ncation,\nhidden", lambda row: brief_seconds(iteration_of(row).hidden_communication)),
        number_column("samples\n/s", lambda row: throughput_text(iteration_of(row).samples_per_s)),
    )


def scaling_efficiencies(rows: Iterable[Row]) -> dict[int, float]:
    """Return the throughput of a worker over that with the fewest workers, by number of workers, of one reducer's rows.

    Where the batch is not known, that is the inverse ratio of iterations: each worker has its own batch.
    """
    a_worker = {}
    for row in sorted(rows, key=lambda row: row.workers):
        iteration = iteration_of(row)
        known = iteration.samples_per_s
        a_worker[row.workers] = 1 / iteration.total_s if known is None else known / row.workers
    fewest = next(iter(a_worker.values()), 1.0)
    return {workers: value / fewest for workers, value in a_worker.items()}


def hidden_text(row: Row) -> str:
    """Return which share of a row's communication runs beside compute or codec."""
    return percent_text(iteration_of(row).hidden_share)


_WORST = 10
_MAX_NAME = 38
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
        text_column("source", lambda source: source.name[:_MAX_NAME]),
        number_column("scored", lambda source: f"{source.scored}/{source.rows}"),
        number_column("iteration:\nmedian", lambda source: median(source.iteration)),
        number_column("P90", lambda source: p90(source.iteration)),
        number_column("bias", lambda source: bias(source.iteration)),
        number_column("communication:\nmedian", lambda source: median(source.communication)),
        number_column("P90", lambda source: p90(source.communication)),
        number_column("bias", lambda source: bias(source.communication)),
        number_column(
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
        text_column("measured", lambda row: row[0]),
        number_column("called\nfaster", lambda row: str(row[1])),
        number_column("called\nslower", lambda row: str(row[2])),
    )


def _rows_grid(title: str, rows: list[IterationError]) -> Grid:
    def seconds(value_s: float | None) -> str:
        return UNDEFINED if value_s is None else format_seconds(value_s)

    return tabulate(
        title,
        rows,
        text_column("iteration", lambda row: row.id[:_MAX_NAME]),
        text_column("reducer", lambda row: row.reducer.partition(" ")[0]),
        number_column("workers", lambda row: str(row.workers)),
        number_column("predicted", lambda row: seconds(row.iteration_s)),
        number_column("measured", lambda row: seconds(row.measured_iteration_s)),
        number_column("bias", lambda row: signed_text(row.log_error)),
        number_column("communication:\nbias", lambda row: signed_text(row.communication_log_error)),
        text_column("call", _call_text),
    )


def _call_text(row: IterationError) -> str:
    if row.right_call is None:
        return ""
    return "right" if row.right_call else "wrong"


def train_lines(result: TrainResult) -> list[str]:
    """Return what a step computes, and what was to be reached."""
    goal = f"{'none' if result.target is None else target_text(result.target)}, {result.target_why}"
    seeds = format_number_of(result.spec.seeds, "seed")
    after = f"; plus or minus is the 95 % interval of the mean over {seeds}" if result.spec.seeds > 1 else ""
    step = f"its scripts replayed on the cluster, and compute without overlap ({result.compute_why})"
    return [f"Target: {goal}. A step: {step}{after}."]


def train_grid(result: TrainResult) -> Grid:
    """Return a line a reducer: where it ended, what a step takes, and what it needed to reach the target."""
    goal = "target" if result.target is None else target_text(result.target)
    columns = (
        Column("reducer", numeric=False),
        Column("feed-\nback", numeric=False),
        Column(f"loss after\n{format_number_of(result.spec.steps, 'step')}"),
        Column(f"% right\n{result.score}"),
        Column("a step"),
        Column("sent\na step"),
        Column(f"seeds\nto {goal}"),
        Column("steps\nto it"),
        Column("time\nto it"),
        Column("over dense's time\nto it"),
        Column("over dense's bytes\nto it"),
    )
    return Grid("on held-out data, by reducer", columns, tuple(map(_cells, result.rows)))


def _cells(row: TrainRow) -> tuple[str, ...]:
    return (
        row.reducer,
        row.feedback,
        _interval(row.loss, lambda value: f"{value:.4g}"),
        _interval(row.accuracy, lambda value: f"{100 * value:.3g}"),
        format_seconds(row.step_s.mean),
        format_bytes(row.step_bytes.mean),
        f"{row.reached} of {row.trained}",
        _interval(row.iterations, lambda value: f"{value:.3g}"),
        _interval(row.time_s, format_seconds),
        UNDEFINED if row.time_ratio is None else interval_text(row.time_ratio),
        UNDEFINED if row.bytes_ratio is None else interval_text(row.bytes_ratio),
    )


def _interval(interval: Interval | None, text: Callable[[float], str]) -> str:
    if interval is None:
        return UNDEFINED
    if interval.high is None:
        return text(interval.mean)
    return f"{text(interval.mean)} ±{text(interval.high - interval.mean)}"
