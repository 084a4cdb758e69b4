"""Whether a reducer can be a communication hook, and what one should know who makes it one."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from s2sim.errors import OptionError, S2SimError, S2SimWarning
from s2sim.reducers.registry import make_reducer, option_string
from s2sim.reducers.run import begin
from s2sim.reducers.wrappers.compose import with_feedback

if TYPE_CHECKING:
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Reducer


def reducer_for_training(text: str, *, feedback: bool) -> Reducer:
    """Return the reducer of an option string, with error feedback where it needs some and ``feedback`` is true.

    `OptionError` for one that cannot be a hook.
    """
    made = make_reducer(text)
    traits = made.traits
    if traits.estimates == "shards":
        raise OptionError(
            f"{text} leaves every rank with its own part of the gradient, and DistributedDataParallel keeps whole "
            "models, which would drift apart: take another reducer"
        )
    if traits.warm:
        raise OptionError(
            f"{text}: warm=true changes nothing in training, where every step but the first is a later one"
        )
    return with_feedback(made) if feedback else made


def try_out(reducer: Reducer, example: Gradient, ranks: int) -> None:
    """Let a reducer begin with an example of the gradients: raise what it refuses, warn of what it warns of."""
    try:
        begin(reducer, example, ranks)
    except S2SimError as error:
        raise OptionError(f"{option_string(reducer)} cannot be a hook here: {error}") from error
    for note in notes_on(reducer):
        warnings.warn(note, S2SimWarning, stacklevel=3)


def notes_on(reducer: Reducer) -> list[str]:
    """Return what one should know who trains with a reducer in a hook."""
    name, traits = option_string(reducer), reducer.traits
    notes = []
    if not traits.agrees:
        notes.append(
            f"{name}: ranks end with unlike gradients, so that their models drift apart: average them yourself"
        )
    if reducer.period > 1:
        notes.append(
            f"{name}: the optimizer gets zeros in steps without an exchange, and then the mean of the sums; models do "
            "not train by themselves in between"
        )
    if reducer.momentum_within:
        notes.append(
            f"{name}: momentum {reducer.momentum_within:g} is in what the hook returns: give the optimizer none"
        )
    if traits.estimates == "sign":
        notes.append(f"{name}: the hook returns signs: choose the learning rate for steps of one size")
    if traits.before_gradient:
        notes.append(f"{name}: nothing is sent before the gradient is there, as a hook is called only then")
    if reducer.runs_by is not None:
        notes.append(f"{name}: sums run as Gloo runs them, not by {reducer.runs_by}")
    if traits.assumes:
        notes.append(f"{name} is of use only if {traits.assumes}")
    return notes
