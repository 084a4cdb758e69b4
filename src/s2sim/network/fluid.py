"""The fluid network: flows share links max-min fairly, and one SimPy event stands for all that complete together.

A transfer first waits for its path's latency, then its bytes share links with all others in flight, and it is
delivered when the last byte has gone. Rates change only when a flow comes or goes; then only the flows that are
connected to the change through shared links are solved again, and solutions of sets of routes seen before are reused.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError
from s2sim.network.instant import at_end_of_instant
from s2sim.network.max_min import fair_rates
from s2sim.topology.routes import gather_slices
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    import simpy
    from numpy.typing import NDArray

    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routes import Routes

    OnDelivered = Callable[[NDArray[np.int64]], None]
    _Flows = tuple[NDArray[np.int64], NDArray[np.float64], int, NDArray[np.int64]]
    OnLoads = Callable[[int, NDArray[np.float64]], None]

# Completions closer than this share of their duration are one event (DESIGN law 1).
TIE = 1e-9
_LONGEST_PS = 2.0**61
_REMEMBERED_SOLUTIONS = 4096
_IN_FLIGHT = ("_route", "_remaining", "_rate", "_since_ps", "_entered_ps", "_finish_ps", "_owner", "_tag")


def whole_ps(durations_ps: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return durations rounded up to whole picoseconds, so that no time falls under its bandwidth lower bound.

    What floating-point division leaves above a whole number, below a millionth, is no part of the duration. Beyond
    about 27 days picoseconds would no longer fit in 64 bits with room to add: `S2SimError`.
    """
    if len(durations_ps) and not durations_ps.max() < _LONGEST_PS:
        raise S2SimError("a transfer would take over 27 days: check its size and the rates of its links")
    whole: NDArray[np.int64] = np.ceil(durations_ps - 1e-6).astype(np.int64)
    return whole


