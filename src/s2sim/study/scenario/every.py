"""``all`` among the reducers that are asked for: each that is registered, with its default options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import OptionError, S2SimError
from s2sim.reducers.registry import make_reducer, option_string, reducer_names
from s2sim.study.scenario.asked import AskedReducer, reducers_asked

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = "all"


def asked_or_all(texts: Sequence[str]) -> tuple[tuple[AskedReducer, ...], dict[str, str]]:
    """Return the reducers of option strings, and where ``all`` is among them every other one.

    Beside them stand, by name, the reasons of those that need options.
    """
    wants_all = sum(map(_is_all, texts))
    if wants_all > 1:
        raise OptionError(f"{ALL} was asked for twice")
    asked = reducers_asked([text for text in texts if not _is_all(text)])
    if not wants_all:
        return asked, {}
    there = {option_string(item.reducer) for item in asked} | {item.option_string for item in asked}
    others, refused = [], {}
    for name in reducer_names():
        if name in there:
            continue
        try:
            reducer = make_reducer(name)
        except S2SimError as error:
            refused[name] = str(error)
            continue
        if reducer.takes_reducers:
            refused[name] = f"{name} is as its parts are: name it with a reducer for each pattern of layer names"
        else:
            others.append(AskedReducer(name, reducer, optional=True))
    return (*asked, *others), refused


def _is_all(text: str) -> bool:
    name, options, _ = text.strip().partition(":")
    if name == ALL and options:
        raise OptionError(f"{text}: {ALL} runs every reducer with its own defaults; name a reducer to set its options")
    return name == ALL
