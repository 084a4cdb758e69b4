"""The fluid network while links slow down, recover and fail."""

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import simpy

from s2sim.arrays import Floats, Ints
from s2sim.errors import OptionError, S2SimError
from s2sim.network.active_flows import TransferBatch
from s2sim.network.fluid import FluidNetwork, OnLoads
from s2sim.topology.cluster import Cluster, failed_links
from s2sim.topology.graph import Routes
from s2sim.topology.routing import reroute
from s2sim.units import PS_PER_S

_BATCH = 256  # messages sampled at a time
_PAIRS = 1 << 18  # pairs of ranks for which routes are computed at a time
_SHOWN = 0.995  # three digits of the largest load must not round to more
_MAX_MESSAGES = 200_000  # some minutes
_ROUNDING_BYTES = 1e-3  # what adding and subtracting may leave of zero


@dataclass(eq=False)
class BackgroundTraffic:
    """Messages of ``size_bytes`` that load every network interface in use to a share of its rate, on average.

    A message leaves through an interface with a probability in proportion to its rate, from one of the ranks that use
    it, to any rank of the other nodes with the same probability. Links that transmit more of it than interfaces do, as
    in a torus or an oversubscribed tree, fill at a smaller load, and a load at which they would is refused.
    ``messages`` counts those sent until now.
    """

    network: "TimeVaryingNetwork"
    cluster: Cluster
    load: float
    size_bytes: int
    generator: np.random.Generator
    messages: int = 0

    def __post_init__(self) -> None:
        shared_Bps = check_background(self.cluster, self.load)
        # Of each rank the probability that it sends a message; and the rate of all interfaces.
        self._probability, self.rate_Bps = shared_Bps / shared_Bps.sum(), float(shared_Bps.sum())
        self._gap_ps = self.size_bytes / (self.load * self.rate_Bps) * 1e12
        self._numbers: dict[tuple[int, int], int] = {}
        self._by_node = np.argsort(self.cluster.node_of_rank, kind="stable")

    def run(self) -> Generator[simpy.Event, None, None]:
        """Send for as long as the simulation lasts."""
        env = self.network.env
        owner = self.network.add_owner(lambda _: None)
        size = np.array([float(self.size_bytes)])
        at_ps = float(env.now)
        while True:
            gaps_ps = self.generator.exponential(self._gap_ps, _BATCH).tolist()
            for gap_ps, number in zip(gaps_ps, self._draw(), strict=True):
                at_ps += gap_ps
                yield env.timeout(round(at_ps) - int(env.now))
                self.network.send(np.array([number]), size, owner, np.zeros(1, np.int64))
                self.messages += 1
            if self.messages >= _MAX_MESSAGES:
                raise S2SimError(
                    f"background traffic has sent {self.messages:,} messages of {self.size_bytes:,} bytes in "
                    f"{env.now / 1e12:g} s, as many as are simulated: ask for larger ones (size=) or a smaller load"
                )

    def _draw(self) -> list[int]:
        cluster = self.cluster
        src = self.generator.choice(cluster.workers, _BATCH, p=self._probability)
        # Ranks sorted by node: any position except those of the sender's node.
        nodes = cluster.node_of_rank[self._by_node]
        first = np.searchsorted(nodes, cluster.node_of_rank[src])
        count = np.searchsorted(nodes, cluster.node_of_rank[src], side="right") - first
        position = (self.generator.random(_BATCH) * (cluster.workers - count)).astype(np.int64)
        dst = self._by_node[position + np.where(position >= first, count, 0)]
        pairs = list(zip(src.tolist(), dst.tolist(), strict=True))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._numbers]
        if new:
            ends = np.array(new, np.int64).T
            numbers = self.network.add_routes(cluster.routes(*ends))
            self.network.join(numbers, *ends)
            self._numbers.update(zip(new, numbers.tolist(), strict=True))
        return [self._numbers[pair] for pair in pairs]


