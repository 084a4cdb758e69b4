"""The reducers that an experiment asks for by option strings or ``all``, and the steps that some of them need."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.errors import OptionError, S2SimError, S2SimWarning
from s2sim.reducers.registry import make_reducer, option_string, reducer_names
from s2sim.reducers.systems.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.load import AnyTrace
    from s2sim.reducers.rank import Reducer
    from s2sim.reducers.run import OtherSteps
    from s2sim.topology.cluster import Cluster

ALL = "all"


@dataclass(frozen=True, slots=True)
class AskedReducer:
    """A reducer and the option string by which it was asked for, and by which results name it.

    Nobody has named one that is ``optional``: where it refuses something a run goes on without it, and says so.
    """

    option_string: str
    reducer: Reducer
    optional: bool = False


def reducers_asked(texts: Sequence[str]) -> tuple[AskedReducer, ...]:
    """Return the reducers of option strings, ``dense`` first where it is missing."""
    asked = tuple(AskedReducer(text, make_reducer(text)) for text in texts)
    if not any(item.reducer.traits.baseline for item in asked):
        asked = (AskedReducer("dense", make_reducer("dense")), *asked)
    written: dict[tuple[str, str], str] = {}
    for item in asked:
        # A preset stands beside what it is another name for.
        name = item.option_string.partition(":")[0]
        canonical = (name if name in PRESETS else "", option_string(item.reducer))
        if canonical in written:
            raise OptionError(f"the same reducer was asked for twice: {written[canonical]} and {item.option_string}")
        written[canonical] = item.option_string
    return asked


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


def placed_on(cluster: Cluster, reducers: Sequence[AskedReducer]) -> tuple[AskedReducer, ...]:
    """Return the reducers as the cluster's ranks run them, who know which of them share a node."""
    nodes = tuple(cluster.node_of_rank.tolist())
    return tuple(replace(item, reducer=item.reducer.placed(nodes)) for item in reducers)


def warn_of_later_options(reducers: Sequence[AskedReducer], *, what: str) -> None:
    """Warn of options that act from the second step on where ``what`` takes the first."""
    for item in reducers:
        for option in item.reducer.later_options():
            warnings.warn(
                f"{item.option_string}: {option} acts from the second step on, and {what} takes the first",
                S2SimWarning,
                stacklevel=2,
            )


def other_steps(trace: AnyTrace, ranks: int) -> OtherSteps | None:
    """Return what reads the gradients of other steps, in turn where there are fewer; None if there is but one.

    Warm reducers carry over from the second, and those with a period take as many as that has.
    """
    if trace.steps == 1:
        return None
    return lambda step: [trace.gradient(step % trace.steps, rank) for rank in range(ranks)]
