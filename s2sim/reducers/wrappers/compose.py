"""Which wrappers there are, in which order they go around a reducer, and how option strings ask for them."""

from __future__ import annotations

from dataclasses import fields

from s2sim.errors import OptionError
from s2sim.options import build, value_text
from s2sim.reducers.rank import Reducer
from s2sim.reducers.wrappers.error_feedback import (
    EF21,
    ErrorFeedback,
    FilteredFeedback,
    GlobalMomentum,
    MomentumCorrection,
)
from s2sim.reducers.wrappers.hierarchical import HierarchicalReduction
from s2sim.reducers.wrappers.steps import DensityWarmup, LocalSteps, WarmStart
from s2sim.reducers.wrappers.wrapper import Wrapper

WRAPPERS: tuple[type[Wrapper], ...] = (
    # How much it sends.
    DensityWarmup,
    # Among whom it runs.
    HierarchicalReduction,
    # What it gets beside the gradient, of what it failed to send.
    ErrorFeedback,
    FilteredFeedback,
    EF21,
    MomentumCorrection,
    GlobalMomentum,
    # Which steps it runs in.
    LocalSteps,
    WarmStart,
)
"""From the inside out, whatever the order in which options stand. Those with one key exclude each other."""


def wrapper_options(reducer: type[Reducer]) -> set[str]:
    """Return the options that wrappers add to those of a reducer; one that it has itself is its own."""
    return {name for wrapper in WRAPPERS for name in wrapper.option_names()} - {item.name for item in fields(reducer)}


def wrap(reducer: Reducer, options: dict[str, str]) -> Reducer:
    """Return a reducer in the wrappers that ``options`` ask for, all of which belong to one.

    `OptionError` for a value that asks for nothing, an option that goes with what was not asked for, and a wrapper that
    does not fit around what it would be around.
    """
    name = reducer.traits.name
    left = dict(options)
    for wrapper in WRAPPERS:
        if wrapper.key in left and wrapper.takes(left[wrapper.key]):
            own = {key: left.pop(key) for key in wrapper.option_names() if key in left}
            reducer = build(wrapper, own, name, inner=reducer)
    for key, text in left.items():
        values = [value for wrapper in WRAPPERS if wrapper.key == key for value in wrapper.values()]
        if not values:
            needed = [wrapper for wrapper in WRAPPERS if key in wrapper.option_names()]
            with_what = " or ".join(f"{each.key}={value}" for each in needed for value in each.values())
            raise OptionError(f"{name}: {key}={text} goes with {with_what}: give that too")
        if text != "false" or "true" not in values:
            raise OptionError(f"{name}: {key}={text} is not one of {', '.join(['false', *values])}")
    return reducer


def with_feedback(reducer: Reducer) -> Reducer:
    """Return a reducer as training would run it: with error feedback where it needs some and has none."""
    if isinstance(reducer, LocalSteps):
        return reducer.around(with_feedback(reducer.inner))
    return ErrorFeedback(reducer) if reducer.traits.feedback == "needed" else reducer


def written_options(reducer: Reducer) -> dict[str, str]:
    """Return the options of a reducer and its wrappers as people write them, defaults left out."""
    given = {key: _shortest(text) for key, text in reducer.written().items() if key != "inner"}
    if not isinstance(reducer, Wrapper):
        return given
    asked = {reducer.key: _shortest(value_text(getattr(reducer, reducer.key)))}
    return written_options(reducer.inner) | asked | given


def _shortest(text: str) -> str:
    """Return ``2`` for ``2.0``: both read back as the same number."""
    return text.removesuffix(".0") if text.removesuffix(".0").isdigit() else text
