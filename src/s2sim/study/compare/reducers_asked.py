"""What an experiment asks for, made: its reducers, and the gradients that they run on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from s2sim.errors import OptionError, S2SimWarning
from s2sim.reducers.registry import make_reducer, option_string

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.gradients.load import AnyTrace
    from s2sim.reducers.rank import Reducer


def reducers_asked(texts: Sequence[str]) -> dict[str, Reducer]:
    """Return the reducers by the option strings that were asked for, ``dense`` first where it is missing."""
    made = {text: make_reducer(text) for text in texts}
    if not any(reducer.traits.name == "dense" for reducer in made.values()):
        made = {"dense": make_reducer("dense")} | made
    asked: dict[str, str] = {}
    for text, reducer in made.items():
        other = asked.setdefault(option_string(reducer), text)
        if other != text or texts.count(text) > 1:
            raise OptionError(f"the same reducer was asked for twice: {other} and {text}")
    return made


INTERRUPTED_NOTE = "interrupted: what was not finished is missing"


def warn_of_later_options(reducers: Mapping[str, Reducer], *, what: str) -> None:
    """Warn of options that act from the second step on where ``what`` takes the first."""
    for text, reducer in reducers.items():
        for option in reducer.later_options():
            warnings.warn(
                f"{text}: {option} acts from the second step on, and {what} takes the first", S2SimWarning, stacklevel=2
            )


def earlier_gradients(trace: AnyTrace, reducers: Mapping[str, Reducer], ranks: int) -> list[Gradient] | None:
    """Return the gradients of another step, from which warm reducers carry over; None if there is none, or no need."""
    if trace.steps == 1 or not any(reducer.traits.warm for reducer in reducers.values()):
        return None
    return [trace.gradient(1, rank) for rank in range(ranks)]
