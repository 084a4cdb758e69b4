"""Everything solved anew at every event: for reading, and to compare with."""

import numpy as np

from s2sim.network.max_min import TIE
from s2sim.network.network import round_up_ps

_TIE = 1e-12


def fair_rates(offsets, links, weights, capacity):
    """Return the max-min fair rate of each flow by progressive filling.

    In each pass every link offers its remaining capacity in equal parts to its unfrozen flows. A link whose offer is
    the smallest that each of its flows gets is a bottleneck: its flows freeze at that rate. All such links freeze in
    the same pass (Bertsekas and Gallager, Data Networks, section 6.5.2, with the local rule for simultaneous
    bottlenecks). Flow i crosses ``links[offsets[i]:offsets[i + 1]]``, each with a share of its rate, ``weights``.
    """
    flows, count = len(offsets) - 1, len(capacity)
    remaining = capacity.astype(np.float64)
    flow = np.repeat(np.arange(flows), np.diff(offsets))
    rates, active = np.zeros(flows), np.ones(flows, bool)
    load = np.bincount(links, weights, count)
    while active.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            offer = np.where(load > _TIE, remaining / load, np.inf)[links]
        flow_offer = np.minimum.reduceat(offer, offsets[:-1])
        # A link is held back where one of its active flows gets less elsewhere.
        held = (flow_offer[flow] < offer * (1 - _TIE)) & active[flow]
        blocked = np.zeros(count, bool)
        blocked[links[held]] = True
        frozen = np.zeros(flows, bool)
        frozen[flow[(~blocked & (load > _TIE))[links] & active[flow]]] = True
        rates[frozen] = flow_offer[frozen]
        active &= ~frozen
        crossing = frozen[flow]
        taken = np.bincount(links[crossing], (weights * rates[flow])[crossing], count)
        remaining = np.maximum(remaining - taken, 0.0)
        load -= np.bincount(links[crossing], weights[crossing], count)
    return rates


def rates_of(routes, flows, capacity):
    """Return the fair rates of some of the flows, by number."""
    chosen = routes.take(np.array(sorted(flows), np.int64))
    solved = fair_rates(chosen.offsets, chosen.links, chosen.weights, capacity)
    return dict(zip(sorted(flows), solved.tolist(), strict=True))


def deliver_ps(routes, start_ps, sizes_bytes, capacity):
    """Return when each flow is delivered: latency, then bytes over a share; ties are one event."""
    coming = dict(enumerate((start_ps + routes.latency_ps).tolist()))
    left, entered, delivered, now = {}, {}, np.zeros(len(coming), np.int64), 0
    while coming or left:
        rates = rates_of(routes, left, capacity) if left else {}
        ends = {flow: now + int(round_up_ps(np.array([left[flow] / rates[flow]]))[0]) for flow in left}
        moments = list(coming.values())
        if ends:
            first = min(ends.values())
            moments.append(max(end for flow, end in ends.items() if end <= first + int((first - entered[flow]) * TIE)))
        then = min(moments)
        for flow, end in ends.items():
            left[flow] = max(left[flow] - rates[flow] * (then - now), 0.0)
            if end <= then:
                delivered[flow] = then
                del left[flow]
        now = then
        for flow in [flow for flow, moment in coming.items() if moment <= now]:
            del coming[flow]
            left[flow], entered[flow] = float(sizes_bytes[flow]), now
    return delivered
