"""What a reducer does from step to step: the same again under the same seed, and nothing gets lost."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.gradient import Gradient, to_dense
from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.reducers.wrappers.compose import with_feedback
from s2sim.testing.reducer_laws.examples import example_gradients
from s2sim.testing.reducer_laws.outcome import LOSSLESS_ERROR, equal
from s2sim.testing.require import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from s2sim.reducers.rank import Reduced, Reducer

# What is rounded before it is summed, and after: an eighth of a per cent in bfloat16, of values that partly cancel.
_ROUNDED = 1e-2
_STEPS = 3


def check_determinism(reducer: Reducer, ranks: int) -> None:
    """Check that the same steps with the same seed give the same bits and scripts on fresh instances."""
    runs = []
    for _ in range(2):
        instances = make_instances(reducer, ranks)
        runs.append(
            [run_group(instances, example_gradients(ranks, seed=step), seed=5, step=step) for step in range(_STEPS)]
        )
    for step, ((results, recording), (again, recording_again)) in enumerate(zip(*runs, strict=True)):
        same = all(equal(one.mean, other.mean) for one, other in zip(results, again, strict=True))
        require(same, f"step {step} gives other values when it is run again")
        require(recording == recording_again, f"step {step} gives another script when it is run again")


def check_sent(reducer: Reducer) -> None:
    """Check that on a single rank the mean is what that rank sent, in every step: there is nothing else in it."""
    instances = make_instances(reducer, 1)
    for step in range(_STEPS):
        (result,), _ = run_group(instances, example_gradients(1, seed=step), step=step)
        found, sent = _added([result.mean]), _added([result.sent()])
        _require_near(found, sent, sent, LOSSLESS_ERROR, f"one rank's sent of {{}} is not the mean in step {step}")


def check_nothing_lost(reducer: Reducer, ranks: int) -> None:
    """Check that what ranks have sent is what arrives, and that feedback keeps the rest.

    Over all ranks, sent adds up to so many times the mean; a reducer for which that cannot be says ``adds_up=False``.
    On each, sent + residual is its gradient + the residual of the step before, or without that as in EF21.
    """
    traits = reducer.traits
    instances = make_instances(with_feedback(reducer), ranks)
    for step in range(_STEPS):
        gradients = example_gradients(ranks, seed=step)
        before = [instance.held_back() for instance in instances]
        results, _ = run_group(instances, gradients, step=step)
        if traits.adds_up and traits.agrees and traits.estimates == "mean":
            _check_sum(results, step, _ROUNDED if traits.rounds_only else 10 * LOSSLESS_ERROR)
        for instance, gradient, old, result in zip(instances, gradients, before, results, strict=True):
            new = instance.held_back()
            conserves = instance.traits.conserves
            if new is not None and conserves != "nothing":
                given = _added([gradient, old] if old is not None and conserves == "sum" else [gradient])
                kept = _added([result.sent(), new])
                what = "the gradient + the residual before" if conserves == "sum" else "the gradient"
                text = f"sent + residual is not {what}, in {{}} in step {step}"
                _require_near(kept, given, _added([gradient, new]), 10 * LOSSLESS_ERROR, text)


def _check_sum(results: Sequence[Reduced], step: int, share: float) -> None:
    sent = [result.sent() for result in results]
    arrived = _added(repeat(results[0].mean, len(results)))
    text = f"what ranks have sent of {{}} is not so many times the mean in step {step}"
    sizes = _added([gradient.map(np.abs) for gradient in sent])
    _require_near(arrived, _added(sent), sizes, share, f"{text}: mend sent, or say adds_up=False")


def _added(gradients: Iterable[Gradient]) -> dict[str, NDArray[np.float64]]:
    """Return the sum of some gradients by layer, float64."""
    first, *others = gradients
    total = {name: to_dense(layer).astype(np.float64) for name, layer in first}
    for gradient in others:
        for name, layer in gradient:
            total[name] = total[name] + to_dense(layer)
    return total


def _require_near(
    found: dict[str, NDArray[np.float64]],
    wanted: dict[str, NDArray[np.float64]],
    sizes: dict[str, NDArray[np.float64]],
    share: float,
    text: str,
) -> None:
    """Require that no layer is off by more than a share of the largest of ``sizes``, of whatever layer.

    What cancels in one may have been coded together with all others.
    """
    scale = max((float(np.abs(values).max(initial=0.0)) for values in sizes.values()), default=0.0)
    for name, values in found.items():
        gap = float(np.abs(values - wanted[name]).max(initial=0.0))
        require(gap <= share * scale, text.format(repr(name)))
