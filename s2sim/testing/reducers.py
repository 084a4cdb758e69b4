"""Conformance kit for gradient reducers; a plug-in's test is one line: ``check_reducer(MyReducer)``."""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from s2sim.errors import S2SimError, S2SimWarning, warn
from s2sim.gradients.gradient import Gradient, to_dense
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.rank import Program, Rank, Reducer
from s2sim.reducers.run import reduce_once, run_reducer
from s2sim.reducers.script import Work, payload_bytes
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.testing import reducer_properties
from s2sim.testing.collectives import require
from s2sim.testing.reducer_properties import example_gradients

_RANKS, _ROUNDING = 2, 1e-5
# Allowed standard errors of a mean over seeds; a normal one exceeds them once in ten million times.
_FAR = 5.5


def ranks_taken(reducer: Reducer, counts: Iterable[int]) -> list[int]:
    """Check one step with each number of ranks; return the numbers that are not refused in a line that names them."""
    taken = []
    for ranks in counts:
        gradients, where = example_gradients(ranks), f"with {ranks} rank{'s' * (ranks > 1)}"
        try:
            instances = make_instances(reducer, ranks)
            results, recording = run_group(instances, gradients)
        except S2SimError as error:
            # Errors of programs that hang name ranks by index, which is below their number.
            clear = "\n" not in str(error) and re.search(rf"\b{ranks}\b", str(error)) is not None
            require(clear, f"fails {where}, and a refusal names their number: {error}")
            continue
        reducer_properties.check_results(results, gradients, where, agrees=reducer.traits.agrees)
        reducer_properties.check_accuracy(reducer, results, gradients, where)
        reducer_properties.check_traffic(recording, ranks)
        reducer_properties.check_bound(instances[0], gradients[0])
        taken.append(ranks)
    require(taken, f"refuses {', '.join(map(str, counts))} ranks, all that were tried")
    return taken


def check_edges(reducer: Reducer, ranks: int) -> None:
    """Check difficult gradients: only those that cannot be summed in float32 may be refused."""
    for what, gradients in reducer_properties.edge_gradients(ranks).items():
        try:
            results, _ = run_group(make_instances(reducer, ranks), gradients)
        except S2SimError as error:
            require(what == "huge values", f"refuses {what}: {error}")
            continue
        reducer_properties.check_results(results, gradients, f"of {what}", agrees=reducer.traits.agrees)
        # With so few digits, values differ by more than rounding.
        if what != "subnormal values":
            reducer_properties.check_accuracy(reducer, results, gradients, f"of {what}")


def check_zero(reducer: Reducer, ranks: int) -> None:
    """Check that zeros give zeros, except for sign reducers, and that no layers give no layers."""
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
        with suppress(S2SimError):
            reduce_once(reducer, gradients)
            raise AssertionError(f"takes a gradient with {wrong}")


def check_lengths(reducer: Reducer, ranks: int) -> None:
    """Check that each rank's script has the bytes of the arrays that it posts."""
    measured = [MeasuredReducer(instance) for instance in make_instances(reducer, ranks)]
    _, recording = run_group(measured, example_gradients(ranks))
    for rank, (own, recorded) in enumerate(zip(measured, payload_bytes(recording).tolist(), strict=True)):
        require(own.posted == recorded, f"rank {rank} posts {own.posted} bytes, and its script has {recorded}")


def is_costed(reducer: Reducer, ranks: int) -> bool:
    """Return whether a reducer charges GPU work, or has none: it compresses nothing, or rounds to another type."""
    gradients = example_gradients(ranks)
    if reducer.traits.rounds_only or not reducer.compresses(gradients[0]):
        return True
    scripts = run_reducer(reducer, gradients).recording.scripts
    return any(isinstance(step, Work) for script in scripts for step in script)


