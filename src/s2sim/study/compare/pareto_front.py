"""The comparison of codecs: many sizes of each reducer, and which of them nothing else beats."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from s2sim.study.compare.judge import acceptable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.study.measuring.result import Row


def front(rows: Sequence[Row], cost: Callable[[Row], float]) -> frozenset[str]:
    """Return the option strings of those rows that no other beats in error and cost at once: the Pareto-optimal ones.

    All rows are of one number of workers. Rows of equal error and cost are all on the front; one that no
    verdict would take for its error is never.
    """
    held = sorted(rows, key=lambda row: (cost(row), _error(row)))
    best, best_cost = inf, -inf
    chosen = set()
    for row in held:
        error = _error(row)
        if error < best or (error == best < inf and cost(row) == best_cost):
            chosen.add(row.reducer)
            best, best_cost = error, cost(row)
    return frozenset(chosen)


def fronts(rows: Sequence[Row]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the fronts of error and bytes, and of error and time: of iterations where they were simulated."""
    # One rank alone sends nothing: what it would hand to a network stands for that.
    alone = rows[0].workers == 1
    by_bytes = front(rows, lambda row: row.payload_bytes_per_rank if alone else row.bytes_sent_per_rank)
    return by_bytes, front(rows, lambda row: row.time_s.total if row.iteration is None else row.iteration.total_s)


def _error(row: Row) -> float:
    """Return an error to compare: exact ones differ by rounding alone, and what no verdict takes has none."""
    if row.exact:
        return 0.0
    error = row.error.relative_l2
    return inf if error is None or not acceptable(row, None) else error
