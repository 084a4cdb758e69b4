"""A schedule as GOAL text, which LogGOPSim and ATLAHS replay (Hoefler, Siebert and Lumsdaine, ICPP 2009).

GOAL lists what each rank does: ``send``, ``recv`` and ``calc``, each with a label, and which waits for which:
``b requires a`` for the end of a, ``b irequires a`` for its start. The grammar is that of ``txt2bin`` of LogGOPSim,
where ``//`` begins a comment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from s2sim.collectives.schedules.schedule import Schedule, Step
from s2sim.errors import OptionError

_MAX_OPERATIONS = 500_000

_HEADER = """\
// {kind} by {algorithm} on {ranks} ranks{helpers}
// A rank begins a round when its own part of the rounds before it is done: GOAL has no clock that all ranks share.
// Every message has a tag of its own. One without bytes is written as 1 byte, because LogGOPSim counts size - 1.
"""


@dataclass(frozen=True, slots=True)
class _Dependencies:
    """The labels of its own rank whose end, or whose start, an operation waits for, in order and each once.

    Only sends are waited for by their start: their bytes leave one after another anyway.
    """

    ended: dict[str, None] = field(default_factory=dict)
    started: dict[str, None] = field(default_factory=dict)

    def add(self, other: _Dependencies) -> None:
        self.ended.update(other.ended)
        self.started.update(other.started)


@dataclass(slots=True)
class _Rank:
    """The text of one rank, as it grows.

    For each step, ``delivered`` and ``left`` hold what has to be waited for until it is delivered, or its bytes have
    left.
    """

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
        """Write that all operations wait for all of ``before``, by way of one point in time where that is shorter."""
        waited = [("requires", label) for label in before.ended] + [("irequires", label) for label in before.started]
        if len(waited) * len(operations) > len(waited) + len(operations) + 1:
            point = self.write("calc 0")
            self.lines += [f"{point} {word} {label}" for word, label in waited]
            waited = [("requires", point)]
        self.lines += [f"{label} {word} {other}" for label in operations for word, other in waited]

    def run(self, step: Step, index: int, rounds: list[list[str]]) -> None:
        """Write what the rank does in a step: its operations in each of the step's rounds."""
        before = _Dependencies()
        for other in step.waits(index):
            before.add(self.delivered[other])
        for other in step.after_sent:
            before.add(self.left[other])
        left = before
        for operations in rounds:
            labels = [self.write(operation) for operation in operations]
            if labels:
                self.order(before, labels)
                sends = [label for label, text in zip(labels, operations, strict=True) if text.startswith("send")]
                # Without a send of its own, nothing of the rank has to leave.
                left = _Dependencies(started=dict.fromkeys(sends)) if sends else before
                before = _Dependencies(ended=dict.fromkeys(labels))
        self.delivered.append(before)
        self.left.append(left)


def to_goal(schedule: Schedule) -> str:
    """Return a schedule as GOAL text.

    Sizes are those of the whole elements that messages carry. A rank's operations in a step come after its own
    operations in the steps that the step waits for; where a rank has no part in one of those, after what that one
    waits for.
    """
    patterns = [(step.round.pattern, step.times) for step in schedule.steps]
    if any(pattern.through_switch for pattern, _ in patterns):
        raise OptionError(
            f"{schedule.algorithm} has switches that sum and multicast, which GOAL cannot express: take another "
            "algorithm"
        )
    operations = 2 * sum(times * pattern.messages for pattern, times in patterns)
    if operations > _MAX_OPERATIONS:
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
    return "\n".join([header + f"num_ranks {schedule.places}", *_join_rank_blocks(texts)]) + "\n"


def _operations(schedule: Schedule, index: int, time: int, first_tag: int) -> dict[int, list[str]]:
    """Return what each rank that has a part in a round does in it; messages are tagged from ``first_tag`` on."""
    pattern, pieces = schedule.steps[index].round.pattern, schedule.stage.pieces(index, time)
    elements = np.bincount(pieces.message, pieces.stop - pieces.start, pattern.messages).astype(np.int64)
    sizes = np.maximum(elements * schedule.demand.itemsize, 1).tolist()
    found: dict[int, list[str]] = {}
    for tag, (source, target, size) in enumerate(
        zip(pattern.src.tolist(), pattern.dst.tolist(), sizes, strict=True), first_tag
    ):
        found.setdefault(source, []).append(f"send {size}b to {target} tag {tag}")
        found.setdefault(target, []).append(f"recv {size}b from {source} tag {tag}")
    return found


def _join_rank_blocks(texts: Iterable[_Rank]) -> Iterable[str]:
    for rank, text in enumerate(texts):
        # A rank without any operation is not known to be read everywhere.
        yield "\n".join([f"\nrank {rank} {{", *(text.lines or ["l1: calc 0"]), "}"])