@dataclass(slots=True)
class MeasuredReducer(Reducer):
    """A reducer that counts the bytes that it posts."""

    inner: Reducer
    posted: int = 0

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Reduce with a rank that counts."""
        return (yield from self.inner.reduce(cast("Rank", _CountingRank(rank, self)), gradient))


class _CountingRank:
    def __init__(self, rank: Rank, measured: MeasuredReducer) -> None:
        self._rank, self._measured = rank, measured

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._rank, name)
        if name not in ("all_reduce", "reduce", "all_gather", "reduce_scatter", "all_to_all", "exchange", "broadcast"):
            return method

        def post(*arguments: Any, **options: Any) -> Any:
            pending = method(*arguments, **options)
            payload = arguments[0] if arguments else options.get("payload", options.get("payloads"))
            if name != "broadcast" or options["root"] == self._rank.index:
                self._measured.posted += _bytes_of(payload)
            return pending

        return post

    def subgroup(self, ranks: Iterable[int]) -> "_CountingRank":
        return _CountingRank(self._rank.subgroup(ranks), self._measured)


def _bytes_of(payload: Any) -> int:
    if isinstance(payload, Mapping):
        return sum(map(_bytes_of, payload.values()))
    return sum(map(_bytes_of, payload)) if isinstance(payload, Sequence) else int(payload.nbytes)


def is_unbiased(reducer: Reducer) -> bool:
    """Return whether a reducer promises the mean in expectation: it is randomly lossy and needs no feedback."""
    traits = reducer.traits
    exact = traits.lossless or traits.rounds_only
    return not (traits.assumes or exact) and traits.feedback == "no" and traits.estimates == "mean" and traits.agrees


def check_unbiased(reducer: Reducer, seeds: int) -> None:
    """Check that the mean over seeds is the exact one, within its standard errors.

    Compared are projections on the mean itself, on its signs and on random directions: few seeds do not show rare large
    values of single elements.
    """
    gradients = [reducer_properties.small_gradient(rank, heavy=rank > 0) for rank in range(_RANKS)]
    exact = np.mean([_flat(gradient) for gradient in gradients], axis=0)
    directions = np.stack([exact, np.sign(exact), *np.random.default_rng(0).standard_normal((6, len(exact)))])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    means = [run_group(make_instances(reducer, _RANKS), gradients, seed=seed)[0][0].mean for seed in range(seeds)]
    projections = np.stack(list(map(_flat, means))) @ directions.T
    off = np.abs(projections.mean(axis=0) - directions @ exact)
    allowed = _FAR * projections.std(axis=0, ddof=1) / sqrt(seeds) + _ROUNDING * np.linalg.norm(exact)
    worst = int((off / allowed).argmax())
    require(
        off[worst] <= allowed[worst],
        f"needs no feedback, so it has to be unbiased, but over {seeds} seeds the mean is off by {off[worst]:.3g}, "
        f"{_FAR * off[worst] / allowed[worst]:.1f} standard errors",
    )


def check_contraction(reducer: Reducer, seeds: int) -> None:
    """Check that ||x - sent||² is at most 1 - delta of ||x||², in expectation over seeds, if a reducer promises it."""
    for heavy in (False, True):
        gradient = reducer_properties.small_gradient(3, heavy=heavy)
        if (delta := reducer.contraction(gradient)) is None:
            continue
        require(0 < delta <= 1, f"contraction() gives {delta}, not above 0 and at most 1")
        given = _flat(gradient)
        lost: list[NDArray[np.float64]] = []
        for seed in range(seeds):
            results, _ = run_group(make_instances(reducer, _RANKS), [gradient] * _RANKS, seed=seed)
            lost.append(given - _flat(results[0].sent()))
            if seed == 1 and np.array_equal(lost[0], lost[1]):
                break  # Not random
        shares = np.square(lost).sum(axis=1) / np.square(given).sum()
        allowed = 1 - delta + _FAR * shares.std(ddof=1) / sqrt(len(lost)) + _ROUNDING
        require(
            shares.mean() <= allowed,
            f"loses {shares.mean():.3f} of a gradient's square and promises at most {1 - delta:.3f}",
        )


def _flat(gradient: Gradient) -> NDArray[np.float64]:
    return flat_vector(gradient).astype(np.float64)


__all__ = ["FEW_RANK_COUNTS", "RANK_COUNTS", "check_reducer", "example_gradients"]

RANK_COUNTS = (1, 2, 3, 7, 8, 16, 64)
"""One rank, a pair, odd counts, powers of two, and more ranks than the smallest layers have elements."""

FEW_RANK_COUNTS = (1, 2, 3)
"""Rank counts of a check that is not exhaustive."""


def check_reducer(make: Callable[[], Reducer], *, exhaustive: bool = True) -> None:
    """Check that the reducers of ``make``, for example a class, obey all laws; `AssertionError` names the first broken.

    With any number of ranks that it does not refuse in one line: results have the gradient's layers and are finite, all
    ranks get the same unless ``agrees=False``, uncompressed layers are exact, as are all with ``lossless``, all that is
    sent is received, and scripts have the posted bytes. Zeros, no layers, single elements, equal magnitudes, subnormal
    and huge values work; NaN and infinities are refused. The same seed gives the same bits. Sent contributions add up
    to the mean unless ``adds_up=False``, and with feedback nothing is lost. A restored state continues with the same
    bits. With ``size_only`` scripts are those of one rank, run alone. A lossy reducer that needs no feedback is
    unbiased; a promised `contraction` holds. `S2SimWarning` for one that compresses layers and charges no GPU work.

    An exhaustive check tries all of `RANK_COUNTS` and many seeds in a second; `FEW_RANK_COUNTS` take a tenth of that.
    """
    seeds = 200 if exhaustive else 40
    with warnings.catch_warnings():
        # NumPy warns of unexpected values.
        warnings.simplefilter("error", RuntimeWarning)
        # Some gradients have nothing to compress.
        warnings.simplefilter("ignore", S2SimWarning)
        reducer = make()
        taken = ranks_taken(reducer, RANK_COUNTS if exhaustive else FEW_RANK_COUNTS)
        ranks = max((count for count in taken if count <= 3), default=min(taken))
        check_edges(reducer, ranks)
        check_zero(reducer, ranks)
        check_not_finite(reducer, ranks)
        check_lengths(reducer, ranks)
        reducer_properties.check_determinism(reducer, ranks)
        if 1 in taken:
            reducer_properties.check_sent(reducer)
        reducer_properties.check_nothing_lost(reducer, ranks)
        reducer_properties.check_restore(reducer, ranks)
        reducer_properties.check_symmetric(reducer, ranks)
        if 2 in taken:
            check_contraction(reducer, seeds)
            if is_unbiased(reducer):
                check_unbiased(reducer, seeds)
        costed = is_costed(reducer, ranks)
    if not costed:
        warn(
            f"{reducer.traits.name} compresses layers and charges no GPU work, so that encoding takes no time: call "
            "rank.work with what s2sim.reducers.gpu_cost counts"
        )
