"""Runs reducers once on real gradients: their scripts, and how far their results are from the exact mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.errors import CodecError
from s2sim.reducers.group import run_reducer
from s2sim.reducers.measure import mean_float64, norm, share_within, worst_error
from s2sim.study.result import BoundRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.group import Ran
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
    bound : BoundRow or None
        What theory says of the error of an element, and what was found.
    """

    option_string: str
    reducer: Reducer
    recording: Recording
    errors: Errors
    bound: BoundRow | None


_MOST_NAMES = 6


def names_of(recorded: Sequence[Recorded]) -> str:
    """Return what was asked for, for a note; of many only whose options they are."""
    texts = [item.option_string for item in recorded]
    if len(texts) > _MOST_NAMES:
        texts = list(dict.fromkeys(text.partition(":")[0] for text in texts))
    return ", ".join(texts)


def record(
    reducers: Mapping[str, Reducer],
    gradients: Sequence[Gradient],
    *,
    seed: int,
    earlier: Sequence[Gradient] | None = None,
    on_reducer: Callable[[], None] = lambda: None,
) -> list[Recorded]:
    """Run each reducer, by its option string, on the gradients, one a rank, with empty residuals.

    A warm one carries over what it knows from ``earlier``, the gradients of another step, or from the same ones.
    """
    exact = mean_float64(gradients)
    found = []
    for text, asked in reducers.items():
        reducer = asked.fitted(gradients, seed)
        try:
            ran = run_reducer(reducer, gradients, seed=seed, earlier=earlier)
        except CodecError as error:
            raise CodecError(f"{text} cannot take these gradients: {error}; leave it out with --reducer") from None
        errors = worst_error(ran.results, exact, reducer.compresses(gradients[0]))
        found.append(Recorded(text, reducer, ran.recording, errors, _checked_bound(ran, exact)))
        on_reducer()
    return found


def _checked_bound(ran: Ran, exact: Gradient) -> BoundRow | None:
    """Return the published bound, as a share of the norm, and for which share of the elements it holds."""
    bound = ran.instances[0].error_bound()
    if bound is None:
        return None
    mean = ran.results[0].mean
    compressed = ran.instances[0].compresses(mean)
    length = norm(exact, compressed)
    limit = bound.element * length if bound.relative else bound.element
    return BoundRow(
        element=limit / length if length else 0.0,
        share=bound.share,
        share_found=share_within(mean, exact, compressed, limit),
        relative_l2=bound.relative_l2,
        source=bound.source,
    )
