"""How a reducer trains a model: what is around it, by which steps, or why it cannot."""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.errors import OptionError
from s2sim.options import split_option_string
from s2sim.pytorch.task import ModelSettings
from s2sim.reducers.rank import Reducer
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.wrappers.compose import with_feedback
from s2sim.reducers.wrappers.local_steps import LocalSteps
from s2sim.reducers.wrappers.warmup import WarmStart
from s2sim.reducers.wrappers.wrapper import unwrap_all


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """A reducer as it trains a model."""

    option_string: str  # As it was asked for
    reducer: Reducer  # With error feedback where training needs some, unless ``ef=false`` asked for none
    learning_rate: float  # Of the optimizer
    momentum: float  # Of the optimizer, which adds none where the reducer has it within
    plain_step: bool  # Whether the step is one of plain SGD, whatever the model's optimizer: signs are directions
    # Whether every rank has a model of its own, because not all end alike or not every step is exchanged.
    own_models: bool
    notes: tuple[str, ...] = ()  # What was added, for people


def make_training_setup(option_string: str, model: ModelSettings, learning_rate: float | None = None) -> TrainingSetup:
    """Return how a reducer trains a model, at the learning rate if given; `OptionError` if it cannot."""
    asked = make_reducer(option_string)
    _, options = split_option_string(option_string)
    without = options.get("ef") == "false"
    reducer = asked if without else with_feedback(asked)
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
    own_models = traits.estimates == "weights"
    if own_models:
        notes.append(
            f"{option_string}: every rank steps by itself with an optimizer of its own; evaluated is "
            + ("the server's model" if _has_server(reducer) else "the mean of the ranks' models")
        )
    return TrainingSetup(
        option_string=option_string,
        reducer=reducer,
        learning_rate=model.learning_rate if learning_rate is None else learning_rate,
        momentum=0.0 if within or traits.estimates == "sign" else model.momentum,
        plain_step=traits.estimates == "sign",
        own_models=own_models,
        notes=tuple(notes),
    )


def _refuse(text: str, reducer: Reducer, model: ModelSettings, learning_rate: float | None) -> None:
    traits = reducer.traits
    if any(isinstance(each, WarmStart) for each in unwrap_all(reducer)):
        raise OptionError(f"{text}: in training every step after the first is a warm one: leave warm=true out")
    if reducer.takes_reducers and traits.estimates in ("weights", "sign"):
        raise OptionError(
            f"{text}: some of its parts end with {traits.estimates}, others with the mean gradient, and one optimizer "
            "cannot step by both: name parts that end with the mean"
        )
    if reducer.momentum_within and model.optimizer != "sgd":
        raise OptionError(
            f"{text}: momentum is within what ranks end with, which its paper takes a plain step of SGD by, and the "
            f"model's optimizer is {model.optimizer}: add optimizer=sgd and a learning_rate to the model"
        )
    if traits.estimates == "sign" and learning_rate is None:
        raise OptionError(
            f"{text}: ranks end with signs, and the learning rate is how far every weight moves in a step: give one of "
            f"its own, for example --learning-rate {text}=0.0005"
        )


def steps_locally(reducer: Reducer) -> bool:
    """Return whether ranks step by themselves between exchanges."""
    return isinstance(reducer, LocalSteps)


def _has_server(reducer: Reducer) -> bool:
    return any(each.traits.name == "fedavg" for each in unwrap_all(reducer))


def evaluated_ranks(reducer: Reducer, workers: int) -> int:
    """Return of how many ranks, from 0 on, the mean of the models is evaluated."""
    return 1 if _has_server(reducer) else workers
