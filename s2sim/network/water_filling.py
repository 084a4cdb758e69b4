"""Transfers that are posted together, delivered in few events: all rates by water-filling over arrays at each of them.

`s2sim.network.max_min` follows single changes, and so suits flows that come and go one by one; where thousands of equal
messages begin at once and few moments later all have ended, computing every rate anew at each event is far quicker.
"""

from __future__ import annotations

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.errors import S2SimError
from s2sim.network.max_min import ABOVE, BELOW, MAX_PS, NEVER, ROUNDING_PS, TIE, TOO_LONG
from s2sim.topology.graph import Routes
from s2sim.units import PS_PER_S

# Below so many transfers single changes are as quick; more events than so many cost more than single changes.
_LEAST_TRANSFERS, _MOST_EVENTS = 64, 64
# Events after which the number of all events is estimated from the transfers delivered by then.
_TRIED_EVENTS = 3


def deliver_in_few_events(routes: Routes, arrive_ps: Ints, sizes_bytes: Floats, capacity: Floats) -> Ints | None:
    """Return the delivery time of each transfer, int64 picoseconds of shape (n,); None if that takes many events.

    ``arrive_ps`` is when the latency of each transfer has passed, int64 of shape (n,), ``sizes_bytes`` float64 of shape
    (n,), and ``capacity`` the bytes per picosecond of every link.
    """
    arrivals = np.unique(arrive_ps)
    if len(arrive_ps) < _LEAST_TRANSFERS or len(arrivals) > _MOST_EVENTS:
        return None
    limits = np.full(len(arrive_ps), np.inf) if routes.limit_Bps is None else routes.limit_Bps / PS_PER_S
    finish_ps, delivered_ps = np.full(len(arrive_ps), NEVER), np.zeros_like(arrive_ps)
    rate, left, since = np.full(len(arrive_ps), -1.0), np.array(sizes_bytes, np.float64), np.array(arrive_ps)
    active = np.zeros(0, np.int64)
    now, next_arrival, events = 0, 0, 0
    while len(active) or next_arrival < len(arrivals):
        delivered = len(arrive_ps) - len(active) - int(np.count_nonzero(arrive_ps > now))
        if events > _TRIED_EVENTS and events * len(arrive_ps) > _MOST_EVENTS * delivered:
            return None
        events += 1
        now = NEVER
        if len(active):
            ends = finish_ps[active]
            earliest = int(ends.min())
            now = int(ends[ends <= earliest + ((earliest - arrive_ps[active]) * TIE).astype(np.int64)].max())
        arriving = np.zeros(0, np.int64)
        if next_arrival < len(arrivals) and arrivals[next_arrival] <= now:
            now = int(arrivals[next_arrival])
            arriving = np.flatnonzero(arrive_ps == now)
            next_arrival += 1
        ended = finish_ps[active] <= now
        delivered_ps[active[ended]] = now
        active = np.concatenate([active[~ended], arriving])
        if not len(active):
            continue
        new, old = fair_rates(routes.take(active), limits[active], capacity), rate[active]
        changed = (new > old * ABOVE) | (new < old * BELOW)
        moved, new = active[changed], new[changed]
        left[moved] = np.maximum(left[moved] - rate[moved] * (now - since[moved]), 0)
        rate[moved], since[moved] = new, now
        with np.errstate(divide="ignore", invalid="ignore"):
            duration_ps = left[moved] / new
        if not (duration_ps < MAX_PS).all():
            raise S2SimError(TOO_LONG)
        finish_ps[moved] = now + np.ceil(duration_ps - ROUNDING_PS).astype(np.int64)
    return delivered_ps


def fair_rates(routes: Routes, limits: Floats, capacity: Floats) -> Floats:
    """Return the max-min fair rates of flows in bytes per picosecond, float64 of shape (n,).

    ``limits`` has the largest rate of each flow, float64 of shape (n,), ``capacity`` that of every link. In each pass
    the links on which no flow could get less elsewhere settle their flows (Bertsekas and Gallager, Data Networks,
    section 6.5.2, all bottlenecks of a pass at once).
    """
    rates = np.zeros(len(limits))
    rest = capacity.copy()
    lengths, links, weights = np.diff(routes.offsets), routes.links, routes.weights
    open_flows = np.arange(len(limits))
    while len(open_flows):
        starts = np.cumsum(lengths) - lengths
        flow = np.repeat(np.arange(len(lengths)), lengths)
        wide = np.bincount(links, weights, len(rest))
        level = np.divide(rest, wide, out=np.full(len(rest), np.inf), where=wide > 0)
        offered = level[links]
        share = np.minimum(np.minimum.reduceat(offered, starts), limits[open_flows])
        least = np.full(len(rest), np.inf)
        np.minimum.at(least, links, share[flow])
        full = (level <= least * ABOVE)[links] & (offered <= share[flow] * ABOVE)
        settled = np.logical_or.reduceat(full, starts) | (limits[open_flows] <= share)
        rates[open_flows[settled]] = share[settled]
        crossing = settled[flow]
        rest -= np.bincount(links[crossing], weights[crossing] * share[flow[crossing]], len(rest))
        # Less than nothing by rounding would be no link's level.
        np.maximum(rest, 0, out=rest)
        open_flows, lengths = open_flows[~settled], lengths[~settled]
        links, weights = links[~crossing], weights[~crossing]
    return rates
