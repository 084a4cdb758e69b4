"""How a reducer trains a model: its setup, the weights of ranks, shared or one model a rank, and their steps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, add_into, as_row_sparse, to_dense
from s2sim.pytorch.hook_buckets import to_layer, to_tensors, weight_norms
from s2sim.pytorch.task import Evaluation, ModelSettings, Task, make_optimizer, reproducible_torch
from s2sim.reducers import measure, process_group, registry, script
from s2sim.reducers.rank import Reduced, Reducer
from s2sim.reducers.wrappers import steps, wrapper

if TYPE_CHECKING:
    import torch

    Parameters = Mapping[str, torch.nn.Parameter]

Weights = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """A reducer as it trains a model."""

    option_string: str  # As requested
    reducer: Reducer  # With error feedback if training needs it, unless ``ef=false``
    learning_rate: float  # Of the optimizer
    momentum: float  # Of the optimizer; 0 if the reducer has it
    plain_step: bool  # Whether the step is plain SGD regardless of the model's optimizer, as for signs
    own_models: bool  # Whether every rank has its own model, as weights differ
    notes: tuple[str, ...] = ()  # On additions, for users


def make_training_setup(option_string: str, model: ModelSettings, learning_rate: float | None = None) -> TrainingSetup:
    """Return the setup of a training, at the learning rate if given; `OptionError` if there is none."""
    asked = registry.make_reducer(option_string)
    reducer = asked if registry.leaves_feedback_out(option_string) else registry.with_feedback(asked)
    traits = reducer.traits
    _refuse(option_string, reducer, model, learning_rate)
    notes = []
    if reducer is not asked:
        notes.append(f"{option_string}: with error feedback (ef=true), as training needs it; ef=false leaves it out")
    within = reducer.momentum_within
    if within != model.momentum and within:
        notes.append(
            f"{option_string}: momentum {within:g} is within, and the optimizer adds none; the others train with "
            f"{model.momentum:g}"
        )
    steps_alone = traits.estimates in _PLAIN_STEPS
    own_models = traits.estimates == "weights" or (steps_alone and not traits.agrees)
    if own_models:
        notes.append(
            f"{option_string}: every rank steps by itself with an optimizer of its own; evaluated is "
            + ("the server's model" if has_server(reducer) else "the mean of the ranks' models")
        )
    return TrainingSetup(
        option_string=option_string,
        reducer=reducer,
        learning_rate=model.learning_rate if learning_rate is None else learning_rate,
        momentum=0.0 if within or steps_alone else model.momentum,
        plain_step=steps_alone,
        own_models=own_models,
        notes=tuple(notes),
    )


_PLAIN_STEPS = {"sign": "signs", "update": "steps of its optimizer"}


def _refuse(text: str, reducer: Reducer, model: ModelSettings, learning_rate: float | None) -> None:
    traits = reducer.traits
    if any(isinstance(each, steps.WarmStart) for each in wrapper.unwrap_all(reducer)):
        raise OptionError(f"{text}: in training every step after the first is a warm one: leave warm=true out")
    if reducer.takes_reducers and traits.estimates in ("weights", "sign", "update"):
        raise OptionError(
            f"{text}: some of its parts end with {traits.estimates}, others with the mean gradient, and one optimizer "
            "cannot step by both: name parts that end with the mean"
        )
    if reducer.momentum_within and model.optimizer != "sgd":
        raise OptionError(
            f"{text}: momentum is within what ranks end with, which its paper takes a plain step of SGD by, and the "
            f"model's optimizer is {model.optimizer}: add optimizer=sgd and a learning_rate to the model"
        )
    if traits.estimates in _PLAIN_STEPS and learning_rate is None:
        raise OptionError(
            f"{text}: ranks end with {_PLAIN_STEPS[traits.estimates]}, and the learning rate is how far these move "
            f"every weight: give one of its own, for example --learning-rate {text}=0.0005"
        )


def has_server(reducer: Reducer) -> bool:
    """Return whether rank 0 is a server, so that its model is evaluated, and not the mean of all."""
    return any(each.traits.name == "fedavg" for each in wrapper.unwrap_all(reducer))


def gradient_of(parameters: Parameters, sparse: frozenset[str]) -> Gradient:
    """Return copies of the gradients of backward, float32; zeros where there is none."""
    import torch

    layers = [
        to_layer(torch.zeros_like(each) if each.grad is None else each.grad, sparse=name in sparse)
        for name, each in parameters.items()
    ]
    return Gradient(tuple(parameters), tuple(layers))


def set_gradients(gradient: Gradient, parameters: Parameters, *, rows: bool) -> None:
    """Give a gradient to the optimizer; ``rows``: whether it takes row-sparse ones."""
    import torch

    for (_, layer), parameter in zip(gradient, parameters.values(), strict=True):
        if rows and isinstance(layer, RowSparse):
            where = torch.from_numpy(np.array(layer.rows))[None]
            # The rows increase.
            parameter.grad = torch.sparse_coo_tensor(
                where, _tensor(layer.values), layer.shape, is_coalesced=True, check_invariants=False
            )
        else:
            parameter.grad = _tensor(to_dense(layer))


def _tensor(array: Any) -> torch.Tensor:
    import torch

    writeable = array.dtype == np.float32 and array.flags.writeable and array.flags.c_contiguous
    return torch.from_numpy(array if writeable else np.array(array, np.float32, order="C"))


def weights_of(parameters: Parameters) -> dict[str, Any]:
    """Return copies of the weights by name."""
    return {name: parameter.detach().numpy().copy() for name, parameter in parameters.items()}


def set_weights(parameters: Parameters, weights: Mapping[str, Any]) -> None:
    """Give a model other weights, which are copied."""
    import torch

    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.array(weights[name], np.float32)))


def optimizer_state(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the state of an optimizer for each parameter, as arrays by name."""
    kept = optimizer.state_dict()["state"]
    numbers = range(sum(len(group["params"]) for group in optimizer.param_groups))
    return [
        {name: None if value is None else value.numpy().copy() for name, value in kept.get(number, {}).items()}
        for number in numbers
    ]


