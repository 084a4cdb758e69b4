"""The fluid network: flows share links max-min fairly, and one SimPy event completes all that end together.

A transfer first waits for the latency of its route; then its bytes share links with all others in flight. Rates change
only when a flow arrives or completes; `s2sim.network.max_min` finds them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import simpy

from s2sim.arrays import Floats, Ints
from s2sim.errors import S2SimError
from s2sim.network import base
from s2sim.network.active_flows import (
    PLAIN_FUNCTIONS,
    SOLVER_EFFORT,
    ActiveFlows,
    RouteIndex,
    TransferBatch,
    compiled_functions,
    make_flow_table,
)
from s2sim.network.max_min import ABOVE, BELOW, LOOKS, MAX_PS, NEVER, ROUNDING_PS, TIE, TOO_LONG
from s2sim.topology.graph import Fabric, Routes
from s2sim.units import PS_PER_S

OnLoads = Callable[[int, Floats], None]


class FluidNetwork(base.Network):
    """Flows on a fabric, in simulated time.

    ``on_loads(now_ps, loads_Bps)`` is called whenever flows arrive or complete, with the load of every link from then
    on, float64 bytes per second of shape (links,). ``known`` are the routes that were added, ``in_flight`` the flows
    that share links now, ``coming`` the transfers in their latency with its end in picoseconds, by number, and
    ``solves`` counts how often rates were computed. ``occupant`` is the owner that passes time on the idle network
    without sending, if any, and what another sender calls first.
    """

    def __init__(self, env: simpy.Environment, fabric: Fabric, on_loads: OnLoads | None = None) -> None:
        super().__init__(env)
        self._fabric = fabric
        self._on_loads = on_loads
        capacity = fabric.rate_Bps / PS_PER_S  # bytes per picosecond
        self.known = RouteIndex(capacity)
        self.in_flight = ActiveFlows(capacity)
        self.coming: dict[int, tuple[int, TransferBatch]] = {}
        self._sent = 0
        # Past their latency, until the end of the timestep
        self._arriving: list[TransferBatch] = []
        self._settling = False
        self._wake_ps = -1
        self.occupant: tuple[int, Callable[[], None]] | None = None
        self.solves = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight or on its way into it."""
        return not (self.in_flight.flows or self._arriving or self.coming or self.occupant)

    def add_routes(self, routes: Routes) -> Ints:
        return self.known.add(routes)

    def send(self, routes: Ints, sizes_bytes: Floats, owner: int, tags: Ints) -> None:
        if self.occupant is not None and self.occupant[0] != owner:
            (_, land), self.occupant = self.occupant, None
            land()
        latency = self.known.routes.latency_ps[routes]
        first = int(latency[0])
        if (latency == first).all():
            self._arrive_after(first, TransferBatch(routes, sizes_bytes, owner, tags))
            return
        for delay in np.unique(latency):
            chosen = latency == delay
            self._arrive_after(int(delay), TransferBatch(routes[chosen], sizes_bytes[chosen], owner, tags[chosen]))

    def send_at(self, start_ps: int, routes: Ints, sizes_bytes: Floats, owner: int, tags: Ints) -> None:
        """Send on an idle network as if it had been done at a time that has passed; see `send`.

        What would have been delivered before now is reported now.
        """
        import simpy

        now = int(self.env.now)
        if start_ps == now:
            self.send(routes, sizes_bytes, owner, tags)
            return
        past = FluidNetwork(simpy.Environment(initial_time=start_ps), self._fabric)
        past.known, past.owners = self.known, self.owners
        past.send(routes, sizes_bytes, owner, tags)
        past.env.run(until=now)
        self.in_flight = past.in_flight
        for arrive_ps, sent in past.coming.values():
            self._arrive_after(arrive_ps - now, sent)
        self._wake()

    def _arrive_after(self, delay_ps: int, sent: TransferBatch) -> None:
        number = self._sent
        self._sent += 1
        self.coming[number] = int(self.env.now) + delay_ps, sent

        def arrive() -> None:
            del self.coming[number]
            self._arriving.append(sent)
            self._settle_soon()

        if delay_ps == 0:
            arrive()
        else:
            base.call_after(self.env, delay_ps, arrive)

    def _settle_soon(self) -> None:
        if not self._settling:
            self._settling = True
            base.at_end_of_timestep(self.env, self._settle)

    def _settle(self) -> None:
        """Remove completed flows, report them to their owners, add arrived ones, and find the new rates."""
        now = int(self.env.now)
        tags: dict[int, list[int]] = {}
        for flow in self.in_flight.complete(now):
            tags.setdefault(flow.owner, []).append(flow.tag)
        for owner in sorted(tags):
            self.owners[owner](np.array(tags[owner], np.int64))
        arriving, self._arriving = self._arriving, []
        self.in_flight.enter(self.known, arriving, now)
        self.solves += bool(self.in_flight.flows)
        self._settling = False
        self._wake()
        if self._on_loads is not None:
            self._on_loads(now, self.in_flight.loads() * PS_PER_S)

    def _wake(self) -> None:
        at_ps = self.in_flight.next_ps
        if at_ps is None or (at_ps == self._wake_ps and at_ps > self.env.now):
            return
        self._wake_ps = at_ps

        def wake() -> None:
            if self._wake_ps == at_ps:
                self._settle_soon()

        base.call_after(self.env, max(at_ps - int(self.env.now), 0), wake)


