"""The reducers there are, by name, and their option strings."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import cast

from s2sim.errors import OptionError, suggest_nearest, unknown_name
from s2sim.options import build, join_option_string, split_option_string, value_text
from s2sim.reducers.catalogue import OWN, read_table
from s2sim.reducers.rank import Certainty, Reducer
from s2sim.reducers.systems.per_layer import PatternPart
from s2sim.reducers.wrappers import error_feedback, hierarchical, steps
from s2sim.reducers.wrappers.wrapper import Wrapper
from s2sim.registry import Registry

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


@dataclass(frozen=True, slots=True)
class Preset:
    """A published system as an option string of `make_reducer`.

    Its name may stand wherever a reducer's may, and options after it win over those that it sets:
    ``mem-sgd:density=0.1``. Results keep the name that was asked for; all else that they say is of what it stands for.
    """

    option_string: str  # What it stands for; the name of a reducer and options of it and of wrappers
    summary: str  # What makes it what it is
    source: str  # Who published it
    certainty: Certainty


PRESETS = {name: Preset(**row) for name, row in read_table("systems")["presets"].items()}

FAMILIES = {
    family: (title, " ".join(name for name, row in OWN.rows.items() if row["family"] == family))
    for family, title in read_table("systems")["families"].items()
}
"""Title and names of each family; reducers that are others with given options are a family of their own."""

OF_PRESETS = "Reducers that are others with given options"


def family_of(name: str) -> str:
    """Return the title of a reducer's family; ``installed`` for those of plug-ins."""
    if name in PRESETS:
        return OF_PRESETS
    return next((title for title, names in FAMILIES.values() if name in names.split()), "installed")


REDUCERS = Registry("reducer", "s2sim.reducers", OWN.places)


def reducer_names() -> list[str]:
    """Return every name that `make_reducer` takes: reducers and presets."""
    return [*REDUCERS.names(), *PRESETS]


def resolved_options(text: str) -> tuple[str, dict[str, str]]:
    """Return the name of a reducer and the options that an option string gives it, those of a preset included.

    >>> resolved_options("mem-sgd:density=0.05")
    ('topk', {'ef': 'true', 'density': '0.05'})
    """
    name, options = split_option_string(text)
    if name in PRESETS:
        own, preset = split_option_string(PRESETS[name].option_string)
        return own, preset | options
    if name not in REDUCERS.names():
        raise unknown_name("reducer", name, reducer_names())
    return name, options


def make_reducer(text: str) -> Reducer:
    """Return the reducer of an option string, or of a preset's name with options that win over its own.

    Options of wrappers stand among its own, see `s2sim.reducers.registry`: ``ef=true`` adds error feedback to
    a lossy one, ``warm=true`` makes it a later step of one that carries sizes over.

    >>> make_reducer("topk:density=0.05")
    TopK(density=0.05, granularity='global')
    >>> make_reducer("topk:density=0.05,ef=true")
    ErrorFeedback(inner=TopK(density=0.05, granularity='global'), ef=True)
    """
    name, options = resolved_options(text)
    cls = REDUCERS.get(name)
    # An option that the reducer has itself is its own.
    added = {each for wrapper in WRAPPERS for each in wrapper.option_names()} - {field.name for field in fields(cls)}
    own = {key: text for key, text in options.items() if key not in added}
    reducer: Reducer
    if cls.takes_reducers:
        # Between the options of a reducer that stands among those of another one there is ``;``.
        texts = {pattern: text.replace(";", ",") for pattern, text in own.items()}
        if alone := [pattern for pattern, text in texts.items() if leaves_feedback_out(text)]:
            raise OptionError(f"{name}: ef=false of {alone[0]} is for all layers: give it beside the patterns")
        parts = [(pattern, make_reducer(text)) for pattern, text in texts.items()]
        reducer = cls(tuple(PatternPart(key, option_string(part).replace(",", ";"), part) for key, part in parts))
    else:
        known = {field.name for field in fields(cls) if field.init} | added
        for key in own:
            if key not in known:
                raise OptionError(f"{split_option_string(text)[0]} has no option {key!r}{suggest_nearest(key, known)}")
        reducer = cast("Reducer", build(cls, own, name))
    return wrap(reducer, {key: text for key, text in options.items() if key in added})


def option_string(reducer: Reducer) -> str:
    """Return the option string of a reducer, defaults left out; the inverse of `make_reducer`.

    >>> option_string(make_reducer("s2:cells=2,rows=3"))
    's2:rows=3,cells=2'
    """
    return join_option_string(reducer.traits.name, written_options(reducer))
