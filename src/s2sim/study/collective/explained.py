"""Which terms of simulated times explain how far these are from measured ones.

A term is given one scale for all rows, so that scaled terms come near the measured times. Scales are pulled towards 1:
what rows do not tell stays as it is simulated. Terms that go up and down together over all rows have one scale.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.terms.term import WIRE_LATENCY
from s2sim.study.collective.against_result import TermDifference, TermScale
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats, Ints
    from s2sim.collectives.terms.term import Term

# A row is measured within a twentieth, and a term may well be half as long again.
_ROW_ERROR, _TERM_ERROR = 0.05, 0.5
_PASSES = 10
# Cosine of two terms over rows, in shares of the rows' times, from which on they are told together.
_ALIKE = 0.995


def explain(
    terms: Sequence[Sequence[Term]], measured_s: Sequence[float]
) -> tuple[list[TermScale], list[tuple[TermDifference, ...]]]:
    """Return how long each term takes as measured, and what of each row's difference it stands for.

    Parameters
    ----------
    terms : sequence of sequences of Term
        Of each row.
    measured_s : sequence of float
        Time of each row in seconds, above zero.

    Returns
    -------
    list of TermScale, list of tuples of TermDifference
        In the order in which terms first come, and those of each row.
    """
    names = list(dict.fromkeys(_name(term) for row in terms for term in row if term.ps))
    place = {name: at for at, name in enumerate(names)}
    simulated_s = np.zeros((len(terms), len(names)))
    for row, found in enumerate(terms):
        for term in found:
            if term.ps:
                simulated_s[row, place[_name(term)]] += term.ps / PS_PER_S
    measured = np.array(measured_s)
    difference_s = simulated_s.sum(axis=1) - measured
    # Rows count by what they take, the slower of both, so that none outweighs the others.
    weight = 1 / np.maximum(measured, simulated_s.sum(axis=1))
    told_with = _told_with(simulated_s * weight[:, None])
    more = _scales(simulated_s * weight[:, None], -difference_s * weight, told_with) - 1
    stands_for_s = -more * simulated_s
    of_all = float(np.abs(difference_s * weight).sum())
    explains = np.abs(stands_for_s * weight[:, None]).sum(axis=0) / (of_all or 1.0)
    scales = [
        TermScale(*name, 1 + float(more[at]), int(told_with[at]), float(explains[at])) for name, at in place.items()
    ]
    rows = [
        tuple(
            TermDifference(*name, float(simulated_s[row, at]), float(stands_for_s[row, at]))
            for name, at in place.items()
            if simulated_s[row, at]
        )
        for row in range(len(terms))
    ]
    return scales, rows


def not_explained_s(difference_s: float, terms: Sequence[TermDifference]) -> float:
    """Return what of a row's difference no term stands for, in seconds."""
    return difference_s - fsum(term.difference_s for term in terms)


def _name(term: Term) -> tuple[str, str]:
    return (term.kind, "all links") if term.kind == WIRE_LATENCY else (term.kind, term.of)


def _told_with(columns: Floats) -> Ints:
    """Return for each term the first one that goes up and down with it over all rows, itself where there is none."""
    length = np.linalg.norm(columns, axis=0)
    alike = (columns.T @ columns) >= _ALIKE * np.outer(length, length)
    first = np.arange(columns.shape[1])
    for at in range(len(first)):
        leads = [other for other in range(at) if first[other] == other and alike[at, other]]
        first[at] = leads[0] if leads else at
    return first


def _scales(columns: Floats, missing: Floats, told_with: Ints) -> Floats:
    """Return the scale of each term, at least 0, by least squares with a pull towards 1.

    Rows that stay further off than they are measured count by how far, not by its square (P. J. Huber, "Robust
    estimation of a location parameter", 1964), so that one that something else disturbed does not decide.
    ``columns`` has each row's terms in shares of its time, ``missing`` what they lack of the measured time.
    """
    from scipy.optimize import lsq_linear

    leads, group = np.unique(told_with, return_inverse=True)
    if not len(leads):
        return np.ones(0)
    together = np.zeros((len(columns), len(leads)))
    np.add.at(together.T, group, columns.T)
    pull, no_change = np.eye(len(leads)) * (_ROW_ERROR / _TERM_ERROR), np.zeros(len(leads))
    counts, found = np.ones(len(columns)), no_change
    for _ in range(_PASSES):
        weighed = np.concatenate([together * counts[:, None], pull])
        target = np.concatenate([missing * counts, no_change])
        found = lsq_linear(weighed, target, bounds=(-1.0, np.inf)).x
        left = np.abs(missing - together @ found)
        counts = np.sqrt(np.minimum(1.0, _ROW_ERROR / np.maximum(left, _ROW_ERROR)))
    scales: Floats = 1 + found[group]
    return scales
