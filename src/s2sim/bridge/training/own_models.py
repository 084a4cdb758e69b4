"""A model for every rank: each steps by itself, and what comes of all steps moves the models that they agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from s2sim.bridge.training.arrays import (
    gradient_of,
    hand_over,
    optimizer_state,
    restore_optimizer,
    set_weights,
    weights_of,
)
from s2sim.bridge.training.common_model import backward, evaluated, optimizer_of, takes_rows
from s2sim.bridge.training.fits import evaluated_ranks, gathers
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.bridge.task import Evaluated, Model, Task
    from s2sim.bridge.training.fits import Fitting
    from s2sim.gradients.gradient import Layer
    from s2sim.reducers.rank import Reduced, Reducer
    from s2sim.reducers.wrappers.local_steps import LocalSteps

    Weights = dict[str, Any]


class OwnModels:
    """Ranks whose models differ, as in local SGD, gossip and federated averaging.

    What a rank hands to the reducer is how far its optimizer would move its weights, and what it ends with is how far
    they move (as in SBC, algorithm 1, where updates of weights travel whatever the optimizer). Between exchanges of
    local steps a rank goes on from where its own steps have led; an exchange takes it to the common model.
    Implements `s2sim.bridge.training.trainer.Models`.
    """

    def __init__(self, task: Task, settings: Model, fitting: Fitting, workers: int) -> None:
        self._task = task
        self._workers = workers
        self._parameters = dict(task.module.named_parameters())
        start = weights_of(self._parameters)
        self._weights: list[Weights] = [_copied(start) for _ in range(workers)]
        self._gathers = gathers(fitting.reducer)
        # What all that was exchanged has led to; where steps are gathered, a rank's own weights are ahead of it.
        self._agreed: list[Weights] = [_copied(start) for _ in range(workers)] if self._gathers else self._weights
        self._optimizers = [optimizer_of(settings, fitting, self._parameters) for _ in range(workers)]
        self._rate = fitting.learning_rate if takes_rows(settings, fitting) else None
        self._evaluated = evaluated_ranks(fitting.reducer, workers)
        self._updates: list[Gradient] = []

    def contributions(self, step: int) -> tuple[list[Gradient], list[float]]:
        """Return how far every rank's own step would take its weights, and the loss of its mini-batch there."""
        losses = []
        self._updates = []
        for rank in range(self._workers):
            set_weights(self._parameters, self._weights[rank])
            losses.append(backward(self._task, step, rank))
            self._updates.append(self._update(rank))
        return self._updates, losses

    def _update(self, rank: int) -> Gradient:
        gradient = gradient_of(self._parameters, self._task.sparse)
        if self._rate is not None:
            rate = np.float32(self._rate)
            return gradient.map(lambda values: values * rate)
        hand_over(gradient, self._parameters, rows=False)
        self._optimizers[rank].step()
        before = self._weights[rank]
        moved = {name: before[name] - each.detach().numpy() for name, each in self._parameters.items()}
        layers: list[Layer] = [
            as_row_sparse(moved[name]) if name in self._task.sparse else moved[name] for name in gradient.names
        ]
        return Gradient(gradient.names, tuple(layers))

    def take(self, instances: Sequence[Reducer], results: Sequence[Reduced]) -> None:
        """Move every rank's weights."""
        for rank, (instance, result) in enumerate(zip(instances, results, strict=True)):
            if self._gathers and cast("LocalSteps", instance).waiting:
                _move(self._weights[rank], self._updates[rank])
                continue
            _move(self._agreed[rank], result.mean)
            if self._gathers:
                self._weights[rank] = _copied(self._agreed[rank])

    def evaluate(self) -> Evaluated:
        """Return how the mean of the models does on data that are held out, or the server's."""
        counted = self._weights[: self._evaluated]
        mean = {name: sum(each[name].astype(np.float64) for each in counted) / len(counted) for name in counted[0]}
        set_weights(self._parameters, mean)
        return evaluated(self._task)

    def state(self) -> dict[str, Any]:
        """Return the weights of all ranks, and what their optimizers keep."""
        return {
            "weights": [_copied(each) for each in self._weights],
            "agreed": [_copied(each) for each in self._agreed] if self._gathers else [],
            "optimizers": [optimizer_state(each) for each in self._optimizers],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        self._weights = [_copied(each) for each in state["weights"]]
        self._agreed = [_copied(each) for each in state["agreed"]] if self._gathers else self._weights
        for optimizer, kept in zip(self._optimizers, state["optimizers"], strict=True):
            restore_optimizer(optimizer, kept)


def _copied(weights: Mapping[str, Any]) -> Weights:
    return {name: array.copy() for name, array in weights.items()}


def _move(weights: Weights, update: Gradient) -> None:
    for name, layer in update:
        if isinstance(layer, RowSparse):
            weights[name][layer.rows] -= layer.values
        else:
            weights[name] -= layer