# Flows delivered between two reports, and between two checks whether compiling pays.
_COMPLETIONS_PER_REPORT = 200


def solve_batch_ps(
    routes: Routes,
    start_ps: Ints,
    sizes_bytes: Floats,
    capacity: Floats,
    on_delivered: Callable[[int], None] = lambda _: None,
) -> Ints:
    """Return the delivery time of each flow, int64 picoseconds of shape (flows,).

    There is one route, start time (its latency follows) and size in bytes per flow; ``capacity`` has the bytes per
    picosecond of every link; ``on_delivered`` is called with the number of flows delivered since its last call.
    """
    arrive_ps, delivered_ps = start_ps + routes.latency_ps, np.zeros(len(sizes_bytes), np.int64)
    together_ps = deliver_in_few_events(routes, arrive_ps, sizes_bytes, capacity)
    if together_ps is not None:
        on_delivered(len(together_ps))
        return together_ps
    routes = base.without_slack_links(routes, capacity)
    chosen, members, queues = base.merge_identical_flows(routes, arrive_ps, sizes_bytes)
    table = make_flow_table(routes.take(chosen), np.asarray(queues.size)[queues.place], capacity, members)
    left, order = len(sizes_bytes), np.argsort(arrive_ps[chosen], kind="stable")
    columns: tuple[Any, Any, Any, Any, Any] = table, queues, order, arrive_ps[chosen], delivered_ps
    alike = bool(len(sizes_bytes)) and bool((sizes_bytes == sizes_bytes[0]).all())
    functions = compiled_functions() if SOLVER_EFFORT.compiles(len(chosen), alike=alike) else PLAIN_FUNCTIONS
    if functions is PLAIN_FUNCTIONS:
        columns = base.as_lists(table), base.as_lists(queues), *(column.tolist() for column in columns[2:])
    looks = 0
    while left:
        if functions is PLAIN_FUNCTIONS and SOLVER_EFFORT.compiles():
            functions = compiled_functions()
            columns = *map(base.as_arrays, columns[:2]), *map(np.array, columns[2:])
        delivered = functions.deliver(*columns, _COMPLETIONS_PER_REPORT)
        on_delivered(delivered)
        left -= delivered
        before, looks = looks, int(columns[0].tally[LOOKS])
        SOLVER_EFFORT.visits += looks - before
    return np.asarray(columns[-1], np.int64)


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
