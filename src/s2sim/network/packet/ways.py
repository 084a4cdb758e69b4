"""How packets find along a route: what follows what, in which shares, and what every hop takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routes import Routes

# Shares are sums of fractions such as 1/3.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Step:
    """From one link of a route to a next one.

    Attributes
    ----------
    before : int
        Position in the route of the link that packets come from; -1 for the source.
    after : int
        Position of the link that they go to.
    weight : float
        Share of the message that goes this way.
    """

    before: int
    after: int
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """One route as packets take it.

    Attributes
    ----------
    links : list of int
        Link numbers in the order of the route, links side by side one after another.
    weights : list of float
        Share of the message on each.
    latencies_ps : list of int
        What passes after a packet has left each.
    steps : list of Step
        What follows what.
    rate : float
        What a message gets alone, in bytes per picosecond.
    """

    links: list[int]
    weights: list[float]
    latencies_ps: list[int]
    steps: list[Step]
    rate: float


def find_way(fabric: Fabric, routes: Routes, index: int) -> Way:
    """Return route number ``index`` as packets take it.

    Raises
    ------
    S2SimError
        Where the links are no way from one rank to another.
    """
    part = slice(routes.offsets[index], routes.offsets[index + 1])
    links, weights = routes.links[part], routes.weights[part]
    return Way(
        links=links.tolist(),
        weights=weights.tolist(),
        latencies_ps=_latencies_ps(fabric.latency_ps[links], weights, int(routes.latency_ps[index])),
        steps=_find_steps(fabric, links.tolist(), weights.tolist()),
        rate=float((fabric.rate_Bps[links] / weights).min()) / PS_PER_S,
    )


def _latencies_ps(own_ps: NDArray[np.int64], weights: NDArray[np.float64], route_ps: int) -> list[int]:
    """Return the latency of each hop: its link's own, or in proportion where the route's is not their sum."""
    sum_ps = round(float((own_ps * weights).sum()))
    if sum_ps == route_ps:
        return [int(latency) for latency in own_ps]
    if sum_ps == 0:
        own_ps, sum_ps = np.ones_like(own_ps), round(float(weights.sum()))
    return [int(latency) * route_ps // sum_ps for latency in own_ps]


def _find_steps(fabric: Fabric, links: list[int], weights: list[float]) -> list[Step]:
    """Return what follows what: a link takes its share from the links that end where it starts."""
    steps: list[Step] = []
    # Vertices that have been reached and not left: by which position, where, and with which share.
    reached = [(-1, int(fabric.tail[links[0]]), 1.0)]
    for after, (link, weight) in enumerate(zip(links, weights, strict=True)):
        missing = weight
        left: list[tuple[int, int, float]] = []
        for before, vertex, share in reached:
            taken = min(share, missing) if vertex == fabric.tail[link] else 0.0
            if taken > _ROUNDING:
                steps.append(Step(before, after, taken))
                missing -= taken
            if share - taken > _ROUNDING:
                left.append((before, vertex, share - taken))
        if missing > _ROUNDING:
            raise S2SimError(
                f"packets cannot follow a route over {fabric.link_names[link]}: it carries {weight:g} of the message "
                f"and {weight - missing:g} gets there; messages that switches combine, or that pass host memory twice, "
                "need the fluid network"
            )
        reached = [*left, (after, int(fabric.head[link]), weight)]
    return steps
