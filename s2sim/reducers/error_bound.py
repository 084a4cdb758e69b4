"""Theorems on the error of one element, to be shown beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from s2sim.codecs.count_sketch import rms_relative_error, tail_probability


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """A bound on how far an element of the aggregate is from the exact mean."""

    # The bound on the elements of each compressed layer that has any, float32's rounding of the largest aside
    element: tuple[float, ...]
    # Whether ``element`` is a share of the L2 norm of that layer's exact mean, or has the gradients' own unit
    relative: bool
    share: float  # Share of the elements, in expectation, that the bound holds for at least; 1 if it is certain
    # Relative L2 error that a law predicts of each layer, as RMS over hash seeds, where one is known
    relative_l2: tuple[float, ...] | None
    source: str  # Whose theorem it is


def count_sketch_bound(rows: int, columns: Sequence[int], keys: Iterable[float]) -> ErrorBound:
    """Return what is known of the count sketches of several layers, from which so many ``keys`` of each are read.

    With c = 3/e² columns, an estimate of one row is off by more than e times the L2 norm with probability at most 1/3
    (Charikar, Chen and Farach-Colton, ICALP 2002, lemma 4 in the form that codes use). The median of several rows is
    off by more only if half of them are; rows are taken to be independent, as those of ideal hash functions.

    >>> bound = count_sketch_bound(3, columns=[1200, 300], keys=[2400, 90])
    >>> bound.element, round(bound.share, 3), bound.relative_l2
    ((0.05, 0.1), 0.741, None)
    """
    element = tuple(sqrt(3 / count) for count in columns)
    laws = tuple(rms_relative_error(*pair) for pair in zip(keys, columns, strict=True))
    return ErrorBound(
        element=element,
        relative=True,
        share=1 - tail_probability(rows, columns[0], element[0]),
        relative_l2=laws if rows == 1 else None,
        source="Charikar, Chen and Farach-Colton, ICALP 2002; for one row the variance of its estimates",
    )
