"""Scripts of many ranks from the program of one, where what ranks send follows from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.process_group import Handle, Member, RankProgress, World
from s2sim.reducers.rank import Contribution, Reducer
from s2sim.reducers.reduction import CallHeader, Collective
from s2sim.reducers.script import Call, Post, Recording

# ruff: noqa: D102  (SymmetricRank implements the protocol `s2sim.reducers.rank.Rank`, whose methods have the docstrings)

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class SymmetricRank(Member):
    """Rank 0 of some that all do the same with arrays of the same shapes; implements `s2sim.reducers.rank.Rank`.

    What other ranks hand in is taken to be what this one does, so that only shapes are as in a run of all.
    """

    for_shapes: ClassVar[bool] = True  # Reducers may leave out what values alone need
    calls: list[Call] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def subgroup(self, ranks: Iterable[int]) -> Member:
        raise self._refusal("a group of some ranks")

    def replicated(self, compute: Callable[[], T]) -> T:
        try:
            return compute()
        except (IndexError, ValueError, S2SimError):
            # Other ranks have shares of another size: it is the mean, which nobody reads here.
            return cast("T", None)

    def value(self, call: int) -> Any:
        return self.values[call]

    def _post(self, heading: CallHeader, payloads: Mapping[int, Contribution]) -> Handle:
        if heading.kind in ("reduce", "broadcast") or heading.op == "peers":
            raise self._refusal(heading.label)
        self.calls.append(Collective(heading, self.group.ranks).record_alike(payloads))
        combines = heading.kind in ("all_reduce", "reduce_scatter")
        self.values.append(payloads[0] if combines else (payloads[0],) * self.size)
        self.progress.script.append(Post(len(self.calls) - 1))
        return Handle(((self, len(self.calls) - 1),))

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
    progress = RankProgress(0)
    rank = SymmetricRank(World(ranks).all, progress, 0, ranks, reducer.settles_after, seed)
    with np.errstate(all="ignore"):
        for pending in reducer.fresh().reduce(rank, gradient):
            progress.wait(pending)
    return Recording(tuple(rank.calls), (tuple(progress.script),) * ranks)
