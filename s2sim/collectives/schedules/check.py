"""Executes a schedule on arrays and checks the result of the collective."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.collectives.schedules.demand import Blocks, Demand
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.errors import S2SimError


def run_on_values(schedule: Schedule, buffers: Ints, order: Iterable[int] | None = None) -> Ints:
    """Return the buffers after the schedule, int64 of shape (places, positions).

    Steps run in ``order``, by default as listed. All sends of a round read the values from before the round.
    """
    buffers = buffers.copy()
    for index in range(len(schedule.steps)) if order is None else order:
        step = schedule.steps[index]
        pattern = step.round.pattern
        for time in range(step.times):
            pieces = schedule.stage.pieces(index, time)
            before = buffers.copy()
            for message, start, stop, adds in zip(pieces.message, pieces.start, pieces.stop, pieces.adds, strict=True):
                if pattern.through_switch:
                    buffers[pattern.dst, start:stop] = before[pattern.src, start:stop].sum(axis=0)
                elif adds:
                    buffers[pattern.dst[message], start:stop] += before[pattern.src[message], start:stop]
                else:
                    buffers[pattern.dst[message], start:stop] = before[pattern.src[message], start:stop]
    return buffers


def latest_order(schedule: Schedule) -> list[int]:
    """Return the valid order of steps, by deliveries, that differs most from the listed one.

    A step that only waits until the bytes of another have been sent must not depend on their delivery.
    """
    sorter = TopologicalSorter({index: step.waits(index) for index, step in enumerate(schedule.steps)})
    try:
        sorter.prepare()
    except CycleError:
        raise S2SimError(f"{schedule.algorithm} hangs: steps wait for each other") from None
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()])
        order.append(ready.pop())
        sorter.done(order[-1])
    return order


def initial_buffers(demand: Demand, rng: np.random.Generator) -> Ints:
    """Return random buffers, int64 of shape (ranks, positions), zero outside of the contribution of a rank."""
    values = rng.integers(-(2**40), 2**40, (demand.ranks, demand.buffer_elements))
    if demand.kind == "broadcast":
        values[np.arange(demand.ranks) != demand.root] = 0
    elif not demand.shared and demand.kind != "reduce_scatter":
        values[~_owned_positions(demand, np.arange(demand.ranks))] = 0
    return values


def _owned_positions(demand: Demand, owner: Ints) -> Mask:
    """Return a mask of the positions in the range of rank ``owner[r]``, bool of shape (ranks, positions)."""
    begin, end = (side[owner][:, None] for side in demand.stretches())
    position = np.arange(demand.buffer_elements)
    inside: Mask = (begin <= position) & (position < end)
    return inside


def expected_positions(demand: Demand) -> Mask:
    """Return a mask of the positions of the result of every rank, bool of shape (ranks, positions)."""
    ranks = np.arange(demand.ranks)
    expected = np.zeros((demand.ranks, demand.buffer_elements), bool)
    if demand.kind == "reduce":
        expected[demand.root] = True
    elif demand.kind == "reduce_scatter":
        expected = _owned_positions(demand, ranks)
    elif demand.kind == "send_recv":
        expected = _owned_positions(demand, (ranks - 1) % demand.ranks)
    elif demand.kind == "all_to_all":
        blocks = Blocks(demand)
        for rank in ranks:
            for start, stop in zip(*blocks.bounds(ranks, np.full_like(ranks, rank)), strict=True):
                expected[rank, start:stop] = True
    else:
        expected[:] = True
    return expected


def check_schedule(schedule: Schedule, *, seed: int = 0) -> None:
    """Raise `S2SimError` unless every rank ends with the result of the collective.

    Integers make the comparison exact for any order of additions. Steps that may run concurrently are checked in two
    orders.
    """
    demand = schedule.demand
    values = initial_buffers(demand, np.random.default_rng(seed))
    values = np.concatenate([values, np.zeros((schedule.helpers, values.shape[1]), np.int64)])
    expected = values.sum(axis=0)
    for order in (None,) if schedule.stage.chain else (None, latest_order(schedule)):
        result = run_on_values(schedule, values, order)[: demand.ranks]
        wrong = np.flatnonzero(((result != expected) & expected_positions(demand)).any(axis=1))
        if len(wrong):
            raise S2SimError(f"{schedule.algorithm} leaves a wrong {demand.kind} on rank {wrong[0]} of {demand.ranks}")
