"""Stages in any order of dependence: one after another, side by side, or pipelined."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s2sim.collectives.schedules.schedule import Pieces, Stage, Step, traffic_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def arranged(parts: Sequence[tuple[Stage, tuple[int, ...]]]) -> Stage:
    """Return stages of which each starts once some of those before it have been delivered everywhere.

    With each stage stand the numbers of those that it waits for; without any it starts at once. To wait for a stage
    without steps is to wait for what that one waits for.
    """
    steps: list[Step] = []
    owner: list[tuple[Stage, int]] = []
    ends: list[tuple[int, ...]] = []
    for stage, before in parts:
        entry = tuple(dict.fromkeys(step for number in before for step in ends[number]))
        first = len(steps)
        for index, step in enumerate(stage.steps):
            after = tuple(first + other for other in step.waits(index))
            sent = tuple(first + other for other in step.after_sent)
            steps.append(Step(step.round, step.times, after or entry, sent))
            owner.append((stage, index))
        waited = {other for step in steps[first:] for other in step.after or ()}
        ends.append(tuple(index for index in range(first, len(steps)) if index not in waited) or entry)

    def pieces(index: int, time: int) -> Pieces:
        stage, inner = owner[index]
        return stage.pieces(inner, time)

    return Stage(steps, pieces, partial(traffic_of, [stage for stage, _ in parts]), chain=False)
