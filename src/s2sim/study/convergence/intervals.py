"""Means over seeds with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVEL = 0.95
"""How often an interval holds what it is of, if values over seeds are normally distributed."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over some seeds, and between which values that of all seeds lies; both None where there is one seed."""

    mean: float
    low: float | None
    high: float | None
    seeds: int


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return Student's interval of the mean; None of no values.

    >>> t_interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, low=-0.48413771175033027, high=4.48413771175033, seeds=3)
    """
    if not values:
        return None
    mean, count = fmean(values), len(values)
    if count == 1:
        return Interval(mean, None, None, 1)
    from scipy.stats import t

    half = float(t.ppf((1 + LEVEL) / 2, count - 1)) * stdev(values) / sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def ratio_interval(own: Sequence[float], base: Sequence[float]) -> Interval | None:
    """Return the mean ratio of pairs, one a seed, by Student's interval of its logarithm; None without pairs above 0.

    >>> ratio_interval([2.0, 2.0], [4.0, 4.0])
    Interval(mean=0.5, low=0.5, high=0.5, seeds=2)
    """
    pairs = list(zip(own, base, strict=True))
    if not pairs or min(map(min, pairs)) <= 0:
        return None
    found = t_interval([log(one / other) for one, other in pairs])
    assert found is not None
    low, high = (None if end is None else exp(end) for end in (found.low, found.high))
    return Interval(exp(found.mean), low, high, found.seeds)
