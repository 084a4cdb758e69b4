"""Theorems on the error of one element, to be shown beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from s2sim.codecs.sketch_error import rms_relative_error, tail_probability


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """A bound on how far an element of the aggregate is from the exact mean.

    Attributes
    ----------
    element : float
        The bound on the compressed layers' elements, float32's rounding of the largest of them aside.
    relative : bool
        Whether ``element`` is a share of the L2 norm of these layers' exact mean, or has the gradients' own unit.
    share : float
        Share of the elements, in expectation, that the bound holds for at least; 1 if it is certain.
    relative_l2 : float or None
        Relative L2 error that a law predicts of all of them, as RMS over hash seeds, where one is known.
    source : str
        Whose theorem it is.
    """

    element: float
    relative: bool
    share: float
    relative_l2: float | None
    source: str


def count_sketch_bound(rows: int, columns: int, keys: int) -> ErrorBound:
    """Return what is known of a count sketch from which ``keys`` keys are read.

    With c = 3/e² columns, an estimate of one row is off by more than e times the L2 norm with probability at most 1/3
    (Charikar, Chen and Farach-Colton, ICALP 2002, lemma 4 in the form that codes use). The median of several rows is
    off by more only if half of them are; rows are taken to be independent, as those of ideal hash functions.

    >>> bound = count_sketch_bound(rows=3, columns=1200, keys=2400)
    >>> bound.element, round(bound.share, 3), bound.relative_l2
    (0.05, 0.741, None)
    """
    element = sqrt(3 / columns)
    return ErrorBound(
        element=element,
        relative=True,
        share=1 - tail_probability(rows, columns, element),
        relative_l2=rms_relative_error(keys, columns) if rows == 1 else None,
        source="Charikar, Chen and Farach-Colton, ICALP 2002; for one row the variance of its estimates",
    )
