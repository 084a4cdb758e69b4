"""A training resolved: what is trained, where, and what only its data tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from s2sim.bridge.task import reproducible_torch
from s2sim.bridge.training.operations import operations, tensors_of
from s2sim.study.convergence.compute_time import compute_time

if TYPE_CHECKING:
    from pathlib import Path

    from s2sim.bridge.task import Model, Task
    from s2sim.bridge.training.fits import Fitting
    from s2sim.study.convergence.compute_time import ComputeTime
    from s2sim.study.convergence.spec import TrainSpec
    from s2sim.study.scenario.cluster import Scenario
    from s2sim.study.scenario.machines import Machines
    from s2sim.topology.files.hardware import Gpu

_OF_ONE = (
    *("topology", "overrides", "placement", "faults", "model", "workers", "text", "evaluate_every"),
    *("collective", "library", "gpu", "compute", "profile"),
)
"""Fields of a spec on which the training of one reducer with one seed depends."""


@dataclass(slots=True)
class Wanted:
    """A training with everything that its spec names resolved.

    ``facts`` is what only the data tell, once the first seed has been prepared.
    """

    spec: TrainSpec
    settings: Model
    fittings: tuple[Fitting, ...]
    where: Scenario
    machines: Machines
    out: Path | None
    facts: Facts | None = None

    def key(self, fitting: Fitting, seed: int) -> dict[str, Any]:
        """Return what has to be the same for a training to be gone on with."""
        spec = self.spec
        same = {name: getattr(spec, name) for name in _OF_ONE}
        return same | {
            "reducer": fitting.option_string,
            "learning_rate": fitting.learning_rate,
            "seed": seed,
            "root": spec.seed,
        }


@dataclass(frozen=True, slots=True)
class Facts:
    """What the data tell of a model: what it is, what accuracy is the share of, whose data, and what it computes."""

    model: str
    score: str
    data: str
    parameters: int
    compute: ComputeTime


def facts_of(task: Task, spec: TrainSpec, gpu: Gpu) -> Facts:
    """Return what a task tells."""
    with reproducible_torch():
        counted = operations(task)
    return Facts(
        task.model,
        task.score,
        task.origin.data,
        sum(each.numel() for each in task.module.parameters()),
        compute_time(spec, gpu, counted, tensors_of(task)),
    )
