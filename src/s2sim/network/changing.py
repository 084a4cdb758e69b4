"""The fluid network while links slow down, recover and fail."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from s2sim.network.fluid import FluidNetwork
from s2sim.network.in_flight import Sent
from s2sim.topology.damage import failures
from s2sim.topology.detours import detour
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    import simpy
    from numpy.typing import NDArray

    from s2sim.network.fluid import OnLoads
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes

    Indices = NDArray[np.int64]

# What adding and taking away may leave of nothing.
_ROUNDING_BYTES = 1e-3


@dataclass(slots=True, eq=False)
class Change:
    """What happens to some links from a moment on, and whom it has met so far.

    Attributes
    ----------
    links : int64 array, shape (k,)
        Which.
    factor : float
        Of their rate; 0 where they have failed.
    messages : int
        Those that crossed the links while they were slow, or that went around them because they had failed.
    """

    links: NDArray[np.int64]
    factor: float
    messages: int = 0
    numbers: set[int] = field(default_factory=set)  # of routes that would cross the links


class ChangingNetwork(FluidNetwork):
    """A fluid network whose links may change while flows are in flight.

    What is in flight over a link that fails goes on another way with the bytes that it has left; the latency of that
    way is not waited for again. Whatever is sent later takes the other way from the start.

    Parameters
    ----------
    env : simpy.Environment
        Its time is integer picoseconds.
    cluster : Cluster
        Whose links they are, with their rates at the start; some may be dead already.
    on_loads : callable, optional
        As of `FluidNetwork`.
    """

    def __init__(self, env: simpy.Environment, cluster: Cluster, on_loads: OnLoads | None = None) -> None:
        super().__init__(env, cluster.fabric, on_loads)
        self._router = cluster.router
        self._changes: list[Change] = []
        dead, why = failures(cluster)
        self._dead = dead.copy()
        self._why = list(why)
        # By the number of a route: the route to take instead, the bytes sent over it, and the ranks that it joins.
        self._instead = np.zeros(0, np.int64)
        self._carried = np.zeros(0)
        self._pairs: dict[int, tuple[int, int]] = {}

    def add_routes(self, routes: Routes) -> Indices:
        """Make routes known and return their numbers, int64 of shape (routes,)."""
        numbers = super().add_routes(routes)
        self._instead = np.concatenate([self._instead, numbers])
        self._carried = np.concatenate([self._carried, np.zeros(len(numbers))])
        return numbers

    def join(self, numbers: Indices, src: Indices, dst: Indices) -> None:
        """Say which ranks routes lead from and to, for messages and for who shared a link."""
        self._pairs.update(zip(numbers.tolist(), zip(src.tolist(), dst.tolist(), strict=True), strict=True))

    def slow_down(self, links: Indices, factor: float) -> Change:
        """Let links carry ``factor`` of what they do from now on, beside whatever else slows them."""
        change = self._begin(links, factor)
        change.messages += int(self.known.crossing(self._here(), links).sum())
        return change

    def recover(self, change: Change) -> None:
        """End what `slow_down` began."""
        self._changes.remove(change)
        self._set_rates()

    def fail(self, links: Indices, why: str) -> Change:
        """Let nothing cross links from now on; ``why`` says what has failed, for messages.

        Raises
        ------
        TopologyError
            Where something in flight, or sent later, has no other way.
        """
        change = self._begin(links, 0.0)
        self._dead[links] = True
        self._why.append(why)
        here, waiting = self._here(), self._waiting()
        self._lead_around(here)
        change.messages += sum(number in change.numbers for number in here.tolist())
        now = int(self.env.now)
        for number in self._unended():
            route = self.in_flight.flows[number].route
            if self._instead[route] != route:
                left = np.array([self.in_flight.left_bytes(number, now)])
                flow = self.in_flight.remove(number)
                self._carried[route] -= left[0]
                self._carried[self._instead[route]] += left[0]
                self._arriving.append(Sent(self._instead[[route]], left, flow.owner, np.array([flow.tag])))
        for sent in waiting:
            np.subtract.at(self._carried, sent.routes, sent.sizes_bytes)
            # The array is this network's own: `send` made it.
            sent.routes[:] = self._instead[sent.routes]
            np.add.at(self._carried, sent.routes, sent.sizes_bytes)
        return change

    def send(self, routes: Indices, sizes_bytes: NDArray[np.float64], owner: int, tags: Indices) -> None:
        """Start transfers now, around what has failed; see `FluidNetwork.send`."""
        self._lead_around(routes)
        taken = self._instead[routes]
        for change in self._changes:
            if change.factor:
                change.messages += int(self.known.crossing(taken, change.links).sum())
            elif change.numbers:
                change.messages += sum(number in change.numbers for number in routes.tolist())
        np.add.at(self._carried, taken, sizes_bytes)
        super().send(taken, sizes_bytes, owner, tags)

    def pass_by(self, routes: Indices, sizes_bytes: NDArray[np.float64]) -> None:
        """Take note of transfers whose ends are known without sending them, as nothing else meets them."""
        np.add.at(self._carried, self._instead[routes], sizes_bytes)

    def sent(self) -> tuple[Routes, Indices, Indices, NDArray[np.float64]]:
        """Return all routes that carried anything until now, the ranks that they join, and the bytes of each."""
        carried = self._carried.copy()
        for number, flow in self.in_flight.flows.items():
            carried[flow.route] -= self.in_flight.left_bytes(number, int(self.env.now))
        for sent in self._waiting():
            np.subtract.at(carried, sent.routes, sent.sizes_bytes)
        numbers = np.flatnonzero(carried > _ROUNDING_BYTES)
        src, dst = self._joined(numbers)
        return self.known.take(numbers), src, dst, carried[numbers]

    def _joined(self, numbers: Indices) -> tuple[Indices, Indices]:
        pairs = np.array([self._pairs[number] for number in numbers.tolist()], np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _waiting(self) -> list[Sent]:
        """Return what has been sent and shares no link yet."""
        return [*(sent for _, sent in self.coming.values()), *self._arriving]

    def _begin(self, links: Indices, factor: float) -> Change:
        change = Change(links, factor)
        self._changes.append(change)
        self._set_rates()
        return change

    def _set_rates(self) -> None:
        """Find the rates of all links, and let all flows in flight be solved again."""
        capacity = self._router.fabric.rate_Bps / PS_PER_S
        for change in self._changes:
            if change.factor:
                capacity[change.links] *= change.factor
        self.in_flight.set_capacity(capacity)
        self._settle_soon()

    def _unended(self) -> list[int]:
        """Return the numbers of the flows in flight that do not end now."""
        return [number for number in self.in_flight.flows if self.in_flight.finish_ps(number) > self.env.now]

    def _here(self) -> Indices:
        """Return the route of every transfer that has been sent and has not arrived."""
        flying = [self.in_flight.flows[number].route for number in self._unended()]
        return np.concatenate([np.array(flying, np.int64), *(sent.routes for sent in self._waiting())])

    def _lead_around(self, numbers: Indices) -> None:
        """Find other ways for those routes that cross links that have failed."""
        if not self._why:
            return
        asked = np.unique(numbers)
        taken = self._instead[asked]
        hit = self.known.crossing(taken, np.flatnonzero(self._dead))
        if not hit.any():
            return
        asked, taken = asked[hit], taken[hit]
        for change in self._changes:
            if not change.factor:
                met = self.known.crossing(taken, change.links)
                change.numbers.update(asked[met].tolist(), taken[met].tolist())
        src, dst = self._joined(taken)
        why = " and ".join(self._why)
        ways = detour(self._router, self.known.take(taken), self._dead, pairs=(src, dst), why=why)
        new = self.add_routes(ways)
        self.join(new, src, dst)
        self._instead[asked] = new
        self._instead[taken] = new
