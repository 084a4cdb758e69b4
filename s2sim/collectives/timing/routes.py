"""Routes of patterns, searched once: they do not depend on rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.schedule import Pattern, Schedule, TransferLegs
from s2sim.collectives.timing.library_profile import PatternCache
from s2sim.network.base import Network
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes, concatenate_routes

OnRoutes = Callable[[Ints, Ints, Ints], None]


# Some 32 bytes each.
_CACHED_CROSSINGS = 1 << 22
# As long as messages are found to share links by looking at all, graphs need not be loaded.
_PASSES = 8


def find_routes(cluster: Cluster, pattern: Pattern) -> Routes:
    """Return one route a message of the pattern, with what a library adds to it."""
    if pattern.groups > 1:
        routes = concatenate_routes([_switch_group_route(cluster, pattern, group) for group in range(pattern.groups)])
    elif pattern.legs is not None:
        legs = pattern.legs
        routes = cluster.reduction_over_nodes(cluster.routes(legs.src, legs.dst), legs.share, legs.depth)
    else:
        routes = cluster.reduction_tree() if pattern.through_switch else cluster.routes(pattern.src, pattern.dst)
    return routes if pattern.overheads is None else pattern.overheads.added_to(routes)


def _switch_group_route(cluster: Cluster, pattern: Pattern, group: int) -> Routes:
    """Return the route of one group's message through its switches; its ranks follow each other."""
    own, legs = pattern.src[group :: pattern.groups], pattern.legs
    if legs is not None:
        src, dst = (side[group :: pattern.groups] - own[0] for side in (legs.src, legs.dst))
        legs = TransferLegs(src, dst, legs.share, legs.depth)
    ranks = np.arange(len(own))
    return find_routes(cluster.within(own.tolist()), Pattern(ranks, ranks, through_switch=True, legs=legs))


def all_equal(sizes_bytes: Floats) -> bool:
    """Return whether all messages have the same size, float64 of shape (m,)."""
    return bool((sizes_bytes == sizes_bytes[0]).all())


