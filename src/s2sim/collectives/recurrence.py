"""The time of a schedule whose pairs share no link, without events: one array operation a round.

If every link is used by one pair alone, each transfer takes its latency plus its bytes over its narrowest link
whatever else happens, and a rank's time in round k + 1 is the latest end of its transfers of round k. This gives the
same integer picoseconds as the fluid network, which the tests check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.collectives.schedule import Schedule
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routes import Routes


def shares_links(routes: Routes) -> bool:
    """Return whether any link is used by more than one of the routes."""
    return len(np.unique(routes.links)) < len(routes.links)


def private_times_ps(schedule: Schedule, fabric: Fabric, routes: Routes) -> NDArray[np.int64]:
    """Return when each rank is done, int64 picoseconds of shape (ranks,), from a common start.

    ``routes`` are those of the schedule's pairs; no two may share a link, see `shares_links`.
    """
    ranks = schedule.demand.ranks
    time = np.zeros(ranks, np.int64)
    if schedule.rounds == 0:
        return time
    capacity = fabric.rate_Bps / PS_PER_S
    rate = np.minimum.reduceat(capacity[routes.links] / routes.weights, routes.offsets[:-1])
    k = 0
    while k < schedule.rounds:
        transfers = schedule.round_at(k)
        src, dst = schedule.src[transfers.pair], schedule.dst[transfers.pair]
        sizes = schedule.sizes_bytes(transfers).astype(np.float64)
        end = time[src] + routes.latency_ps[transfers.pair] + np.rint(sizes / rate[transfers.pair]).astype(np.int64)
        later = time.copy()
        np.maximum.at(later, src, end)
        np.maximum.at(later, dst, end)
        step = later - time
        time = later
        k += 1
        if schedule.uniform and (step == step[0]).all():
            # All ranks have moved by the same time, so every further round moves them by it again.
            return time + step * (schedule.rounds - k)
    return time