def restore_optimizer(optimizer: torch.optim.Optimizer, state: list[dict[str, Any]]) -> None:
    """Resume from an `optimizer_state`."""
    kept = {number: to_tensors(each) for number, each in enumerate(state) if each}
    optimizer.load_state_dict({**optimizer.state_dict(), "state": kept})


class SharedModel:
    """One model, whose weights all ranks share."""

    def __init__(self, task: Task, settings: ModelSettings, fitting: TrainingSetup, workers: int) -> None:
        self._task = task
        self._traits = fitting.reducer.traits
        self._workers = workers
        self._parameters = dict(task.module.named_parameters())
        self._optimizer = optimizer_of(settings, fitting, self._parameters)
        self._takes_rows = takes_sparse_rows(settings, fitting)

    def contributions(self, step: int) -> tuple[list[Gradient], list[float]]:
        """Return every rank's mini-batch gradient, and its loss."""
        gradients, losses = [], []
        for rank in range(self._workers):
            losses.append(backward(self._task, step, rank))
            gradients.append(gradient_of(self._parameters, self._task.sparse))
        return gradients, losses

    def take(self, instances: Sequence[Reducer], results: Sequence[Reduced]) -> None:
        """Let the optimizer step along the mean."""
        set_gradients(measure.final_results(results, self._traits)[0].mean, self._parameters, rows=self._takes_rows)
        self._optimizer.step()

    def evaluate(self) -> Evaluation:
        """Return how the model does on data that are held out."""
        assert self._task.evaluate is not None
        return self._task.evaluate()

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