@dataclass(frozen=True, eq=False)
class RouteSet:
    """The routes of a pattern's messages, and who shares which link."""

    original_routes: Routes  # One a message
    routes: Routes  # The same with their limits as links, numbered after the cluster's
    limits_Bps: Floats  # Rates of these links
    used: Ints  # Links that any of them crosses
    place: Ints  # Which of these each crossing is
    load: Floats  # Messages on each; of one that is split over several links, its share on this one
    soonest_ps: Ints  # The least latency of the messages on each

    @cached_property
    def inside(self) -> tuple[Ints, Ints, Mask]:
        """Which used links lie inside which: all that crosses the one crosses the other too, in shares no smaller.

        Returns
        -------
        inner, outer : int64 array, shape (p,)
            Places in ``used``.
        mutual : bool array, shape (p,)
            Whether the outer one lies inside the inner one too.
        """
        lengths = np.diff(self.routes.offsets)
        flow = np.repeat(np.arange(len(lengths)), lengths)
        row = np.full((len(lengths), int(lengths.max())), -1)
        weight = np.zeros(row.shape)
        column = np.arange(len(flow)) - self.routes.offsets[flow]
        row[flow, column], weight[flow, column] = self.place, self.routes.weights
        # What a message that crosses a link twice has on it is the sum, and counts where it crosses it first.
        own = row[flow] == self.place[:, None]
        first = own.argmax(axis=1) == column
        place, links, shares = self.place[first], row[flow[first]], weight[flow[first]]
        needed = (shares * own[first]).sum(axis=1)
        users = np.bincount(place)
        # Whatever holds a link lies on the way of its first message.
        candidates = links[np.unique(place, return_index=True)[1]]
        inner, outer = [], []
        for candidate in candidates.T:
            also = (shares * (links == candidate[place][:, None])).sum(axis=1) >= needed
            together = np.bincount(place, also, len(users))
            found = np.flatnonzero((together == users) & (candidate >= 0) & (candidate != np.arange(len(users))))
            inner.append(found)
            outer.append(candidate[found])
        inside, around = np.concatenate(inner), np.concatenate(outer)
        return inside, around, users[inside] == users[around]

    def binding(self, capacity: Floats) -> Mask:
        """Return which crossings can hold a message back, bool of the shape of ``place``.

        A link never does whose messages all cross another one that is no wider: what shares it out may leave it out.

        Parameters
        ----------
        capacity : float64 array
            Of every link, and of those that stand for limits.
        """
        inner, outer, mutual = self.inside
        narrow = capacity[self.used]
        idle = (narrow[outer] < narrow[inner]) | ((narrow[outer] == narrow[inner]) & (~mutual | (outer < inner)))
        binds = np.ones(len(self.used), np.bool_)
        binds[inner[idle]] = False
        return binds[self.place]

    @property
    def alone(self) -> Mask:
        """Which messages share no link with another, bool of shape (m,)."""
        users = np.bincount(self.place)[self.place]
        alone: Mask = np.maximum.reduceat(users, self.routes.offsets[:-1]) == 1
        return alone

    def bytes_on_links(self, sizes_bytes: Floats) -> Floats:
        """Return the bytes on each used link, float64 of shape (k,), for messages of some sizes, shape (m,)."""
        if all_equal(sizes_bytes):
            return self.load * float(sizes_bytes[0])
        crossing = np.repeat(sizes_bytes, np.diff(self.routes.offsets)) * self.routes.weights
        return np.bincount(self.place, crossing, len(self.used)).astype(np.float64)

    @cached_property
    def component(self) -> Ints:
        """A number for each message, alike where messages share links, also by way of others; int64 of shape (m,)."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        messages = len(self.routes.latency_ps)
        size = messages + len(self.used)
        ends = np.concatenate([self.routes.offsets, np.full(len(self.used), self.routes.offsets[-1])])
        crossed = np.ones(len(self.place), np.int8)
        labels = connected_components(csr_array((crossed, messages + self.place, ends), (size, size)), directed=False)[
            1
        ]
        return np.asarray(labels[:messages], np.int64)

    def sharing_with(self, chosen: Mask) -> Mask:
        """Return which messages share links with chosen ones, also by way of others, both bool of shape (m,)."""
        lengths, starts = np.diff(self.routes.offsets), self.routes.offsets[:-1]
        found = int(np.count_nonzero(chosen))
        for _ in range(_PASSES):
            if found == len(chosen):
                return chosen
            marked = np.zeros(len(self.used), np.bool_)
            marked[self.place[np.repeat(chosen, lengths)]] = True
            chosen = np.logical_or.reduceat(marked[self.place], starts)
            before, found = found, int(np.count_nonzero(chosen))
            if found == before:
                return chosen
        # Long chains, which a pass would follow by one link.
        held = np.zeros(len(chosen), np.bool_)
        held[self.component[chosen]] = True
        return held[self.component]


class RouteTable:
    """The ways of a cluster's patterns, by content; as many as memory holds are kept.

    Parameters
    ----------
    cluster : Cluster
        Where; other clusters that differ from it in rates alone have the same.

    Attributes
    ----------
    searches : int
        How often routes were looked for.
    sent : PatternCache
        What libraries add to patterns.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._found: dict[bytes, RouteSet] = {}
        self._crossings = 0
        self._within: dict[tuple[int, ...], RouteTable] = {}
        self.searches = 0
        self.sent = PatternCache()

    def within(self, ranks: tuple[int, ...]) -> RouteTable:
        """Return the ways of a group of some ranks, numbered from 0."""
        if ranks not in self._within:
            self._within[ranks] = RouteTable(self._cluster.within(ranks))
        return self._within[ranks]

    def of(self, pattern: Pattern) -> RouteSet:
        """Return the way of a pattern's messages."""
        way = self._found.pop(pattern.key, None)
        if way is None:
            way = self._search(pattern)
            self._crossings += len(way.place)
            while self._found and self._crossings > _CACHED_CROSSINGS:
                self._crossings -= len(self._found.pop(next(iter(self._found))).place)
        # The last in order is the last used.
        self._found[pattern.key] = way
        return way

    def routes(self, pattern: Pattern) -> Routes:
        """Return the routes of a pattern's messages, without keeping them."""
        way = self._found.get(pattern.key)
        if way is not None:
            return way.original_routes
        if pattern.part_of is not None:
            whole, chosen = pattern.part_of
            routes = self.of(whole).original_routes.take(chosen)
            return routes if pattern.overheads is None else pattern.overheads.added_to(routes)
        self.searches += 1
        return find_routes(self._cluster, pattern)

    def _search(self, pattern: Pattern) -> RouteSet:
        given = self.routes(pattern)
        routes, limits_Bps = given.with_limits_as_links(len(self._cluster.fabric))
        users = np.bincount(routes.links)
        used = np.flatnonzero(users)
        numbers = np.empty(len(users), np.int64)
        numbers[used] = np.arange(len(used))
        place = numbers[routes.links]
        soonest_ps = np.full(len(used), routes.latency_ps.max())
        if soonest_ps.any() and routes.latency_ps.min() < soonest_ps[0]:
            np.minimum.at(soonest_ps, place, np.repeat(routes.latency_ps, np.diff(routes.offsets)))
        load = np.bincount(place, routes.weights).astype(np.float64)
        return RouteSet(given, routes, limits_Bps, used, place, load, soonest_ps)


class RouteNumbers:
    """Routes of patterns as a network knows them, each pattern's found once.

    Parameters
    ----------
    network : Network
        Is told of them.
    schedule : Schedule
        Whose patterns they are. Where a step follows the last byte of another, latency passes after the bytes instead
        of before.
    cluster : Cluster
        Gives the routes.
    on_routes : callable, optional
        Told of the network's numbers of routes, and of the ranks from which and to which they lead.
    """

    def __init__(self, network: Network, schedule: Schedule, cluster: Cluster, on_routes: OnRoutes | None) -> None:
        self._network = network
        self._by_sending = schedule.release == "sent"
        self._cluster = cluster
        self._on_routes = on_routes
        self._known: dict[bytes, tuple[Ints, Ints]] = {}

    def of(self, pattern: Pattern) -> tuple[Ints, Ints]:
        """Return the numbers of a pattern's routes, and the latency after their bytes, both int64 of shape (m,)."""
        if pattern.key not in self._known:
            routes = find_routes(self._cluster, pattern)
            nothing = np.zeros_like(routes.latency_ps)
            if self._by_sending:
                numbers, after_ps = self._network.add_routes(replace(routes, latency_ps=nothing)), routes.latency_ps
            else:
                numbers, after_ps = self._network.add_routes(routes), nothing
            self._known[pattern.key] = numbers, after_ps
            if self._on_routes is not None:
                self._on_routes(numbers, pattern.src[: len(numbers)], pattern.dst[: len(numbers)])
        return self._known[pattern.key]
