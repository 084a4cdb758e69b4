"""The size of the union before it is known: a small message that ranks merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.codecs.hashing import as_keys
from s2sim.codecs.hyperloglog import HyperLogLog
from s2sim.reducers.sketching import cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.gradient import RowSparse
    from s2sim.reducers.rank import Pending, Rank


def post_estimate(rank: Rank, tables: Sequence[RowSparse]) -> Pending:
    """Post what tells how many rows of each table any rank holds: HyperLogLog registers, merged by max."""
    counter = HyperLogLog(seed=rank.seed)
    rank.work(cost.estimate(tables, counter))
    registers = tuple(counter.registers(as_keys(table.rows)) for table in tables)
    return rank.all_reduce(registers, "max", label="union estimate")


def read_estimate(rank: Rank, registers: Pending, tables: Sequence[RowSparse]) -> list[float]:
    """Return the rows of each table that any rank holds, about, from what `post_estimate` has posted."""
    counter = HyperLogLog(seed=rank.seed)
    estimates = rank.replicated(lambda: [counter.estimate(merged) for merged in registers.value])
    return [min(estimate, table.shape[0]) for estimate, table in zip(estimates, tables, strict=True)]