class FluidNetwork:
    """Flows on a fabric, in simulated time.

    Parameters
    ----------
    env : simpy.Environment
        Its time is integer picoseconds.
    fabric : Fabric
        Links with their rates.
    on_loads : callable, optional
        Told of the time in picoseconds and of what every link carries from then on, float64 bytes per second of shape
        (links,), whenever flows come or go.

    Attributes
    ----------
    env : simpy.Environment
        As given.
    solves : int
        How often it had to solve for rates, which is most of what it costs.
    """

    def __init__(self, env: simpy.Environment, fabric: Fabric, on_loads: OnLoads | None = None) -> None:
        self.env = env
        self._on_loads = on_loads
        # Bytes per picosecond: of the fabric's links, then of those that stand for the limits of routes.
        self._capacity = fabric.rate_Bps / PS_PER_S
        self._fabric_links = len(fabric.rate_Bps)
        # All routes ever used, as one table: a flow is the number of its route.
        self._route_start = np.zeros(0, np.int64)
        self._route_length = np.zeros(0, np.int64)
        self._route_latency_ps = np.zeros(0, np.int64)
        self._links = np.zeros(0, np.int64)
        self._weights = np.zeros(0)
        self._solutions: dict[bytes, NDArray[np.float64]] = {}
        # Flows in flight, by position.
        self._route = np.zeros(0, np.int64)
        self._remaining = np.zeros(0)
        self._rate = np.zeros(0)
        self._since_ps = np.zeros(0, np.int64)
        self._entered_ps = np.zeros(0, np.int64)
        self._finish_ps = np.zeros(0, np.int64)
        self._owner = np.zeros(0, np.int64)
        self._tag = np.zeros(0, np.int64)
        self._owners: list[OnDelivered] = []
        # Flows whose latency passes, by a number of their own, with the moment when it has passed.
        self._coming: dict[int, tuple[int, _Flows]] = {}
        self._sent = 0
        # Flows whose latency has passed, waiting for the instant to settle.
        self._arriving: list[_Flows] = []
        self._settling = False
        # Whether links have changed, so that all flows in flight have new rates.
        self._stale = False
        self._wake_ps = -1
        self._occupant: tuple[int, Callable[[], None]] | None = None
        self.solves = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight or on its way into it."""
        return not (len(self._route) or self._arriving or self._coming or self._occupant)

    def add_routes(self, routes: Routes) -> NDArray[np.int64]:
        """Make routes known and return their numbers, int64 of shape (routes,)."""
        first = len(self._route_start)
        if routes.limit_Bps is not None:
            routes, limits_Bps = routes.with_limits_as_links(len(self._capacity))
            self._capacity = np.concatenate([self._capacity, limits_Bps / PS_PER_S])
        self._route_start = np.concatenate([self._route_start, routes.offsets[:-1] + len(self._links)])
        self._route_length = np.concatenate([self._route_length, np.diff(routes.offsets)])
        self._route_latency_ps = np.concatenate([self._route_latency_ps, routes.latency_ps])
        self._links = np.concatenate([self._links, routes.links])
        self._weights = np.concatenate([self._weights, routes.weights])
        return np.arange(first, len(self._route_start))

    def add_owner(self, on_delivered: OnDelivered) -> int:
        """Return the number under which transfers report their delivery to ``on_delivered(tags)``."""
        self._owners.append(on_delivered)
        return len(self._owners) - 1

    def send(
        self,
        routes: NDArray[np.int64],
        sizes_bytes: NDArray[np.float64],
        owner: int,
        tags: NDArray[np.int64],
    ) -> None:
        """Start transfers now; each is reported to ``owner`` under its tag when its last byte has arrived.

        Parameters
        ----------
        routes : int64 array, shape (n,)
            Numbers from `add_routes`.
        sizes_bytes : float64 array, shape (n,)
            Bytes of each; zero takes the latency alone.
        owner : int
            From `add_owner`.
        tags : int64 array, shape (n,)
            What the owner is told.
        """
        if self._occupant is not None and self._occupant[0] != owner:
            (_, land), self._occupant = self._occupant, None
            land()
        latency = self._route_latency_ps[routes]
        first = int(latency[0])
        if (latency == first).all():
            self._arrive_after(first, (routes, sizes_bytes, owner, tags))
            return
        for delay in np.unique(latency):
            chosen = latency == delay
            self._arrive_after(int(delay), (routes[chosen], sizes_bytes[chosen], owner, tags[chosen]))

    def occupy(self, owner: int, land: Callable[[], None]) -> None:
        """Let ``owner`` pass time on an idle network without sending: whoever else sends first calls ``land``."""
        self._occupant = owner, land

    def vacate(self) -> None:
        """End what `occupy` began."""
        self._occupant = None

    def send_at(
        self,
        start_ps: int,
        routes: NDArray[np.int64],
        sizes_bytes: NDArray[np.float64],
        owner: int,
        tags: NDArray[np.int64],
    ) -> None:
        """Send on an idle network as if it had been done at a time that has passed; see `send`.

        What would have been delivered before now is reported now.
        """
        import simpy

        now = int(self.env.now)
        if start_ps == now:
            self.send(routes, sizes_bytes, owner, tags)
            return
        past = copy(self)
        past.env = simpy.Environment(initial_time=start_ps)
        past._coming, past._arriving, past._settling = {}, [], False  # noqa: SLF001  (a copy of itself)
        past._wake_ps, past._on_loads = -1, None  # noqa: SLF001
        past.send(routes, sizes_bytes, owner, tags)
        past.env.run(until=now)
        for name in _IN_FLIGHT:
            setattr(self, name, getattr(past, name))
        for arrive_ps, flows in past._coming.values():  # noqa: SLF001
            self._arrive_after(arrive_ps - now, flows)
        if len(self._route):
            self._wake(self._next_completion_ps())

    def _arrive_after(self, delay_ps: int, flows: _Flows) -> None:
        number = self._sent
        self._sent += 1
        self._coming[number] = int(self.env.now) + delay_ps, flows

        def arrive(_: object) -> None:
            del self._coming[number]
            self._arriving.append(flows)
            self._settle_soon()

        if delay_ps == 0:
            arrive(None)
        else:
            timeout = self.env.timeout(delay_ps)
            assert timeout.callbacks is not None
            timeout.callbacks.append(arrive)

    def _settle_soon(self) -> None:
        if not self._settling:
            self._settling = True
            at_end_of_instant(self.env, self._settle)

    def _settle(self) -> None:
        """Take away what has completed, tell its owners, add what has arrived, and find the new rates."""
        now = int(self.env.now)
        changed = [self._route] if self._stale else []
        self._stale = False
        done = self._finish_ps <= now
        if done.any():
            changed.append(self._route[done])
            owners, tags = self._owner[done], self._tag[done]
            self._keep(~done)
            for owner in sorted(set(owners.tolist())):
                self._owners[owner](tags[owners == owner])
        if self._arriving:
            arriving, self._arriving = self._arriving, []
            changed.extend(routes for routes, _, _, _ in arriving)
            self._enter(arriving, now)
        self._settling = False
        if len(self._route):
            if changed:
                self._share(np.concatenate(changed), now)
            self._wake(self._next_completion_ps())
        if self._on_loads is not None:
            self._on_loads(now, self._loads_Bps())

    def _loads_Bps(self) -> NDArray[np.float64]:
        """Return what every link carries now, float64 of shape (links,)."""
        crossings = self._crossings(self._route)
        rates = np.repeat(self._rate, self._route_length[self._route]) * self._weights[crossings]
        loads = np.bincount(self._links[crossings], rates, len(self._capacity))[: self._fabric_links]
        return loads.astype(np.float64) * PS_PER_S

    def _next_completion_ps(self) -> int:
        """Return when the next flows complete: the latest of those that tie with the earliest."""
        earliest = int(self._finish_ps.min())
        slack = ((earliest - self._entered_ps) * TIE).astype(np.int64)
        return int(self._finish_ps[self._finish_ps <= earliest + slack].max())

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        self._route, self._remaining, self._rate = self._route[kept], self._remaining[kept], self._rate[kept]
        self._since_ps, self._finish_ps = self._since_ps[kept], self._finish_ps[kept]
        self._entered_ps = self._entered_ps[kept]
        self._owner, self._tag = self._owner[kept], self._tag[kept]

    def _enter(
        self,
        arriving: list[_Flows],
        now: int,
    ) -> None:
        routes = np.concatenate([flows[0] for flows in arriving])
        count = len(routes)
        self._route = np.concatenate([self._route, routes])
        self._remaining = np.concatenate([self._remaining, *(flows[1] for flows in arriving)])
        self._rate = np.concatenate([self._rate, np.zeros(count)])
        self._since_ps = np.concatenate([self._since_ps, np.full(count, now)])
        self._entered_ps = np.concatenate([self._entered_ps, np.full(count, now)])
        self._finish_ps = np.concatenate([self._finish_ps, np.full(count, now)])
        self._owner = np.concatenate([self._owner, *(np.full(len(flows[0]), flows[2]) for flows in arriving)])
        self._tag = np.concatenate([self._tag, *(flows[3] for flows in arriving)])

    def _crossings(self, routes: NDArray[np.int64]) -> NDArray[np.int64]:
        return gather_slices(self._route_start[routes], self._route_length[routes])

    def _touched(self, changed: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of the flows connected to the changed routes through shared links."""
        crossings = self._crossings(self._route)
        links = self._links[crossings]
        starts = np.concatenate([[0], np.cumsum(self._route_length[self._route])[:-1]])
        marked = np.zeros(len(self._capacity), bool)
        marked[self._links[self._crossings(changed)]] = True
        reached = 0
        while True:
            touched = np.logical_or.reduceat(marked[links], starts)
            count = int(np.count_nonzero(touched))
            if count == reached:
                return np.flatnonzero(touched)
            reached = count
            marked[links[np.repeat(touched, self._route_length[self._route])]] = True

    def _share(self, changed: NDArray[np.int64], now: int) -> None:
        """Find new rates for the flows that the change touches, and when they will finish."""
        key = self._route.tobytes()
        rates = self._solutions.get(key)
        if rates is None:
            fresh = len(changed) == len(self._route) and not self._rate.any()
            touched = np.arange(len(self._route)) if fresh else self._touched(changed)
            rates = self._rate.copy()
            if len(touched):
                rates[touched] = self._solve(self._route[touched])
            if len(self._solutions) >= _REMEMBERED_SOLUTIONS:
                self._solutions.clear()
            self._solutions[key] = rates
        moved = rates != self._rate
        if not moved.any():
            return
        elapsed = now - self._since_ps[moved]
        self._remaining[moved] = np.maximum(self._remaining[moved] - self._rate[moved] * elapsed, 0.0)
        self._rate[moved] = rates[moved]
        self._since_ps[moved] = now
        self._finish_ps[moved] = now + whole_ps(self._remaining[moved] / rates[moved])

    def _solve(self, routes: NDArray[np.int64]) -> NDArray[np.float64]:
        self.solves += 1
        crossings = self._crossings(routes)
        offsets = np.concatenate([[0], np.cumsum(self._route_length[routes])])
        return fair_rates(offsets, self._links[crossings], self._weights[crossings], self._capacity)

    def _wake(self, at_ps: int) -> None:
        if at_ps == self._wake_ps and at_ps > self.env.now:
            return
        self._wake_ps = at_ps

        def wake(_: object) -> None:
            if self._wake_ps == at_ps:
                self._settle_soon()

        timeout = self.env.timeout(max(at_ps - int(self.env.now), 0))
        assert timeout.callbacks is not None
        timeout.callbacks.append(wake)
