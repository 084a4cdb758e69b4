"""Executes a schedule on arrays and checks the result of the collective; writes it as GOAL text for others.

LogGOPSim and ATLAHS replay GOAL (Hoefler, Siebert and Lumsdaine, ICPP 2009). It lists what each rank does: ``send``,
``recv`` and ``calc``, each with a label, and which waits for which: ``b requires a`` for the end of a, and ``b
irequires a`` for its start. The grammar is that of ``txt2bin`` of LogGOPSim, where ``//`` begins a comment.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.collectives.schedules.demand import Blocks, Demand
from s2sim.collectives.schedules.schedule import Schedule, Step
from s2sim.errors import OptionError, S2SimError


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
    return (begin <= position) & (position < end)


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
        if len(wrong := np.flatnonzero(((result != expected) & expected_positions(demand)).any(axis=1))):
            raise S2SimError(f"{schedule.algorithm} leaves a wrong {demand.kind} on rank {wrong[0]} of {demand.ranks}")


_MAX_OPERATIONS = 500_000

_HEADER = """\
// {kind} by {algorithm} on {ranks} ranks{helpers}
// A rank begins a round when its own part of the rounds before it is done: GOAL has no clock that all ranks share.
// Every message has a tag of its own. One without bytes is written as 1 byte, because LogGOPSim counts size - 1.
"""

# ("requires" or "irequires", label): operations of the same rank for the end or the start of which an operation waits.
# Only sends are waited for by their start, because their bytes leave in order anyway.
_Dependencies: TypeAlias = dict[tuple[str, str], None]


@dataclass(slots=True)
class _Rank:
    """The text of one rank; ``delivered`` and ``left`` are the dependencies of delivery and of sending of each step."""

    lines: list[str] = field(default_factory=list)
    labels: int = 0
    delivered: list[_Dependencies] = field(default_factory=list)
    left: list[_Dependencies] = field(default_factory=list)

    def write(self, operation: str) -> str:
        """Write an operation and return its label."""
        self.labels += 1
        self.lines.append(f"l{self.labels}: {operation}")
        return f"l{self.labels}"

    def order(self, before: _Dependencies, operations: list[str]) -> None:
        """Write that all operations wait for all of ``before``, through one empty operation if that is shorter."""
        waited = sorted(before, key=lambda dependency: dependency[0], reverse=True)
        if len(waited) * len(operations) > len(waited) + len(operations) + 1:
            point = self.write("calc 0")
            self.lines += [f"{point} {word} {label}" for word, label in waited]
            waited = [("requires", point)]
        self.lines += [f"{label} {word} {other}" for label in operations for word, other in waited]

    def run(self, step: Step, index: int, rounds: list[list[str]]) -> None:
        """Write the operations of the rank in each round of a step."""
        before: _Dependencies = {}
        for other in step.waits(index):
            before |= self.delivered[other]
        for other in step.after_sent:
            before |= self.left[other]
        left = before
        for operations in rounds:
            if labels := [self.write(operation) for operation in operations]:
                self.order(before, labels)
                sends = [label for label, text in zip(labels, operations, strict=True) if text.startswith("send")]
                # Without a send in the round, nothing of the rank has to leave.
                left = {("irequires", label): None for label in sends} or before
                before = {("requires", label): None for label in labels}
        self.delivered.append(before)
        self.left.append(left)


def to_goal(schedule: Schedule) -> str:
    """Return a schedule as GOAL text, with sizes in whole elements.

    The operations of a rank in a step come after its operations in the steps for which the step waits; if it has none
    in such a step, after those for which that one waits.
    """
    patterns = [(step.round.pattern, step.times) for step in schedule.steps]
    if any(pattern.through_switch for pattern, _ in patterns):
        raise OptionError(
            f"{schedule.algorithm} has switches that sum and multicast, which GOAL cannot express: take another "
            "algorithm"
        )
    if (operations := 2 * sum(times * pattern.messages for pattern, times in patterns)) > _MAX_OPERATIONS:
        raise OptionError(
            f"{schedule.algorithm} on {schedule.demand.ranks} ranks has {operations} sends and receives, and at most "
            f"{_MAX_OPERATIONS} are written as GOAL text: take fewer ranks or chunks"
        )
    texts = [_Rank() for _ in range(schedule.places)]
    first_tag = 0
    for index, step in enumerate(schedule.steps):
        messages = step.round.pattern.messages
        rounds = [_operations(schedule, index, time, first_tag + time * messages) for time in range(step.times)]
        for rank, text in enumerate(texts):
            text.run(step, index, [each.get(rank, []) for each in rounds])
        first_tag += step.times * messages
    header = _HEADER.format(
        kind=schedule.demand.kind,
        algorithm=schedule.algorithm,
        ranks=schedule.demand.ranks,
        helpers=f" and {schedule.helpers} helpers, numbered after them" if schedule.helpers else "",
    )
    # Readers may not accept a rank without operations.
    blocks = ["\n".join([f"\nrank {n} {{", *(text.lines or ["l1: calc 0"]), "}"]) for n, text in enumerate(texts)]
    return "\n".join([header + f"num_ranks {schedule.places}", *blocks]) + "\n"


def _operations(schedule: Schedule, index: int, time: int, first_tag: int) -> dict[int, list[str]]:
    pattern, pieces = schedule.steps[index].round.pattern, schedule.stage.pieces(index, time)
    elements = np.bincount(pieces.message, pieces.stop - pieces.start, pattern.messages).astype(np.int64)
    sizes = np.maximum(elements * schedule.demand.itemsize, 1).tolist()
    messages = zip(pattern.src.tolist(), pattern.dst.tolist(), sizes, strict=True)
    operations: dict[int, list[str]] = {}
    for tag, (source, target, size) in enumerate(messages, first_tag):
        operations.setdefault(source, []).append(f"send {size}b to {target} tag {tag}")
        operations.setdefault(target, []).append(f"recv {size}b from {source} tag {tag}")
    return operations