@lru_cache(maxsize=8)
def check_background(cluster: Cluster, load: float) -> Floats:
    """Return each rank's share of interfaces, bytes/s of shape (ranks,); refuse a load for which links have no room."""
    if cluster.nodes_used == 1:
        raise OptionError("background traffic goes between nodes, and all ranks are in one: leave it out")
    ports = cluster.layout.node_set.ports_of_gpu[cluster.gpu_of_rank]
    rates = cluster.fabric.rate_Bps[cluster.fabric.blocks["nic.out"].part][ports]
    shared_Bps: Floats = (rates / np.bincount(ports.reshape(-1))[ports]).sum(axis=1)
    # What links carry at a load of 1, at which ranks send all of their shares.
    node, ranks = cluster.node_of_rank, np.arange(cluster.workers)
    to_each_Bps = shared_Bps / (cluster.workers - np.bincount(node)[node])
    carried_Bps = np.zeros(len(cluster.fabric))
    for some in np.array_split(ranks, max(1, cluster.workers**2 // _PAIRS)):
        src, dst = np.repeat(some, cluster.workers), np.tile(ranks, len(some))
        apart = node[src] != node[dst]
        routes = cluster.routes(src[apart], dst[apart])
        crossing_Bps = np.repeat(to_each_Bps[src[apart]], np.diff(routes.offsets)) * routes.weights
        carried_Bps += np.bincount(routes.links, crossing_Bps, len(carried_Bps))
    share = carried_Bps / cluster.fabric.rate_Bps
    fullest = int(share.argmax())
    most = float(1 / share[fullest])
    if load >= most:
        link = cluster.fabric.link_names[fullest]
        raise OptionError(
            f"background traffic of load={load:g} of what interfaces carry would fill link {link}, which others "
            f"cross too: it carries at most load={most * _SHOWN:.3g} here"
        )
    return shared_Bps


@dataclass(slots=True, eq=False)
class LinkChange:
    """A change of some links from some time on."""

    links: Ints
    factor: float  # Of their rate; 0 if they have failed
    messages: int = 0  # That crossed the links while they were slow, or went around them after they failed
    numbers: set[int] = field(default_factory=set)  # Of routes that would cross the links


class TimeVaryingNetwork(FluidNetwork):
    """A fluid network with links that may change while flows are in flight.

    A flow over a link that fails continues on another route with its remaining bytes, without waiting for the latency
    of that route. Later transfers take the other route from the start. Links of ``cluster`` may have failed already.
    """

    def __init__(self, env: simpy.Environment, cluster: Cluster, on_loads: OnLoads | None = None) -> None:
        super().__init__(env, cluster.fabric, on_loads)
        self._router = cluster.router
        self._changes: list[LinkChange] = []
        dead, why = failed_links(cluster)
        self._dead = dead.copy()
        self._why = list(why)
        # By the number of a route: the route taken instead, the bytes sent over it, and the ranks that it joins.
        self._instead = np.zeros(0, np.int64)
        self._carried = np.zeros(0)
        self._pairs: dict[int, tuple[int, int]] = {}

    def add_routes(self, routes: Routes) -> Ints:
        numbers = super().add_routes(routes)
        self._instead = np.concatenate([self._instead, numbers])
        self._carried = np.concatenate([self._carried, np.zeros(len(numbers))])
        return numbers

    def join(self, numbers: Ints, src: Ints, dst: Ints) -> None:
        """Register the ranks at the ends of routes, for messages and for the flows that shared a link."""
        self._pairs.update(zip(numbers.tolist(), zip(src.tolist(), dst.tolist(), strict=True), strict=True))

    def slow_down(self, links: Ints, factor: float) -> LinkChange:
        """Scale the rates of links by ``factor`` from now on, in addition to other changes."""
        change = LinkChange(links, factor)
        self._changes.append(change)
        self._set_rates()
        change.messages += int(self.known.crossing(self._routes_in_flight(), links).sum())
        return change

    def recover(self, change: LinkChange) -> None:
        """End what `slow_down` began."""
        self._changes.remove(change)
        self._set_rates()

    def fail(self, links: Ints, why: str) -> LinkChange:
        """Let nothing cross links from now on; ``why`` names the failure in messages.

        `TopologyError` if a transfer in flight, or sent later, has no other route.
        """
        change = LinkChange(links, 0.0)
        self._changes.append(change)
        self._set_rates()
        self._dead[links] = True
        self._why.append(why)
        routes, waiting = self._routes_in_flight(), self._waiting()
        self._lead_around(routes)
        change.messages += sum(number in change.numbers for number in routes.tolist())
        now = int(self.env.now)
        for number in self._unended():
            route = self.in_flight.flows[number].route
            if self._instead[route] != route:
                left = np.array([self.in_flight.left_bytes(number, now)])
                flow = self.in_flight.remove(number)
                self._carried[route] -= left[0]
                self._carried[self._instead[route]] += left[0]
                self._arriving.append(TransferBatch(self._instead[[route]], left, flow.owner, np.array([flow.tag])))
        for sent in waiting:
            np.subtract.at(self._carried, sent.routes, sent.sizes_bytes)
            # The array is this network's own: `send` made it.
            sent.routes[:] = self._instead[sent.routes]
            np.add.at(self._carried, sent.routes, sent.sizes_bytes)
        return change

    def send(self, routes: Ints, sizes_bytes: Floats, owner: int, tags: Ints) -> None:
        """Start transfers now, around failed links; see `Network.send`."""
        self._lead_around(routes)
        taken = self._instead[routes]
        for change in self._changes:
            if change.factor:
                change.messages += int(self.known.crossing(taken, change.links).sum())
            elif change.numbers:
                change.messages += sum(number in change.numbers for number in routes.tolist())
        np.add.at(self._carried, taken, sizes_bytes)
        super().send(taken, sizes_bytes, owner, tags)

    def record_unsent(self, routes: Ints, sizes_bytes: Floats) -> None:
        """Record transfers whose ends are known without sending them, because they share no link."""
        np.add.at(self._carried, self._instead[routes], sizes_bytes)

    def sent(self) -> tuple[Routes, Ints, Ints, Floats]:
        """Return all routes in use until now, the ranks that they join, and the bytes of each."""
        carried = self._carried.copy()
        for number, flow in self.in_flight.flows.items():
            carried[flow.route] -= self.in_flight.left_bytes(number, int(self.env.now))
        for sent in self._waiting():
            np.subtract.at(carried, sent.routes, sent.sizes_bytes)
        numbers = np.flatnonzero(carried > _ROUNDING_BYTES)
        return self.known.routes.take(numbers), *self._joined(numbers), carried[numbers]

    def _joined(self, numbers: Ints) -> Ints:
        """Return the ranks at both ends of routes, int64 of shape (2, routes)."""
        return np.array([self._pairs[number] for number in numbers.tolist()], np.int64).reshape(-1, 2).T

    def _waiting(self) -> list[TransferBatch]:
        return [*(sent for _, sent in self.coming.values()), *self._arriving]

    def _set_rates(self) -> None:
        capacity = self._router.fabric.rate_Bps / PS_PER_S
        for change in self._changes:
            if change.factor:
                capacity[change.links] *= change.factor
        self.in_flight.set_capacity(capacity)
        self._settle_soon()

    def _unended(self) -> list[int]:
        return [number for number in self.in_flight.flows if self.in_flight.finish_ps(number) > self.env.now]

    def _routes_in_flight(self) -> Ints:
        flying = [self.in_flight.flows[number].route for number in self._unended()]
        return np.concatenate([np.array(flying, np.int64), *(sent.routes for sent in self._waiting())])

    def _lead_around(self, numbers: Ints) -> None:
        if not self._why:
            return
        requested = np.unique(numbers)
        taken = self._instead[requested]
        hit = self.known.routes.take(taken).crossing(self._dead)
        if not hit.any():
            return
        requested, taken = requested[hit], taken[hit]
        for change in self._changes:
            if not change.factor:
                crossing = self.known.crossing(taken, change.links)
                change.numbers.update(requested[crossing].tolist(), taken[crossing].tolist())
        (src, dst), why = self._joined(taken), " and ".join(self._why)
        routes = self.known.routes.take(taken)
        new = self.add_routes(reroute(self._router, routes, self._dead, pairs=(src, dst), why=why))
        self.join(new, src, dst)
        self._instead[requested] = new
        self._instead[taken] = new
