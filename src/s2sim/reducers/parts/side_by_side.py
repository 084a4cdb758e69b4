"""Several programs in one: what they post before they wait is in flight together."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from s2sim.reducers.rank import Pending

T = TypeVar("T")


def side_by_side(programs: Sequence[Generator[Pending, None, T]]) -> Generator[Pending, None, list[T]]:
    """Run programs in turns, each as far as it goes without waiting; wait for what all of them wait for.

    The turns are the same on all ranks whose programs wait equally often, so that ranks which share a group post in the
    same order.
    """
    results: list[T | None] = [None] * len(programs)
    running = dict(enumerate(programs))
    while running:
        waits: list[Pending] = []
        for place, program in list(running.items()):
            try:
                waits.append(next(program))
            except StopIteration as stop:
                results[place] = stop.value
                del running[place]
        if waits:
            yield reduce(and_, waits)
    return cast("list[T]", results)
