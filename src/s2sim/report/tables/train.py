"""A training with several reducers as a table and lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Column, Grid
from s2sim.report.tables.texts import UNDEFINED
from s2sim.study.convergence.words import interval_text, target_text
from s2sim.units import format_bytes, format_seconds
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.study.convergence.intervals import Interval
    from s2sim.study.convergence.result import Trained, TrainRow


def train_lines(result: Trained) -> list[str]:
    """Return what a step computes, and what was to be reached."""
    goal = f"{'none' if result.target is None else target_text(result.target)}, {result.target_why}"
    seeds = number_of(result.spec.seeds, "seed")
    after = f"; plus or minus is the 95 % interval of the mean over {seeds}" if result.spec.seeds > 1 else ""
    step = f"its scripts replayed on the cluster, and compute without overlap ({result.compute_why})"
    return [f"Target: {goal}. A step: {step}{after}."]


def train_grid(result: Trained) -> Grid:
    """Return a line a reducer: where it ended, what a step takes, and what it needed to reach the target."""
    goal = "target" if result.target is None else target_text(result.target)
    columns = (
        Column("reducer", numeric=False),
        Column("feed-\nback", numeric=False),
        Column(f"loss after\n{number_of(result.spec.steps, 'step')}"),
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
