"""Scripts of many ranks from the program of one, where what ranks send follows from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, Unpack, cast

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.process_group import PostOptions
from s2sim.reducers.rank import Contribution, Pending, Reducer
from s2sim.reducers.reduction import CallHeader, open_collective
from s2sim.reducers.script import AwaitGradient, Call, HostSync, Post, Recording, Step, Wait, Work

# ruff: noqa: D102  (SymmetricRank implements the protocol `s2sim.reducers.rank.Rank`, whose methods have the docstrings)

T = TypeVar("T")


@dataclass(slots=True)
class _Posted:
    """A collective to which all ranks hand in the same."""

    rank: SymmetricRank
    calls: tuple[int, ...]

    def __and__(self, other: Any) -> _Posted:
        return _Posted(self.rank, self.calls + other.calls)

    @property
    def value(self) -> Any:
        values = [self.rank.values[call] for call in self.calls]
        return values[0] if len(values) == 1 else tuple(values)


@dataclass(slots=True, eq=False)
class SymmetricRank:
    """Rank 0 of ``size`` that all do the same with arrays of the same shapes; implements `s2sim.reducers.rank.Rank`.

    What other ranks hand in is taken to be what this one does, so that only shapes are as in a run of all.
    """

    size: int
    step: int
    seed: int
    index: int = 0
    for_shapes: bool = True  # Reducers may leave out what values alone need
    script: list[Step] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def all_reduce(self, payload: Contribution, op: str = "sum", **how: Unpack[PostOptions]) -> Pending:
        return self._post(CallHeader("all_reduce", op, **how), {0: payload}, payload)

    def reduce_scatter(self, payloads: Sequence[Contribution], op: str = "sum", **how: Unpack[PostOptions]) -> Pending:
        return self._post(CallHeader("reduce_scatter", op, **how), dict(enumerate(payloads)), payloads[0])

    def all_gather(self, payload: Contribution, **how: Unpack[PostOptions]) -> Pending:
        return self._post(CallHeader("all_gather", "gather", **how), {0: payload}, (payload,) * self.size)

    def all_to_all(self, payloads: Sequence[Contribution], **how: Unpack[PostOptions]) -> Pending:
        return self._post(
            CallHeader("all_to_all", "exchange", **how), dict(enumerate(payloads)), (payloads[0],) * self.size
        )

    def reduce(self, payload: Contribution, op: str = "sum", *, root: int, **how: Unpack[PostOptions]) -> Pending:
        raise self._refusal(how["label"])

    def broadcast(self, payload: Contribution | None, *, root: int, **how: Unpack[PostOptions]) -> Pending:
        raise self._refusal(how["label"])

    def exchange(self, payloads: Mapping[int, Contribution], **how: Unpack[PostOptions]) -> Pending:
        raise self._refusal(how["label"])

    def subgroup(self, ranks: Iterable[int]) -> SymmetricRank:
        raise self._refusal("a group of some ranks")

    def await_gradient(self) -> None:
        self.script.append(AwaitGradient())

    def work(self, work: Work) -> None:
        self.script.append(work)

    def synchronise(self) -> None:
        self.script.append(HostSync())

    def replicated(self, compute: Callable[[], T]) -> T:
        try:
            return compute()
        except (IndexError, ValueError, S2SimError):
            # Other ranks have shares of another size: it is the mean, which nobody reads here.
            return cast("T", None)

    def _post(self, heading: CallHeader, payloads: Mapping[int, Contribution], value: Any) -> _Posted:
        self.calls.append(open_collective(heading, tuple(range(self.size))).record_alike(payloads))
        self.values.append(value)
        self.script.append(Post(len(self.calls) - 1))
        return _Posted(self, (len(self.calls) - 1,))

    def _refusal(self, what: str) -> S2SimError:
        return S2SimError(f"{what!r} is not the same on all ranks: the scripts do not follow from those of one")


def is_symmetric(reducer: Reducer, gradient: Gradient) -> bool:
    """Return whether what every rank sends of such a gradient follows from its shapes, in every step."""
    tables = any(isinstance(layer, RowSparse) for layer in gradient.layers)
    return reducer.size_only and not reducer.traits.warm and reducer.period == 1 and not tables


def run_symmetric(reducer: Reducer, gradient: Gradient, ranks: int, *, seed: int = 0) -> Recording:
    """Return the scripts of ``ranks`` ranks that hold gradients such as this one, of which `is_symmetric` holds.

    Only one rank's program runs, see `SymmetricRank`. They are those of `s2sim.reducers.run.run_reducer` on as many
    gradients, but that a rank's share of a layer may differ by an element.
    """
    rank = SymmetricRank(ranks, reducer.settles_after, seed)
    with np.errstate(all="ignore"):
        for pending in reducer.fresh().reduce(rank, gradient):
            assert isinstance(pending, _Posted)
            rank.script.append(Wait(pending.calls))
    return Recording(tuple(rank.calls), (tuple(rank.script),) * ranks)
