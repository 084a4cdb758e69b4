"""Who wins against dense on each setting, and at which rate that turns over, as measured and as predicted."""

from __future__ import annotations

from itertools import pairwise
from math import exp, isinf, log
from typing import TYPE_CHECKING

from s2sim.study.testbed.result import BreakEvenRate, Call, Point

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DENSE = "dense"


def calls_of(points: Sequence[Point]) -> tuple[Call, ...]:
    """Return a call for each reducer of each unseen setting that has measured dense too."""
    return tuple(
        Call(
            point.kind,
            point.setting,
            point.what,
            point.trace,
            dense.measured_s / point.measured_s,
            dense.predicted_s / point.predicted_s,
        )
        for dense, point in _with_dense(points)
        if not point.seen
    )


def break_even_of(points: Sequence[Point]) -> tuple[BreakEvenRate, ...]:
    """Return the rates at which measured times of a reducer and dense cross, of settings that differ in rate alone."""
    families: dict[tuple[object, ...], list[tuple[Point, Point]]] = {}
    for dense, point in _with_dense(points):
        if not isinf(point.rate_Bps):
            family = (point.kind, point.workers, point.nodes, point.what, point.trace, point.compute_s)
            families.setdefault(family, []).append((dense, point))
    found = []
    for pairs in families.values():
        pairs.sort(key=lambda pair: pair[1].rate_Bps)
        rates = [point.rate_Bps for _, point in pairs]
        measured = _crossing(rates, [log(dense.measured_s / point.measured_s) for dense, point in pairs])
        predicted = _crossing(rates, [log(dense.predicted_s / point.predicted_s) for dense, point in pairs])
        if measured is not None:
            first = pairs[0][1]
            of = (first.kind, first.workers, first.what, first.trace, first.payload_bytes)
            found.append(BreakEvenRate(*of, *measured, None if predicted is None else predicted[2]))
    return tuple(found)


def _with_dense(points: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    """Yield each reducer's point after that of dense on the same setting, where there is one."""
    dense = {_place(point): point for point in points if point.what == DENSE}
    for point in points:
        if point.what != DENSE and _place(point) in dense:
            yield dense[_place(point)], point


def _crossing(rates: Sequence[float], gains: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the first two rates between which gains turn to losses, and where a straight line between them is 0."""
    for (low, gain), (high, loss) in pairwise(zip(rates, gains, strict=True)):
        if gain > 0 >= loss:
            share = gain / (gain - loss)
            return low, high, exp(log(low) + share * (log(high) - log(low)))
    return None


def _place(point: Point) -> tuple[object, ...]:
    return point.kind, point.setting, point.trace, point.compute_s
