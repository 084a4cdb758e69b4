"""The reducers there are, by name, and their option strings."""

from dataclasses import dataclass, fields
from typing import cast

from s2sim.errors import OptionError, suggest_nearest, unknown_name
from s2sim.options import build, join_option_string, split_option_string
from s2sim.reducers.catalogue import OWN, read_table
from s2sim.reducers.rank import Certainty, Reducer
from s2sim.reducers.systems.per_layer import PatternPart
from s2sim.reducers.wrappers.compose import WRAPPERS, leaves_feedback_out, wrap, written_options
from s2sim.registry import Registry


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

    Options of wrappers stand among its own, see `s2sim.reducers.wrappers.compose`: ``ef=true`` adds error feedback to
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
