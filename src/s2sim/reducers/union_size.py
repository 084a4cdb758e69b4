"""The size of the union before it is known: a small message that ranks merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.codecs.hashing import as_keys
from s2sim.codecs.hyperloglog import HyperLogLog
from s2sim.reducers import s2_work

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from s2sim.gradients.gradient import RowSparse
    from s2sim.reducers.rank import Pending, Rank


def estimate_rows(rank: Rank, tables: Sequence[RowSparse]) -> Generator[Pending, None, list[float]]:
    """Return an estimate of the rows of each table that any rank holds: HyperLogLog registers, merged by max."""
    counter = HyperLogLog(seed=rank.seed)
    rank.work(s2_work.estimate(tables, counter))
    registers = rank.all_reduce(
        tuple(counter.registers(as_keys(table.rows)) for table in tables), "max", label="union estimate"
    )
    yield registers
    return [
        min(counter.estimate(merged), table.shape[0]) for merged, table in zip(registers.value, tables, strict=True)
    ]
