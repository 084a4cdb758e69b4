"""Runs reducers once on real gradients: their scripts, and how far their results are from the exact mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.errors import CodecError
from s2sim.reducers.group import make_instances, run_group
from s2sim.reducers.measure import mean_float64, worst_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.measure import Errors
    from s2sim.reducers.rank import Reducer
    from s2sim.reducers.script import Recording


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one reducer did on one set of gradients.

    Attributes
    ----------
    option_string : str
        As it was asked for.
    reducer : Reducer
        Its options; not the instances that ran.
    recording : Recording
        Scripts of all ranks.
    errors : Errors
        Of the worst rank.
    """

    option_string: str
    reducer: Reducer
    recording: Recording
    errors: Errors


def record(
    reducers: Mapping[str, Reducer],
    gradients: Sequence[Gradient],
    *,
    seed: int,
    on_reducer: Callable[[], None] = lambda: None,
) -> list[Recorded]:
    """Run each reducer, by its option string, on the gradients, one a rank, with empty residuals."""
    exact = mean_float64(gradients)
    found = []
    for text, asked in reducers.items():
        reducer = asked.fitted(gradients, seed)
        try:
            results, recording = run_group(make_instances(reducer, len(gradients)), gradients, seed=seed)
        except CodecError as error:
            raise CodecError(f"{text} cannot take these gradients: {error}; leave it out with --reducer") from None
        errors = worst_error(results, exact, reducer.compresses(gradients[0]))
        found.append(Recorded(text, reducer, recording, errors))
        on_reducer()
    return found
