"""Which wrappers there are, in which order they go around a reducer, and how option strings ask for them."""

from collections.abc import Callable

from s2sim.errors import OptionError
from s2sim.options import build, value_text
from s2sim.reducers.rank import Reducer
from s2sim.reducers.wrappers import error_feedback, hierarchical, steps
from s2sim.reducers.wrappers.wrapper import Wrapper

WRAPPERS: tuple[type[Wrapper], ...] = (
    # How much it sends.
    steps.DensityWarmup,
    # Among whom it runs.
    hierarchical.HierarchicalReduction,
    # What it gets beside the gradient, of what it failed to send.
    error_feedback.ErrorFeedback,
    error_feedback.FilteredFeedback,
    error_feedback.EF21,
    error_feedback.MomentumCorrection,
    error_feedback.GlobalMomentum,
    # Which steps it runs in.
    steps.LocalSteps,
    steps.WarmStart,
)
"""From the inside out, whatever the order in which options stand. Those with one key exclude each other."""


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


def leaves_feedback_out(text: str) -> bool:
    """Return whether an option string leaves out the error feedback that training adds, by ``ef=false``."""
    return "ef=false" in text.replace(" ", "").partition(":")[2].split(",")


def with_feedback(reducer: Reducer, feedback: Callable[[Reducer], Reducer] = error_feedback.ErrorFeedback) -> Reducer:
    """Return a reducer as training would run it: with error ``feedback`` where it needs some and has none."""
    if isinstance(reducer, steps.LocalSteps):
        inner = with_feedback(reducer.inner, feedback)
        return reducer if inner is reducer.inner else reducer.around(inner)
    return feedback(reducer) if reducer.traits.feedback == "needed" else reducer


def written_options(reducer: Reducer) -> dict[str, str]:
    """Return the options of a reducer and its wrappers as people write them, defaults left out."""
    given = {key: _shortest(text) for key, text in reducer.written().items() if key != "inner"}
    if not isinstance(reducer, Wrapper):
        return given
    return written_options(reducer.inner) | {reducer.key: _shortest(value_text(getattr(reducer, reducer.key)))} | given


def _shortest(text: str) -> str:
    """Return ``2`` for ``2.0``: both read back as the same number."""
    return text.removesuffix(".0") if text.removesuffix(".0").isdigit() else text
