"""Conformance kit for gradient reducers: what every one must do, whatever it compresses.

A plug-in's test is one line: ``check_reducer(MyReducer)``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from s2sim.errors import S2SimError, S2SimWarning
from s2sim.gradients.gradient import Gradient, to_dense
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.rank import Contribution, Pending, Program, Rank, Reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.script import payload_bytes
from s2sim.testing.collectives import require
from s2sim.testing.reducer_properties import (
    check_accuracy,
    check_bound,
    check_determinism,
    check_nothing_lost,
    check_restore,
    check_results,
    check_sent,
    check_traffic,
    edge_gradients,
    example_gradients,
    small_gradient,
)

# Further apart than rounding may take them, where values have so few digits.
_NOT_EXACT = "subnormal values"
_MAY_OVERFLOW = "huge values"


def ranks_taken(reducer: Reducer, counts: Iterable[int]) -> list[int]:
    """Check one step with each number of ranks; return those that are not refused in one line that names them."""
    taken = []
    for ranks in counts:
        gradients, where = example_gradients(ranks), f"with {ranks} rank{'s' * (ranks > 1)}"
        try:
            instances = make_instances(reducer, ranks)
            results, recording = run_group(instances, gradients)
        except S2SimError as error:
            # What hangs names ranks by their place, which is below their number.
            clear = "\n" not in str(error) and re.search(rf"\b{ranks}\b", str(error)) is not None
            require(clear, f"fails {where}, and a refusal names their number: {error}")
            continue
        check_results(results, gradients, where, agrees=reducer.traits.agrees)
        check_accuracy(reducer, results, gradients, where)
        check_traffic(recording, ranks)
        check_bound(instances[0], gradients[0])
        taken.append(ranks)
    require(taken, f"refuses {', '.join(map(str, counts))} ranks, all that were tried")
    return taken


def check_edges(reducer: Reducer, ranks: int) -> None:
    """Check gradients that are hard to take: what cannot be summed in float32 may be refused, all else goes."""
    for what, gradients in edge_gradients(ranks).items():
        try:
            results, _ = run_group(make_instances(reducer, ranks), gradients)
        except S2SimError as error:
            require(what == _MAY_OVERFLOW, f"refuses {what}: {error}")
            continue
        check_results(results, gradients, f"of {what}", agrees=reducer.traits.agrees)
        if what != _NOT_EXACT:
            check_accuracy(reducer, results, gradients, f"of {what}")


def check_zero(reducer: Reducer, ranks: int) -> None:
    """Check that zeros give zeros, unless signs are all there is, and no layers none."""
    if reducer.traits.estimates != "sign":
        results, _ = run_group(make_instances(reducer, ranks), example_gradients(ranks, zero=True))
        for name, layer in results[0].mean:
            require(not to_dense(layer).any(), f"zero gradients do not give zero in {name!r}")
    results, _ = run_group(make_instances(reducer, ranks), [Gradient((), ())] * ranks)
    require(results[0].mean.layers == (), "a gradient without layers does not give one without layers")


def check_not_finite(reducer: Reducer, ranks: int) -> None:
    """Check that NaN and infinities are refused."""
    for wrong in (np.nan, np.inf):
        gradients = [np.ones(4, np.float32) for _ in range(ranks)]
        gradients[-1][2] = wrong
        try:
            reduce_once(reducer, gradients)
        except S2SimError:
            continue
        require(False, f"takes a gradient with {wrong}")


def check_lengths(reducer: Reducer, ranks: int) -> None:
    """Check that each rank's script has as many bytes as the arrays that it posts."""
    watched = [MeasuredReducer(instance) for instance in make_instances(reducer, ranks)]
    _, recording = run_group(watched, example_gradients(ranks))
    for rank, (each, recorded) in enumerate(zip(watched, payload_bytes(recording).tolist(), strict=True)):
        require(each.posted == recorded, f"rank {rank} posts {each.posted} bytes, and its script has {recorded}")


