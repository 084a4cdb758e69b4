"""Runs a reducer once on real gradients: its scripts, and how far its result is from the exact mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from s2sim.study.result import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.script import Recording


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one reducer did on one set of gradients.

    Attributes
    ----------
    reducer_name, option_string : str
        Of the reducer.
    options_of : object
        The dataclass whose fields are its options.
    error_feedback, lossless : bool
        Whether it is wrapped, and whether its result is exact but for rounding.
    recording : Recording
        Scripts of all ranks.
    error, error_compressed : Error
        Of the worst rank, over all layers and over the compressed ones.
    error_per_layer : dict of str to Error
        Likewise for each layer.
    """

    reducer_name: str
    option_string: str
    options_of: Any
    error_feedback: bool
    lossless: bool
    recording: Recording
    error: Error
    error_compressed: Error
    error_per_layer: dict[str, Error]


def record(
    reducers: Sequence[Reducer],
    gradients: Sequence[Gradient],
    *,
    seed: int,
    on_rank: Callable[[], None] = lambda: None,
) -> list[Recorded]:
    """Run each reducer once on the gradients, one a rank, with empty residuals."""
    exact = mean_float64(gradients)
    return [_record(reducer, gradients, exact, seed, on_rank) for reducer in reducers]
