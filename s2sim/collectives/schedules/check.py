"""Runs a schedule on real arrays, step by step, and says whether it computes what its name says."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.collectives.schedules.blocks import blocks_of
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.errors import S2SimError


def run_on_values(schedule: Schedule, buffers: Ints, order: Iterable[int] | None = None) -> Ints:
    """Return the buffers after the schedule, int64 of shape (places, positions).

    Steps run in ``order``, without it as they are listed. All sends of a round read what their source held before the
    round.
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
    """Return the steps in the order that departs most from the listed one, of those that deliveries allow.

    A step that only waits until the bytes of another have left cannot count on what they brought.
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
    """Return random buffers, int64 of shape (ranks, positions), zero where a rank has nothing of its own."""
    values = rng.integers(-(2**40), 2**40, (demand.ranks, demand.buffer_elements))
    if demand.kind == "broadcast":
        values[np.arange(demand.ranks) != demand.root] = 0
    elif not demand.shared and demand.kind != "reduce_scatter":
        values[~_owned_positions(demand, np.arange(demand.ranks))] = 0
    return values


def _owned_positions(demand: Demand, owner: Ints) -> Mask:
    """Return which positions lie in the stretch of rank ``owner[r]``, bool of shape (ranks, positions)."""
    begin, end = (side[owner][:, None] for side in demand.stretches())
    position = np.arange(demand.buffer_elements)
    inside: Mask = (begin <= position) & (position < end)
    return inside


def expected_positions(demand: Demand) -> Mask:
    """Return which positions every rank must have at the end, bool of shape (ranks, positions)."""
    ranks = np.arange(demand.ranks)
    wanted = np.zeros((demand.ranks, demand.buffer_elements), bool)
    if demand.kind == "reduce":
        wanted[demand.root] = True
    elif demand.kind == "reduce_scatter":
        wanted = _owned_positions(demand, ranks)
    elif demand.kind == "send_recv":
        wanted = _owned_positions(demand, (ranks - 1) % demand.ranks)
    elif demand.kind == "all_to_all":
        blocks = blocks_of(demand)
        for rank in ranks:
            for start, stop in zip(*blocks.bounds(ranks, np.full_like(ranks, rank)), strict=True):
                wanted[rank, start:stop] = True
    else:
        wanted[:] = True
    return wanted


def check_schedule(schedule: Schedule, *, seed: int = 0) -> None:
    """Raise `S2SimError` unless the schedule leaves on every rank what its kind promises.

    Integer values make the comparison exact in whatever order they are added. Steps that may run at the same time are
    checked in two orders.
    """
    demand = schedule.demand
    values = initial_buffers(demand, np.random.default_rng(seed))
    values = np.concatenate([values, np.zeros((schedule.helpers, values.shape[1]), np.int64)])
    # Where only one rank has something, the sum is its value.
    expected = values.sum(axis=0)
    for order in (None,) if schedule.stage.chain else (None, latest_order(schedule)):
        result = run_on_values(schedule, values, order)[: demand.ranks]
        wrong = np.flatnonzero(((result != expected) & expected_positions(demand)).any(axis=1))
        if len(wrong):
            raise S2SimError(f"{schedule.algorithm} leaves a wrong {demand.kind} on rank {wrong[0]} of {demand.ranks}")
