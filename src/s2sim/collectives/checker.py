"""Runs a schedule on real arrays, round by round, and says whether it computes what its name says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.collectives.schedule import Schedule


def run_on_values(schedule: Schedule, buffers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the buffers after the schedule, int64 of shape (ranks, buffer elements).

    All sends of a round read what their source held before the round.
    """
    buffers = buffers.copy()
    for k in range(schedule.rounds):
        transfers = schedule.round_at(k)
        before = buffers.copy()
        for pair, start, stop, adds in zip(
            transfers.pair, transfers.start, transfers.stop, transfers.adds, strict=True
        ):
            sent = before[schedule.src[pair], start:stop]
            if adds:
                buffers[schedule.dst[pair], start:stop] += sent
            else:
                buffers[schedule.dst[pair], start:stop] = sent
    return buffers


def check_schedule(schedule: Schedule, *, seed: int = 0) -> None:
    """Raise `S2SimError` unless the schedule leaves on every rank what its kind promises.

    Integer values make the comparison exact in whatever order they are added.
    """
    demand = schedule.demand
    rng = np.random.default_rng(seed)
    values = rng.integers(-(2**40), 2**40, (demand.ranks, demand.buffer_elements))
    if demand.kind == "all_reduce":
        expected = values.sum(axis=0)
    else:
        bounds = np.concatenate([[0], np.cumsum(demand.elements)])
        owner = np.repeat(np.arange(demand.ranks), demand.elements)
        values[owner != np.arange(demand.ranks)[:, None]] = 0
        expected = values[owner, np.arange(bounds[-1])]
    result = run_on_values(schedule, values)
    wrong = np.flatnonzero((result != expected).any(axis=1))
    if len(wrong):
        raise S2SimError(f"{schedule.algorithm} leaves a wrong {demand.kind} on rank {wrong[0]} of {demand.ranks}")
