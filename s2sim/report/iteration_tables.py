"""Tables of simulated iterations and of training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from s2sim.report import format as fmt
from s2sim.report.grid import Grid, Screen, TableColumn, number_column, tabulate, text_column
from s2sim.units import format_bytes, format_money, format_number_of, format_seconds

if TYPE_CHECKING:
    from s2sim.experiment.row_parts import IterationRow
    from s2sim.experiment.rows import Result, Row
    from s2sim.training.curve import Interval
    from s2sim.training.result import TrainResult, TrainRow


def iteration_of(row: Row) -> IterationRow:
    """Return the iteration of a row of a run that simulated iterations."""
    assert row.iteration is not None
    return row.iteration


def exchange_text(rows: Sequence[Row]) -> str:
    """Return bucketing and number of buckets for a title, those of dense."""
    dense = iteration_of(next((row for row in rows if row.baseline), rows[0]))
    together = ", codec beside compute" if dense.streams > 1 else ""
    return f"{dense.discipline}, {format_number_of(dense.buckets, 'bucket')}{together}"


def iteration_grids(result: Result) -> list[Grid]:
    """Return the parts of an iteration of each reducer, a table per number of workers."""

    def seconds(title: str, field: str) -> TableColumn[Row]:
        return number_column(title, lambda row: fmt.brief_seconds(getattr(iteration_of(row), field)))

    grids = []
    for rows in fmt.group_by_workers(row for row in result.results if row.iteration is not None).values():
        ran = iteration_of(rows[0]).iterations
        of = f"median of {ran} iterations" if ran > 1 else "an iteration"
        grid = tabulate(
            f"{fmt.workers_with_mark(rows[0])}: where {of} goes on the slowest rank, {exchange_text(rows)}",
            rows,
            text_column("reducer", lambda row: row.reducer),
            number_column("iteration", lambda row: format_seconds(iteration_of(row).total_s)),
            seconds("forward", "forward"),
            seconds("backward", "backward"),
            seconds("codec", "codec"),
            seconds("communi-\ncation,\nexposed", "exposed_communication"),
            seconds("waiting", "waiting"),
            seconds("opti-\nmizer", "optimizer"),
            seconds("5% to\n95%", "spread_s"),
            seconds("communi-\ncation,\nhidden", "hidden_communication"),
            number_column("samples\n/s", lambda row: fmt.throughput_text(iteration_of(row).samples_per_s)),
        )
        grids.append(grid)
    return grids


def scaling_efficiencies(rows: Iterable[Row]) -> dict[int, float]:
    """Return the throughput per worker over that with the fewest workers, by number of workers, for one reducer.

    If the batch is unknown, that is the inverse ratio of iterations: each worker has its own batch.
    """
    per_worker = {}
    for row in sorted(rows, key=lambda row: row.workers):
        samples_per_s = iteration_of(row).samples_per_s
        per_worker[row.workers] = (
            1 / iteration_of(row).total_s if samples_per_s is None else samples_per_s / row.workers
        )
    fewest = next(iter(per_worker.values()), 1.0)
    return {workers: value / fewest for workers, value in per_worker.items()}


def train_screen(result: TrainResult) -> Screen:
    """Return the target, the parts of a step's time, a line per reducer on what it takes to the target, the verdict."""
    from s2sim.training.result import interval_text, target_text  # it knows of training, which most tables do not need

    goal = f"{'none' if result.target is None else target_text(result.target)}, {result.target_why}"
    seeds = format_number_of(result.spec.seeds, "seed")
    means = f"; plus or minus is the 95 % interval of the mean over {seeds}" if result.spec.seeds > 1 else ""
    step = f"its scripts replayed on the cluster, and compute without overlap ({result.compute_why})"
    ratio = fmt.optional_text(interval_text)

    def cost(row: TrainRow) -> str:
        if row.cost is None or result.price is None:
            return fmt.UNDEFINED
        return format_money(row.cost.mean, result.price.currency)

    grid = tabulate(
        "on held-out data, by reducer",
        result.rows,
        text_column("reducer", lambda row: row.reducer),
        text_column("feed-\nback", lambda row: row.feedback),
        number_column(
            f"loss after\n{format_number_of(result.spec.steps, 'step')}",
            lambda row: _interval(row.loss, lambda value: f"{value:.4g}"),
        ),
        number_column(
            f"% right\n{result.score}", lambda row: _interval(row.accuracy, lambda value: f"{100 * value:.3g}")
        ),
        number_column("a step", lambda row: format_seconds(row.step_s.mean)),
        number_column("sent\na step", lambda row: format_bytes(row.step_bytes.mean)),
        number_column(
            f"seeds\nto {'target' if result.target is None else target_text(result.target)}",
            lambda row: f"{row.reached} of {row.trained}",
        ),
        number_column("steps\nto it", lambda row: _interval(row.iterations, lambda value: f"{value:.3g}")),
        number_column("time\nto it", lambda row: _interval(row.time_s, format_seconds)),
        None if result.price is None else number_column("cost\nto it", cost),
        number_column("over dense's time\nto it", lambda row: ratio(row.time_ratio)),
        number_column("over dense's bytes\nto it", lambda row: ratio(row.bytes_ratio)),
    )
    before = [result.headline, f"Target: {goal}. A step: {step}{means}."]
    return Screen(before, [grid], ["", *fmt.note_lines(result.notes), "", *result.verdict], result.verdict)


def _interval(interval: Interval | None, text: Callable[[float], str]) -> str:
    if interval is None:
        return fmt.UNDEFINED
    if interval.high is None:
        return text(interval.mean)
    return f"{text(interval.mean)} ±{text(interval.high - interval.mean)}"
