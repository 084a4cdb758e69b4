"""One reducer on one step's gradients, as a first step or a later one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.errors import S2SimWarning
from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.reducers.rank import Reduced, Reducer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank
    from s2sim.reducers.scripts.script import Recording


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """One reducer's work on one step's gradients: instances with what they carry on, results, and the scripts."""

    instances: list[Reducer]
    results: list[Reduced]
    recording: Recording


@dataclass(slots=True)
class _Learning(Reducer):
    """A reducer in a step of which nothing but what it carries over is wanted."""

    inner: Reducer

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Learn; the result is nobody's."""
        yield from self.inner.learn(rank, gradient)
        return Reduced(gradient, sent=lambda: gradient)


def start(
    reducer: Reducer, gradients: Sequence[Gradient], *, seed: int, earlier: Sequence[Gradient] | None = None
) -> list[Reducer]:
    """Return new instances, one a rank, that are ready for a step on these gradients.

    Those of a warm reducer have run a step on the gradients ``earlier``, or on the same ones where there are none, of
    which only what it carries over is kept.
    """
    instances = make_instances(reducer, len(gradients))
    if reducer.traits.warm:
        with warnings.catch_warnings():
            # The step that counts warns of the same.
            warnings.simplefilter("ignore", S2SimWarning)
            run_group([_Learning(instance) for instance in instances], earlier or gradients, seed=seed)
    return instances


def run_reducer(
    reducer: Reducer, gradients: Sequence[Gradient], *, seed: int = 0, earlier: Sequence[Gradient] | None = None
) -> Ran:
    """Run one reduction with new instances, see `start`."""
    instances = start(reducer, gradients, seed=seed, earlier=earlier)
    results, recording = run_group(instances, gradients, seed=seed)
    return Ran(instances, results, recording)
