"""One training: steps of ranks with a reducer's programs, and its state."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient
from s2sim.pytorch.model_updates import PerRankModels, SharedModel, TrainingSetup
from s2sim.pytorch.task import Evaluation, ModelSettings, Task, reproducible_torch
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.rank import Reducer
from s2sim.reducers.script import Recording


def operations(task: Task) -> int:
    """Return FLOPs (additions and multiplications) of matrix products in one rank's forward and backward."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    # Some versions warn of Intel's GPUs when oneDNN is set to anything.
    # FLOPs of recurrent layers by oneDNN are not counted.
    without_onednn = torch.backends.mkldnn.flags(enabled=False)
    with warnings.catch_warnings(action="ignore"), without_onednn, FlopCounterMode(display=False) as counter:
        torch.autograd.backward(task.loss(0, 0))
    task.module.zero_grad(set_to_none=True)
    return int(counter.get_total_flops())


DIVERGED = "the loss is no finite number any more"


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One step: the mean loss of all ranks' mini-batches before it, and what every rank did."""

    loss: float
    recording: Recording


class Trainer:
    """A model that W ranks train in one process, their gradients reduced by the programs of a reducer."""

    @reproducible_torch()
    def __init__(self, task: Task, settings: ModelSettings, fitting: TrainingSetup, *, workers: int, seed: int) -> None:
        self.steps = 0
        self._seed = seed
        self._workers = workers
        self._reducer = fitting.reducer
        models = PerRankModels if fitting.own_models else SharedModel
        self._models = models(task, settings, fitting, workers)
        self._instances: list[Reducer] = []

    @reproducible_torch()
    def step(self) -> TrainingStep:
        """Take a training step; `S2SimError` if the model has diverged, or the reducer fails."""
        gradients, losses = self._models.contributions(self.steps)
        if not np.isfinite(losses).all():
            raise S2SimError(DIVERGED)
        self._start(gradients)
        results, recording = run_group(self._instances, gradients, seed=self._seed, step=self.steps)
        self._models.take(self._instances, results)
        self.steps += 1
        return TrainingStep(float(np.mean(losses)), recording)

    @reproducible_torch()
    def evaluate(self) -> Evaluation:
        """Return the evaluation on held-out data."""
        return self._models.evaluate()

    def state(self) -> dict[str, Any]:
        """Return the state before the next step, as arrays and numbers in dicts and lists."""
        reducers = [each.state() for each in self._instances]
        return {"steps": self.steps, "models": self._models.state(), "reducers": reducers}

    @reproducible_torch()
    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state`; this training has taken no step."""
        if state["steps"]:
            # Reducers are fitted to the gradients of the first step.
            self._start(self._models.contributions(0)[0])
        for instance, kept in zip(self._instances, state["reducers"], strict=True):
            instance.restore(kept)
        self._models.restore(state["models"])
        self.steps = state["steps"]

    def _start(self, gradients: Sequence[Gradient]) -> None:
        if not self._instances:
            self._instances = make_instances(self._reducer.fitted(gradients, self._seed), self._workers)
