"""The reducers that an experiment asks for, and the steps beside the first that some of them need."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.errors import OptionError, S2SimWarning
from s2sim.reducers.registry import make_reducer, option_string
from s2sim.reducers.systems.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.load import AnyTrace
    from s2sim.reducers.rank import Reducer
    from s2sim.reducers.run import OtherSteps
    from s2sim.topology.cluster import Cluster


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
