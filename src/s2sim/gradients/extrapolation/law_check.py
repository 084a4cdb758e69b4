"""The fitted law of a trace looked at: the union further out, and how far off it is where that can be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.gradients.extrapolation.law import LAW, LEAST_RANKS, fit_law
from s2sim.gradients.statistics import occupancy

if TYPE_CHECKING:
    from s2sim.gradients.statistics import GradientSource

# Times the recorded ranks, ahead and back.
_AHEAD = (2, 4, 16)
_BACK = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class LayerForecast:
    """The law of one table.

    Attributes
    ----------
    union_density : dict of int to float
        Ranks, more than recorded, to the share of rows that at least one of them holds, by the law.
    errors : dict of int to float
        For fewer ranks than recorded: what a law fitted to the first of them says of the union of all recorded ranks,
        over what was recorded, less 1.
    """

    union_density: dict[int, float]
    errors: dict[int, float]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The law of a trace: what it assumes, the ranks that it was fitted to, and one forecast a row-sparse layer."""

    law: str
    ranks: int
    layers: dict[str, LayerForecast]


def forecast(source: GradientSource) -> Forecast | None:
    """Fit the law to a trace and to parts of it; None for fewer ranks than a law and its check need."""
    ranks = source.world_size
    if ranks < LEAST_RANKS:
        return None
    whole = fit_law(source)
    parts = {ranks // factor: fit_law(source, ranks // factor) for factor in _BACK if ranks // factor >= 2}
    layers = {}
    for index, (name, counts) in enumerate(zip(source.gradient(0, 0).names, occupancy(source, ranks), strict=True)):
        law = whole.layers[index]
        if law is None or counts is None:
            continue
        recorded = float(1 - counts[0] / counts.sum())
        layers[name] = LayerForecast(
            {factor * ranks: law.union_density(factor * ranks) for factor in _AHEAD},
            {
                few: part.union_density(ranks) / recorded - 1
                for few, fitted in parts.items()
                if (part := fitted.layers[index]) is not None and recorded
            },
        )
    return Forecast(LAW, ranks, layers)
