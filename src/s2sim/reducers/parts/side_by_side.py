"""Several programs in one: what they post before they wait is in flight together."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from s2sim.reducers.rank import Pending, Rank

T = TypeVar("T")


class Watched:
    """A rank's handle that notes when a program has awaited the gradient."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.awaited = False

    @property
    def rank(self) -> Rank:
        """The handle, as the program takes it."""
        return cast("Rank", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def await_gradient(self) -> None:
        """Await the gradient, and note it."""
        self._rank.await_gradient()
        self.awaited = True


def ahead(
    watched: Watched, program: Generator[Pending, None, T]
) -> Generator[Pending, None, Generator[Pending, None, T]]:
    """Run a program, which has the handle, until it waits for what needs the gradient; return the rest of it."""
    while True:
        try:
            pending = next(program)
        except StopIteration as stop:
            return _ended(stop.value)
        if watched.awaited:
            return _resumed(pending, program)
        yield pending


def _ended(result: T) -> Generator[Pending, None, T]:
    yield from ()
    return result


def _resumed(pending: Pending, program: Generator[Pending, None, T]) -> Generator[Pending, None, T]:
    yield pending
    return (yield from program)


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
