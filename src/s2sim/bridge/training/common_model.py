"""One model for all ranks: their gradients at the same weights, and the optimizer's step along what comes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.bridge.task import make_optimizer
from s2sim.bridge.training.arrays import (
    gradient_of,
    hand_over,
    optimizer_state,
    restore_optimizer,
    set_weights,
    weights_of,
)
from s2sim.reducers.measure import ended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from s2sim.bridge.task import Evaluated, Model, Task
    from s2sim.bridge.training.fits import Fitting
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Reduced, Reducer


class CommonModel:
    """Implements `s2sim.bridge.training.trainer.Models`."""

    def __init__(self, task: Task, settings: Model, fitting: Fitting, workers: int) -> None:
        self._task = task
        self._traits = fitting.reducer.traits
        self._workers = workers
        self._parameters = dict(task.module.named_parameters())
        self._optimizer = optimizer_of(settings, fitting, self._parameters)
        self._takes_rows = takes_rows(settings, fitting)

    def contributions(self, step: int) -> tuple[list[Gradient], list[float]]:
        """Return every rank's mini-batch gradient, and its loss."""
        gradients, losses = [], []
        for rank in range(self._workers):
            losses.append(backward(self._task, step, rank))
            gradients.append(gradient_of(self._parameters, self._task.sparse))
        return gradients, losses

    def take(self, instances: Sequence[Reducer], results: Sequence[Reduced]) -> None:
        """Let the optimizer step along the mean."""
        hand_over(ended(results, self._traits)[0].mean, self._parameters, rows=self._takes_rows)
        self._optimizer.step()

    def evaluate(self) -> Evaluated:
        """Return how the model does on data that are held out."""
        return evaluated(self._task)

    def state(self) -> dict[str, Any]:
        """Return weights and what the optimizer keeps."""
        return {"weights": weights_of(self._parameters), "optimizer": optimizer_state(self._optimizer)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        set_weights(self._parameters, state["weights"])
        restore_optimizer(self._optimizer, state["optimizer"])


def backward(task: Task, step: int, rank: int) -> float:
    """Leave the gradient of a rank's mini-batch at the current weights; return its loss."""
    import torch

    task.module.zero_grad(set_to_none=True)
    loss = task.loss(step, rank)
    torch.autograd.backward(loss)
    return float(loss.detach())


def evaluated(task: Task) -> Evaluated:
    """Return how the current weights do on the data that are held out."""
    assert task.evaluate is not None
    return task.evaluate()


def optimizer_of(
    settings: Model, fitting: Fitting, parameters: Mapping[str, torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the optimizer that goes with a reducer."""
    import torch

    if fitting.plain_step:
        return torch.optim.SGD(parameters.values(), lr=fitting.learning_rate)
    return make_optimizer(settings, parameters.values(), learning_rate=fitting.learning_rate, momentum=fitting.momentum)


def takes_rows(settings: Model, fitting: Fitting) -> bool:
    """Return whether a step changes nothing but the rows that the gradient holds."""
    return not fitting.momentum and (fitting.plain_step or settings.optimizer == "sgd")