@dataclass(slots=True)
class MeasuredReducer(Reducer):
    """A reducer whose arrays are measured as it posts them."""

    inner: Reducer
    posted: int = 0

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Reduce as it does."""
        return (yield from self.inner.reduce(cast("Rank", _CountingRank(rank, self)), gradient))


class _CountingRank:
    def __init__(self, rank: Rank, watched: MeasuredReducer) -> None:
        self._rank, self._watched = rank, watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def subgroup(self, ranks: Iterable[int]) -> _CountingRank:
        return _CountingRank(self._rank.subgroup(ranks), self._watched)

    def all_reduce(self, payload: Contribution, *more: Any, **how: Any) -> Pending:
        return self._counted([payload], self._rank.all_reduce(payload, *more, **how))

    def reduce(self, payload: Contribution, *more: Any, **how: Any) -> Pending:
        return self._counted([payload], self._rank.reduce(payload, *more, **how))

    def all_gather(self, payload: Contribution, **how: Any) -> Pending:
        return self._counted([payload], self._rank.all_gather(payload, **how))

    def reduce_scatter(self, payloads: Sequence[Contribution], *more: Any, **how: Any) -> Pending:
        return self._counted(payloads, self._rank.reduce_scatter(payloads, *more, **how))

    def all_to_all(self, payloads: Sequence[Contribution], **how: Any) -> Pending:
        return self._counted(payloads, self._rank.all_to_all(payloads, **how))

    def exchange(self, payloads: Mapping[int, Contribution], **how: Any) -> Pending:
        return self._counted(payloads.values(), self._rank.exchange(payloads, **how))

    def broadcast(self, payload: Contribution | None, *, root: int, **how: Any) -> Pending:
        own = [payload] if payload is not None and self._rank.index == root else []
        return self._counted(own, self._rank.broadcast(payload, root=root, **how))

    def _counted(self, payloads: Iterable[Contribution], posted: Pending) -> Pending:
        self._watched.posted += sum(map(_bytes_of, payloads))
        return posted


def _bytes_of(payload: Contribution) -> int:
    return sum(map(_bytes_of, payload)) if isinstance(payload, tuple) else payload.nbytes


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


__all__ = ["FEW_RANK_COUNTS", "RANK_COUNTS", "check_reducer", "example_gradients"]

RANK_COUNTS = (1, 2, 3, 7, 8, 16, 64)
"""One rank, a pair, odd counts, powers of two, and more ranks than the smallest layers have elements."""

FEW_RANK_COUNTS = (1, 2, 5)
"""Those of a check that is not exhaustive."""

_SEEDS, _FEW_SEEDS = 200, 40


def check_reducer(make: Callable[[], Reducer], *, exhaustive: bool = True) -> None:
    """Check that a reducer, which ``make`` returns anew, does what every reducer must; the first law broken is named.

    With any number of ranks but those that it refuses in one line: results have the gradient's layers and are finite,
    all ranks end alike unless it says ``agrees=False``, layers that are not compressed are exact, as are all of one
    that says ``lossless``, all that is sent is received, and it is as long as what is posted. Zeros, no layers, single
    elements, equal magnitudes, subnormal and huge values go; NaN and infinities are refused. The same seed gives the
    same bits. What ranks have sent adds up to the mean unless it says ``adds_up=False``, and with feedback nothing gets
    lost. Saved and restored in mid-course it goes on with the same bits. One that is lossy and needs no feedback is
    unbiased; one that promises a `contraction` keeps it.

    Parameters
    ----------
    make : callable
        Returns the reducer, for example its class.
    exhaustive : bool
        Try all of `RANK_COUNTS` and many seeds, which takes a second; else `FEW_RANK_COUNTS` in a tenth of that.

    Raises
    ------
    AssertionError
        With what is wrong.
    """
    seeds = _SEEDS if exhaustive else _FEW_SEEDS
    with warnings.catch_warnings():
        # NumPy's tell of values that were not thought of.
        warnings.simplefilter("error", RuntimeWarning)
        # That nothing is compressed is right where there is nothing to compress.
        warnings.simplefilter("ignore", S2SimWarning)
        reducer = make()
        taken = ranks_taken(reducer, RANK_COUNTS if exhaustive else FEW_RANK_COUNTS)
        ranks = max((count for count in taken if count <= 3), default=min(taken))
        check_edges(reducer, ranks)
        check_zero(reducer, ranks)
        check_not_finite(reducer, ranks)
        check_lengths(reducer, ranks)
        check_determinism(reducer, ranks)
        if 1 in taken:
            check_sent(reducer)
        check_nothing_lost(reducer, ranks)
        check_restore(reducer, ranks)
        if 2 in taken:
            check_contraction(reducer, seeds)
            if is_unbiased(reducer):
                check_unbiased(reducer, seeds)
