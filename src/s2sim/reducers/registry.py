"""The reducers there are, by name, and their option strings."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, cast

from s2sim.errors import OptionError, nearest
from s2sim.options import build, join_option_string, non_default, split_option_string
from s2sim.reducers.wrappers.error_feedback import ErrorFeedback
from s2sim.reducers.wrappers.warm import Warm
from s2sim.reducers.wrappers.wrapper import Wrapper
from s2sim.registry import Registry

if TYPE_CHECKING:
    from s2sim.reducers.rank import Reducer

REDUCERS = Registry(
    "reducer",
    "s2sim.reducers",
    {
        "dense": "s2sim.reducers.systems.dense:Dense",
        "fp16": "s2sim.reducers.systems.fp16:Fp16",
        "topk": "s2sim.reducers.systems.topk:TopK",
        "union": "s2sim.reducers.systems.union:Union",
        "owner-reduce": "s2sim.reducers.systems.owner_reduce:OwnerReduce",
        "gather-rows": "s2sim.reducers.systems.gather_rows:GatherRows",
        "s2": "s2sim.reducers.systems.s2:S2",
        "s2-exact": "s2sim.reducers.systems.s2_exact:S2Exact",
    },
)

# What may stand among the options of any reducer, in the order in which it is wrapped.
_WRAPPERS: dict[str, type[Wrapper]] = {"ef": ErrorFeedback, "warm": Warm}


def make_reducer(text: str) -> Reducer:
    """Return the reducer of an option string.

    ``ef=true`` adds error feedback to a lossy one, ``warm=true`` makes it a later step of one that carries sizes over.

    >>> make_reducer("topk:density=0.05")
    TopK(density=0.05)
    >>> make_reducer("topk:density=0.05,ef=true")
    ErrorFeedback(inner=TopK(density=0.05))
    """
    name, options = split_option_string(text)
    cls = REDUCERS.get(name)
    known = {field.name for field in fields(cls) if field.init} | set(_WRAPPERS)
    for key in options:
        if key not in known:
            raise OptionError(f"{name} has no option {key!r}{nearest(key, known)}")
    wrapped = {key: options.pop(key, "false") for key in _WRAPPERS}
    for key, text_given in wrapped.items():
        if text_given not in ("true", "false"):
            raise OptionError(f"{name}: {key}={text_given} is neither true nor false")
    reducer = cast("Reducer", build(cls, options, name))
    for key, wrapper in _WRAPPERS.items():
        if wrapped[key] == "true":
            reducer = wrapper(reducer)
    return reducer


def option_string(reducer: Reducer) -> str:
    """Return the option string of a reducer, defaults left out; the inverse of `make_reducer`.

    >>> option_string(make_reducer("s2:cells=2,rows=3"))
    's2:rows=3,cells=2'
    """
    if isinstance(reducer, Wrapper):
        key = next(key for key, wrapper in _WRAPPERS.items() if isinstance(reducer, wrapper))
        inner = option_string(reducer.inner)
        return f"{inner}{',' if ':' in inner else ':'}{key}=true"
    return join_option_string(reducer.traits.name, {key: _shortest(text) for key, text in non_default(reducer).items()})


def _shortest(text: str) -> str:
    """Return ``2`` for ``2.0``: both read back as the same number."""
    return text.removesuffix(".0") if text.removesuffix(".0").isdigit() else text
