"""What a reducer promises of its error, checked over seeds."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.gradient import to_dense
from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.testing.reducer_laws.examples import small_gradient
from s2sim.testing.require import require

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Reducer

_RANKS = 2
_ROUNDING = 1e-5
# Standard errors that a mean over seeds may be off: a normal one is by chance once in ten million times.
_FAR = 5.5
_DIRECTIONS = 6


def is_unbiased(reducer: Reducer) -> bool:
    """Return whether a reducer promises the mean in expectation: it is lossy by chance, and needs no feedback."""
    traits = reducer.traits
    exact = traits.lossless or traits.rounds_only
    return traits.feedback == "no" and not exact and traits.estimates == "mean" and traits.agrees


def check_unbiased(reducer: Reducer, seeds: int) -> None:
    """Check that the mean over seeds is the exact one, as far as so many seeds can tell.

    What is compared are projections on the mean itself, on its signs and on random directions: rare large values of
    single elements, which no few seeds show, are many together.
    """
    gradients = [small_gradient(rank, heavy=rank > 0) for rank in range(_RANKS)]
    exact = np.mean([_flat(gradient) for gradient in gradients], axis=0)
    random = np.random.default_rng(0).standard_normal((_DIRECTIONS, len(exact)))
    directions = np.stack([exact, np.sign(exact), *random])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    found = np.stack([_flat(_mean(reducer, gradients, seed)) for seed in range(seeds)]) @ directions.T
    off = np.abs(found.mean(axis=0) - directions @ exact)
    allowed = _FAR * found.std(axis=0, ddof=1) / sqrt(seeds) + _ROUNDING * np.linalg.norm(exact)
    worst = int((off / allowed).argmax())
    require(
        off[worst] <= allowed[worst],
        f"needs no feedback, so it has to be unbiased, but over {seeds} seeds the mean is off by {off[worst]:.3g}, "
        f"{_FAR * off[worst] / allowed[worst]:.1f} standard errors",
    )


def check_contraction(reducer: Reducer, seeds: int) -> None:
    """Check that ||x - sent||² is at most 1 - delta of ||x||², in expectation over seeds, if a reducer says so."""
    for heavy in (False, True):
        gradient = small_gradient(3, heavy=heavy)
        delta = reducer.contraction(gradient)
        if delta is None:
            continue
        require(0 < delta <= 1, f"contraction() gives {delta}, not above 0 and at most 1")
        given = _flat(gradient)
        lost = [given - _flat(_sent(reducer, gradient, seed)) for seed in range(2)]
        if not np.array_equal(lost[0], lost[1]):
            lost += [given - _flat(_sent(reducer, gradient, seed)) for seed in range(2, seeds)]
        shares = np.square(lost).sum(axis=1) / np.square(given).sum()
        allowed = 1 - delta + _FAR * shares.std(ddof=1) / sqrt(len(lost)) + _ROUNDING
        require(
            shares.mean() <= allowed,
            f"loses {shares.mean():.3f} of a gradient's square and promises at most {1 - delta:.3f}",
        )


def _mean(reducer: Reducer, gradients: list[Gradient], seed: int) -> Gradient:
    results, _ = run_group(make_instances(reducer, len(gradients)), gradients, seed=seed)
    return results[0].mean


def _sent(reducer: Reducer, gradient: Gradient, seed: int) -> Gradient:
    (result, *_), _ = run_group(make_instances(reducer, _RANKS), [gradient] * _RANKS, seed=seed)
    return result.sent()


def _flat(gradient: Gradient) -> NDArray[np.float64]:
    parts: Iterable[NDArray[np.float64]] = (to_dense(layer).reshape(-1).astype(np.float64) for layer in gradient.layers)
    return np.concatenate(list(parts))
