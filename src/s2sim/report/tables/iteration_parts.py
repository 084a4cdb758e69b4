"""Where the time of iterations goes, in tables, and how they scale with the number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.texts import brief_seconds, marked_workers, percent_text, throughput_text
from s2sim.units import format_seconds
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.study.measuring.iteration_row import IterationRow
    from s2sim.study.measuring.result import Result, Row


def iteration_of(row: Row) -> IterationRow:
    """Return where the time of a row's iteration went; its run simulated one."""
    assert row.iteration is not None
    return row.iteration


def exchange_text(rows: Sequence[Row]) -> str:
    """Return how gradients were exchanged in iterations, for a title; those of dense, the most that there are."""
    dense = iteration_of(next((row for row in rows if row.baseline), rows[0]))
    together = ", codec beside compute" if dense.streams > 1 else ""
    return f"{dense.discipline}, {number_of(dense.buckets, 'bucket')}{together}"


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
        f"{marked_workers(rows[0])}: where {of} goes on the slowest rank, {exchange_text(rows)}",
        rows,
        words("reducer", lambda row: row.reducer),
        figures("iteration", lambda row: format_seconds(iteration_of(row).total_s)),
        figures("forward", lambda row: brief_seconds(iteration_of(row).forward)),
        figures("backward", lambda row: brief_seconds(iteration_of(row).backward)),
        figures("codec", lambda row: brief_seconds(iteration_of(row).codec)),
        figures("communi-\ncation,\nexposed", lambda row: brief_seconds(iteration_of(row).exposed_communication)),
        figures("waiting", lambda row: brief_seconds(iteration_of(row).waiting)),
        figures("opti-\nmizer", lambda row: brief_seconds(iteration_of(row).optimizer)),
        figures("5% to\n95%", lambda row: brief_seconds(iteration_of(row).spread_s)),
        figures("communi-\ncation,\nhidden", lambda row: brief_seconds(iteration_of(row).hidden_communication)),
        figures("samples\n/s", lambda row: throughput_text(iteration_of(row).samples_per_s)),
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
