"""Fits constants to measured points by what their predictions are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats, Mask
    from s2sim.study.fidelity.told import TermModel

# Errors above it count by their size, not by their square: a mechanism that is missing must not bend constants.
_ROBUST = 0.05
_MOST_STEPS = 40
_FURTHEST = 2.5


@dataclass(frozen=True, slots=True)
class FitRules:
    """What a fit holds to.

    Attributes
    ----------
    prior, highest : float64 arrays, shape (n,)
        What constants are pulled to, and where they end, as logarithms of how many times as large they are as now.
    pull : float64 array, shape (n,)
        How strongly each is pulled.
    """

    prior: Floats
    highest: Floats
    pull: Floats


def weights_of(model: TermModel) -> Floats:
    """Return the weight of each point: a source has one voice, shared by its curves, and they by their sizes.

    Large and small sizes of a curve weigh the same. Several curves of a source have the square root of their number:
    they tell more than one would, and less than as many sources.
    """
    halves: dict[tuple[str, bool], int] = {}
    curves: dict[str, set[str]] = {}
    for point in model.points:
        half = point.curve, point.large
        halves[half] = halves.get(half, 0) + 1
        curves.setdefault(point.source, set()).add(point.curve)
    return np.array(
        [0.5 / halves[point.curve, point.large] / np.sqrt(len(curves[point.source])) for point in model.points]
    )


def fit(model: TermModel, rules: FitRules, weights: Floats) -> Floats:
    """Return the logarithms of how many times as large as now the constants are that fit best.

    Least squares of ln(predicted/measured) with a pull to the prior; points of no weight are left out.
    """
    from scipy.optimize import least_squares

    chosen = np.flatnonzero(weights)
    root = np.sqrt(weights[chosen])

    def residuals(logs: Floats) -> Floats:
        errors = model.errors(logs)[chosen]
        return np.concatenate([root * errors * _tamed(errors)[0], rules.pull * (logs - rules.prior)])

    def slopes(logs: Floats) -> Floats:
        tamed, bent = _tamed(model.errors(logs)[chosen])
        of_points = (root / (bent * tamed))[:, None] * model.slopes(logs)[chosen]
        return np.concatenate([of_points, np.diag(rules.pull)])

    lowest = np.full(len(rules.prior), -_FURTHEST)
    highest = np.maximum(np.minimum(rules.highest, _FURTHEST), 1e-9)
    start = np.clip(np.zeros(len(lowest)), lowest, highest - 1e-12)
    found = least_squares(residuals, start, slopes, bounds=(lowest, highest), max_nfev=_MOST_STEPS, x_scale=1.0)
    logs: Floats = found.x
    return logs


def _tamed(errors: Floats) -> tuple[Floats, Floats]:
    """Return what errors are multiplied by so that their squares grow as pseudo-Huber, and sqrt(1 + (e/s)^2)."""
    bent = np.sqrt(1 + (errors / _ROBUST) ** 2)
    return np.sqrt(2 / (1 + bent)), bent


def left_out(model: TermModel, rules: FitRules, weights: Floats, sources: Sequence[str]) -> dict[str, Floats]:
    """Return for each source the constants that fit best without it."""
    return {source: fit(model, rules, np.where(model.of_source(source), 0.0, weights)) for source in sources}


def drawn(model: TermModel, rules: FitRules, weights: Floats, draws: int, seed: int = 0) -> Floats:
    """Return constants fitted to sources drawn with replacement, float64 of shape (draws, n)."""
    random = np.random.default_rng(seed)
    sources = model.sources
    of: list[Mask] = [model.of_source(source) for source in sources]
    found = []
    for _ in range(draws):
        counts = np.bincount(random.integers(len(sources), size=len(sources)), minlength=len(sources))
        voices = np.select(of, counts.astype(np.float64).tolist())
        found.append(fit(model, rules, weights * voices))
    return np.array(found)