def optimizer_of(
    settings: ModelSettings, fitting: TrainingSetup, parameters: Mapping[str, torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the optimizer that goes with a reducer."""
    if fitting.plain_step:
        settings = replace(settings, optimizer="sgd")
    return make_optimizer(settings, parameters.values(), learning_rate=fitting.learning_rate, momentum=fitting.momentum)


def takes_sparse_rows(settings: ModelSettings, fitting: TrainingSetup) -> bool:
    """Return whether a step changes only the rows that are stored in the gradient."""
    return not fitting.momentum and (fitting.plain_step or settings.optimizer == "sgd")


class PerRankModels:
    """Models of ranks, as in local SGD: they contribute their steps and apply the reduced one (SBC, algorithm 1)."""

    def __init__(self, task: Task, settings: ModelSettings, fitting: TrainingSetup, workers: int) -> None:
        self._task = task
        self._workers = workers
        self._parameters = dict(task.module.named_parameters())
        start = weights_of(self._parameters)
        self._weights: list[Weights] = [deepcopy(start) for _ in range(workers)]
        self._gathers = isinstance(fitting.reducer, steps.LocalSteps)
        # The weights after the last exchange; with local steps a rank's own weights are ahead of them.
        self._agreed: list[Weights] = [deepcopy(start) for _ in range(workers)] if self._gathers else self._weights
        self._optimizers = [optimizer_of(settings, fitting, self._parameters) for _ in range(workers)]
        self._rate = np.float32(fitting.learning_rate) if takes_sparse_rows(settings, fitting) else None
        # Whether the optimizer is within the reducer, and the rate is that of its steps.
        self._takes_steps = fitting.plain_step
        self._evaluated = 1 if has_server(fitting.reducer) else workers
        self._updates: list[Gradient] = []

    def contributions(self, step: int) -> tuple[list[Gradient], list[float]]:
        """Return the change of weights by every rank's own step, and the loss of its mini-batch."""
        losses, rate = [], self._rate
        self._updates = []
        for rank in range(self._workers):
            set_weights(self._parameters, self._weights[rank])
            losses.append(backward(self._task, step, rank))
            gradient = gradient_of(self._parameters, self._task.sparse)
            if rate is not None:
                self._updates.append(gradient if self._takes_steps else gradient.map(lambda values: values * rate))
                continue
            set_gradients(gradient, self._parameters, rows=False)
            self._optimizers[rank].step()
            before = self._weights[rank]
            moved = {name: before[name] - each.detach().numpy() for name, each in self._parameters.items()}
            layers: list[Layer] = [
                as_row_sparse(moved[name]) if name in self._task.sparse else moved[name] for name in gradient.names
            ]
            self._updates.append(Gradient(gradient.names, tuple(layers)))
        return self._updates, losses

    def take(self, instances: Sequence[Reducer], results: Sequence[Reduced]) -> None:
        """Move every rank's weights."""
        for rank, (instance, result) in enumerate(zip(instances, results, strict=True)):
            if isinstance(instance, steps.LocalSteps) and instance.waiting:
                _apply_update(self._weights[rank], self._updates[rank])
                continue
            moved = result.mean.map(lambda values: values * self._rate) if self._takes_steps else result.mean
            _apply_update(self._agreed[rank], moved)
            if self._gathers:
                self._weights[rank] = deepcopy(self._agreed[rank])

    def evaluate(self) -> Evaluation:
        """Return how the mean of the models does on data that are held out, or the server's."""
        counted = self._weights[: self._evaluated]
        mean = {name: sum(each[name].astype(np.float64) for each in counted) / len(counted) for name in counted[0]}
        set_weights(self._parameters, mean)
        assert self._task.evaluate is not None
        return self._task.evaluate()

    def state(self) -> dict[str, Any]:
        """Return the weights of all ranks, and what their optimizers keep."""
        return {
            "weights": [deepcopy(each) for each in self._weights],
            "agreed": [deepcopy(each) for each in self._agreed] if self._gathers else [],
            "optimizers": [optimizer_state(each) for each in self._optimizers],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        self._weights = [deepcopy(each) for each in state["weights"]]
        self._agreed = [deepcopy(each) for each in state["agreed"]] if self._gathers else self._weights
        for optimizer, kept in zip(self._optimizers, state["optimizers"], strict=True):
            restore_optimizer(optimizer, kept)


def _apply_update(weights: Weights, update: Gradient) -> None:
    for name, layer in update.map(np.negative):
        add_into(weights[name], layer)


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
    recording: script.Recording


class Trainer:
    """A model that W ranks train in one process, their gradients reduced by the programs of a reducer."""

    @reproducible_torch()
    def __init__(self, task: Task, settings: ModelSettings, fitting: TrainingSetup, *, workers: int, seed: int) -> None:
        self.steps = 0
        self._seed = seed
        self._workers = workers
        self._task, self._reducer = task, fitting.reducer
        self._models = (PerRankModels if fitting.own_models else SharedModel)(task, settings, fitting, workers)
        self._instances: list[Reducer] = []

    @reproducible_torch()
    def step(self) -> TrainingStep:
        """Take a training step; `S2SimError` if the model has diverged, or the reducer fails."""
        gradients, losses = self._models.contributions(self.steps)
        if not np.isfinite(losses).all():
            raise S2SimError(DIVERGED)
        self._start(gradients)
        for instance in self._instances:
            instance.take_norms(lambda: weight_norms(self._task.module.parameters()))
        results, recording = process_group.run_group(self._instances, gradients, seed=self._seed, step=self.steps)
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
            self._instances = process_group.make_instances(self._reducer.fitted(gradients, self._seed), self._workers)
