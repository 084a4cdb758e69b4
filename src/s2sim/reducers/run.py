"""One reducer on one step's gradients, as a first step or a later one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from s2sim.errors import S2SimWarning
from s2sim.reducers.group.member import Progress, World
from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.reducers.rank import Reduced, Reducer
from s2sim.reducers.scripts.join import join

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank
    from s2sim.reducers.scripts.script import Recording


OtherSteps: TypeAlias = "Callable[[int], Sequence[Gradient]]"
"""Returns the gradients of a training step, one a rank, in turn where there are fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """One reducer's work on one step's gradients, or those of its period.

    These are the instances with what they carry on, the results of the last step, and the scripts.
    """

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
    reducer: Reducer, gradients: Sequence[Gradient], *, seed: int, others: OtherSteps | None = None
) -> list[Reducer]:
    """Return new instances, one a rank, that are ready for a step on these gradients.

    Those of a warm reducer have run another step, or one on the same gradients where there is none, of which only what
    it carries over is kept.
    """
    instances = make_instances(reducer, len(gradients))
    if reducer.traits.warm:
        with warnings.catch_warnings():
            # The step that counts warns of the same.
            warnings.simplefilter("ignore", S2SimWarning)
            run_group([_Learning(instance) for instance in instances], others(1) if others else gradients, seed=seed)
    return instances


def begin(reducer: Reducer, gradient: Gradient, ranks: int, *, seed: int = 0) -> None:
    """Let rank 0 of so many begin a reduction, until it waits: what there is to warn of gradients like this is said."""
    world = World(ranks)
    next(reducer.fresh().reduce(Progress(0).member(world.all, 0, seed), gradient), None)


def run_reducer(
    reducer: Reducer, gradients: Sequence[Gradient], *, seed: int = 0, others: OtherSteps | None = None
) -> Ran:
    """Run one reduction with new instances, see `start`, or all steps of a period once it has settled.

    These start with step 0 of the trace, whose gradients are at hand; they are the same in all steps where there are no
    others.
    """
    instances = start(reducer, gradients, seed=seed, others=others)
    recordings = []
    for place in range(reducer.period):
        here = others(place) if place and others else gradients
        results, recording = run_group(instances, here, seed=seed, step=reducer.settles_after + place)
        recordings.append(recording)
    return Ran(instances, results, join(recordings))
