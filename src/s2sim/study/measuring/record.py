"""Runs reducers once on real gradients: their scripts, and how far their results are from the exact mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import hypot
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from s2sim.errors import CodecError, S2SimError
from s2sim.gradients.gradient import add, stored
from s2sim.reducers.measure import consensus_distance, ended, mean_float64, norm, share_within, worst_error
from s2sim.reducers.run import run_reducer
from s2sim.reducers.scripts.script import AwaitGradient
from s2sim.study.measuring.row_parts import BoundRow, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.error_bound import ErrorBound
    from s2sim.reducers.measure import Errors
    from s2sim.reducers.rank import Reducer
    from s2sim.reducers.run import OtherSteps
    from s2sim.reducers.scripts.script import Recording
    from s2sim.replay.iteration.exchange import Leaving
    from s2sim.study.scenario.asked import AskedReducer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one reducer did on one set of gradients.

    The reducer has its options fitted; it is not one of the instances that ran. Errors are those of the worst rank,
    ``bound`` is what theory says of the error of an element; ``consensus`` how far apart the ranks end, see
    `s2sim.reducers.measure.consensus_distance`. ``exchange`` are the buckets in which it ran, whose recordings are
    joined in ``recording``; empty where it took all layers at once.
    """

    option_string: str
    reducer: Reducer
    recording: Recording
    errors: Errors
    bound: BoundRow | None
    consensus: float | None
    exchange: tuple[Leaving, ...] = ()

    @property
    def assumes(self) -> str | None:
        """On what it rests beside what is simulated."""
        parts = []
        if AwaitGradient() in self.recording.scripts[0]:
            parts.append("rows are known before forward")
        if self.reducer.traits.warm:
            parts.append("sizes carry over from the step before")
        if self.reducer.traits.assumes:
            parts.append(self.reducer.traits.assumes)
        return " and ".join(parts) or None


_FLOAT32_ROUNDING = 2.0**-23
_MOST_NAMES = 8


def baseline_of(recorded: Sequence[Recorded]) -> Recorded:
    """Return what all are compared with: ``dense``, the first where several types of it were asked for."""
    return next(item for item in recorded if item.reducer.traits.baseline)


def names_of(recorded: Sequence[Recorded]) -> str:
    """Return what was asked for, for a note; of many only how many they are."""
    if len(recorded) > _MOST_NAMES:
        return f"{recorded[0].option_string} and {len(recorded) - 1} more"
    return ", ".join(item.option_string for item in recorded)


def record(
    reducers: Sequence[AskedReducer],
    gradients: Sequence[Gradient],
    *,
    seed: int,
    others: OtherSteps | None = None,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[Recorded], list[Refused]]:
    """Run each reducer on the gradients, one a rank, with empty residuals; return also which optional ones refuse them.

    A warm one carries over what it knows from another step, one with a period takes those that follow as well; where
    there are none, all steps have the same gradients.
    """
    exact = ExactMeans(gradients, others)
    return unless_refused(
        reducers, len(gradients), lambda asked: _record_one(asked, gradients, exact, seed, others), on_reducer
    )


def unless_refused(
    reducers: Sequence[AskedReducer],
    ranks: int,
    record_one: Callable[[AskedReducer], T],
    on_reducer: Callable[[], None],
) -> tuple[list[T], list[Refused]]:
    """Return what is recorded of each reducer, and which optional ones refuse the gradients of so many ranks."""
    found, refused = [], []
    for asked in reducers:
        try:
            found.append(record_one(asked))
        except S2SimError as error:
            text = asked.option_string
            if asked.optional:
                refused.append(Refused(text, ranks, str(error)))
            elif isinstance(error, CodecError):
                raise CodecError(f"{text} cannot take these gradients: {error}; leave it out with --reducer") from None
            else:
                raise
        on_reducer()
    return found, refused


class ExactMeans:
    """Exact means over ranks, summed over periods of steps; each is computed once."""

    def __init__(self, gradients: Sequence[Gradient], others: OtherSteps | None) -> None:
        self._others = others
        self._sums = {1: mean_float64(gradients)}

    def over(self, period: int) -> Gradient:
        """Return the sum over so many steps, float64."""
        if period not in self._sums:
            first = self._sums[1]
            if self._others is None:
                self._sums[period] = first.map(lambda values: values * period)
            else:
                rest = (mean_float64(self._others(step)) for step in range(1, period))
                self._sums[period] = reduce(add, rest, first)
        return self._sums[period]


def _record_one(
    asked: AskedReducer, gradients: Sequence[Gradient], means: ExactMeans, seed: int, others: OtherSteps | None
) -> Recorded:
    reducer = asked.reducer.fitted(gradients, seed)
    exact = means.over(reducer.period)
    ran = run_reducer(reducer, gradients, seed=seed, others=others)
    compressed = reducer.compresses(gradients[0])
    results = ended(ran.results, reducer.traits)
    errors = worst_error(results, exact, compressed)
    bound = bound_row([(ran.instances[0].error_bound(), compressed)], results[0].mean, exact)
    return Recorded(asked.option_string, reducer, ran.recording, errors, bound, consensus_distance(results))


def bound_row(
    parts: Sequence[tuple[ErrorBound | None, Sequence[int]]], mean: Gradient, exact: Gradient
) -> BoundRow | None:
    """Return the published bound, as a share of the norm, and for which share of the elements it holds.

    ``parts`` are the bounds of layers that ran together, with those of them that are compressed; None where one of them
    has none.
    """
    limits, lengths, laws, told = {}, [], [], []
    for bound, compressed in parts:
        layers = [index for index in compressed if exact.layers[index].size]
        if not layers:
            continue
        if bound is None:
            return None
        own = [norm(exact, [index]) for index in layers]
        for index, length, element in zip(layers, own, bound.element, strict=True):
            # A sum and its quotient are rounded to float32.
            rounding = _FLOAT32_ROUNDING * float(np.abs(stored(exact.layers[index])).max(initial=0.0))
            limits[index] = (element * length if bound.relative else element) + rounding
        if bound.relative_l2 is not None:
            laws += [each * length for each, length in zip(bound.relative_l2, own, strict=True)]
        lengths += own
        told.append(bound)
    if not told:
        return None
    whole = hypot(*lengths)
    return BoundRow(
        element=max(limits.values()) / whole if whole else 0.0,
        share=min(bound.share for bound in told),
        share_found=share_within(mean, exact, limits),
        relative_l2=hypot(*laws) / whole if whole and len(laws) == len(lengths) else None,
        source=told[0].source,
    )
