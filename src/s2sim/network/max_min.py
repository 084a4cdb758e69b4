"""Max-min fair rates of flows that share links, solved on arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Levels within this share of each other are one level, so that equal flows freeze together whatever the rounding.
_TIE = 1e-12


# Sorting so many crossings costs as much as going through a table of one link.
_CROSSINGS_A_LINK = 16


def _numbered(links: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the links that occur, in order, and for each crossing which of these it is."""
    if len(links) * _CROSSINGS_A_LINK < count:
        used, number = np.unique(links, return_inverse=True)
        return used, number
    occurs = np.zeros(count, bool)
    occurs[links] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[links]


def fair_rates(
    offsets: NDArray[np.int64],
    links: NDArray[np.int64],
    weights: NDArray[np.float64],
    capacity: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the max-min fair rate of each flow by progressive filling.

    In each pass every link offers its remaining capacity in equal parts to its unfrozen flows. A link whose offer is
    the smallest that each of its flows gets is a bottleneck: its flows freeze at that rate. All such links freeze in
    the same pass, so the number of passes is the depth of the bottleneck order, not the number of links
    (Bertsekas and Gallager, Data Networks, section 6.5.2, with the local rule for simultaneous bottlenecks).

    Parameters
    ----------
    offsets : int64 array, shape (flows + 1,)
        Flow i crosses ``links[offsets[i]:offsets[i + 1]]``, at least one.
    links : int64 array, shape (crossings,)
        Link of each crossing.
    weights : float64 array, shape (crossings,)
        Share of the flow's rate on that link: 1, or less where the flow is split over several.
    capacity : float64 array, shape (links,)
        Capacity of every link, in any unit of rate.

    Returns
    -------
    float64 array, shape (flows,)
        Rates in the unit of ``capacity``.
    """
    flows = len(offsets) - 1
    used, link = _numbered(links, len(capacity))
    remaining = capacity[used].astype(np.float64)
    flow = np.repeat(np.arange(flows), np.diff(offsets))
    starts = offsets[:-1]
    rates = np.zeros(flows)
    active = np.ones(flows, bool)
    count = len(used)
    load = np.bincount(link, weights, count)
    while True:
        with np.errstate(divide="ignore", invalid="ignore"):
            offer = np.where(load > _TIE, remaining / load, np.inf)
        crossing_offer = offer[link]
        flow_offer = np.minimum.reduceat(crossing_offer, starts)
        # A link is held back where one of its active flows gets less elsewhere.
        held = (flow_offer[flow] < crossing_offer * (1 - _TIE)) & active[flow]
        blocked = np.zeros(count, bool)
        blocked[link[held]] = True
        bottleneck = ~blocked & (load > _TIE)
        frozen = np.zeros(flows, bool)
        frozen[flow[bottleneck[link] & active[flow]]] = True
        rates[frozen] = flow_offer[frozen]
        active &= ~frozen
        if not active.any():
            return rates
        crossing = frozen[flow]
        taken = np.bincount(link[crossing], (weights * rates[flow])[crossing], count)
        remaining = np.maximum(remaining - taken, 0.0)
        load -= np.bincount(link[crossing], weights[crossing], count)
