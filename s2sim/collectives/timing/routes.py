"""Routes of patterns, searched once: they do not depend on rates."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.schedule import Pattern, TransferLegs
from s2sim.collectives.timing.library_profile import PatternCache, RecentCache, all_equal
from s2sim.errors import TopologyError
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes, concatenate_routes

if TYPE_CHECKING:
    from s2sim.collectives.timing.shapes import KeptSchedules

OnRoutes = Callable[[Ints, Ints, Ints], None]
KnownRoutes = dict[tuple[bool, bytes], tuple[Ints, Ints]]
"""Numbers of routes in a network and the latency after the bytes, by whether that is waited for, and by pattern."""

# Some 40 bytes each.
_CACHED_CROSSINGS = 1 << 20
# Some 5 bytes each.
_PACKED_CROSSINGS = 1 << 23
# Passes over all messages in search of shared links, before graphs are used.
_PASSES = 8


def find_routes(cluster: Cluster, pattern: Pattern) -> Routes:
    """Return the routes of the messages of a pattern, with the overheads of a library."""
    legs = pattern.legs
    if pattern.groups > 1 or (pattern.through_switch and len(pattern.src) < cluster.workers):
        each = []
        for group in range(pattern.groups):
            # The ranks of a group are consecutive.
            own, its_legs = pattern.src[group :: pattern.groups], None
            if legs is not None:
                src, dst = (side[group :: pattern.groups] - own[0] for side in (legs.src, legs.dst))
                its_legs = TransferLegs(src, dst, legs.share, legs.depth)
            ranks, view = np.arange(len(own)), cluster.within(own.tolist())
            each.append(find_routes(view, Pattern(ranks, ranks, through_switch=True, legs=its_legs)))
        routes = concatenate_routes(each)
    elif legs is not None:
        routes = cluster.reduction_over_nodes(cluster.routes(legs.src, legs.dst), legs.share, legs.depth)
    else:
        routes = cluster.reduction_tree() if pattern.through_switch else cluster.routes(pattern.src, pattern.dst)
    return routes if pattern.overheads is None else pattern.overheads.added_to(routes)


def components(item: Ints, link: Ints, items: int, links: int) -> Ints:
    """Return the connected component of each of some items by shared links, int64 of shape (items,).

    ``item`` and ``link``, of one shape, are the crossings of items and links.
    """
    # The least item that each has reached so far. SciPy has it too: its import takes longer than a small run's search.
    label, before = np.arange(items), np.zeros(0, np.int64)
    while not np.array_equal(label, before):
        before, of_link = label, np.full(links, items)
        np.minimum.at(of_link, link, label[item])
        label = label.copy()
        np.minimum.at(label, item, of_link[link])
        label = label[label]
    return label


def independent_messages(routes: Routes, capacity: Floats) -> list[Ints]:
    """Return the indices of messages that share no link with others, together where their links have the same rates."""
    row = np.repeat(np.arange(len(routes.latency_ps)), np.diff(routes.offsets))
    label = components(row, routes.links, len(routes.latency_ps), len(capacity))
    rates = np.tile([np.inf, 0.0], (len(label), 1))
    np.minimum.at(rates[:, 0], label[row], capacity[routes.links])
    np.maximum.at(rates[:, 1], label[row], capacity[routes.links])
    kinds, kind = np.unique(rates[label], axis=0, return_inverse=True)
    return [np.flatnonzero(kind.reshape(-1) == each) for each in range(len(kinds))]


@dataclass(frozen=True, eq=False)
class RouteSet:
    """The routes of a pattern's messages, and the links that they share."""

    original_routes: Routes
    routes: Routes  # With limits as links, numbered after those of the cluster
    limits_Bps: Floats  # Rates of these links
    used: Ints  # Links that are crossed
    place: Ints  # Index in ``used`` of each crossing
    load: Floats  # Messages on each used link; those split over several links count with their shares
    soonest_ps: Ints  # Least latency of the messages on each used link

    @property
    def alone(self) -> Mask:
        """Mask of the messages that share no link with another, bool of shape (m,)."""
        users = np.bincount(self.place)[self.place]
        alone: Mask = np.maximum.reduceat(users, self.routes.offsets[:-1]) == 1
        return alone

    def bytes_on_links(self, sizes_bytes: Floats) -> Floats:
        """Return the bytes on each used link, float64 of shape (k,), for messages of sizes of shape (m,)."""
        if all_equal(sizes_bytes):
            return self.load * float(sizes_bytes[0])
        crossing = np.repeat(sizes_bytes, np.diff(self.routes.offsets)) * self.routes.weights
        return np.bincount(self.place, crossing, len(self.used)).astype(np.float64)

    @cached_property
    def component(self) -> Ints:
        """Connected component of each message by shared links, int64 of shape (m,)."""
        message = np.repeat(np.arange(len(self.routes.latency_ps)), np.diff(self.routes.offsets))
        return components(message, self.place, len(self.routes.latency_ps), len(self.used))

    def sharing_with(self, chosen: Mask) -> Mask:
        """Return a mask of the messages connected with chosen ones by shared links, both bool of shape (m,)."""
        lengths, starts = np.diff(self.routes.offsets), self.routes.offsets[:-1]
        for _ in range(_PASSES):
            if chosen.all():
                return chosen
            marked = np.zeros(len(self.used), np.bool_)
            marked[self.place[np.repeat(chosen, lengths)]] = True
            before, chosen = chosen, np.logical_or.reduceat(marked[self.place], starts)
            if np.array_equal(before, chosen):
                return chosen
        # Long chains, of which a pass follows only one link.
        connected = np.zeros(len(chosen), np.bool_)
        connected[self.component[chosen]] = True
        return connected[self.component]


class RouteTable:
    """A cache of the routes of patterns on a cluster, and on others that differ from it in rates only.

    ``searches`` counts routes that were not cached; ``sent`` caches patterns with the overheads of libraries.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kept: KeptSchedules | None = None  # Schedules for timers at several rates, where somebody keeps them
        self.searches = 0
        self.forget()

    def forget(self) -> None:
        """Empty the caches, of which timers may need little more."""
        self._found: RecentCache[bytes, RouteSet] = RecentCache(_CACHED_CROSSINGS, lambda way: len(way.place))
        self._packed: dict[bytes, Routes] = {}
        self._packed_crossings = 0
        self._within: dict[tuple[int, ...], RouteTable] = {}
        self._apart: dict[tuple[tuple[int, ...], ...], frozenset[tuple[int, ...]]] = {}
        self.sent = PatternCache()

    def within(self, ranks: tuple[int, ...]) -> "RouteTable":
        """Return the table of a group of some ranks, numbered from 0."""
        if ranks not in self._within:
            self._within[ranks] = RouteTable(self.cluster.within(ranks))
        return self._within[ranks]

    def sharing_no_link(self, groups: tuple[tuple[int, ...], ...]) -> frozenset[tuple[int, ...]]:
        """Return the groups of ranks whose messages, also through switches, cross no link that another's cross.

        An empty group has all ranks. Of very large groups none is returned.
        """
        if groups not in self._apart:
            known = len(groups) > 1 and () not in groups and sum(len(each) ** 2 for each in groups) <= _CACHED_CROSSINGS
            links = [self._reachable_links(ranks) for ranks in groups] if known else []
            users = np.bincount(np.concatenate([np.zeros(0, np.int64), *links]))
            apart = (ranks for ranks, used in zip(groups, links, strict=False) if (users[used] == 1).all())
            self._apart[groups] = frozenset(groups if len(groups) == 1 else apart)
        return self._apart[groups]

    def _reachable_links(self, ranks: tuple[int, ...]) -> Ints:
        """Return the links between any ranks of a group and to switches that reduce, sorted, each once."""
        cluster, members = self.cluster.within(ranks), np.arange(len(ranks))
        src, dst = np.repeat(members, len(ranks)), np.tile(members, len(ranks))
        found = [cluster.routes(src[src != dst], dst[src != dst]).links]
        with suppress(TopologyError):
            found.append(cluster.reduction_tree().links)
        return np.unique(np.concatenate(found))

    def of(self, pattern: Pattern) -> RouteSet:
        """Return the routes of a pattern's messages with their links, and cache them."""
        return self._found.of(pattern.key, partial(self._search, pattern))

    def routes(self, pattern: Pattern) -> Routes:
        """Return the routes of a pattern's messages, without caching them."""
        if (way := self._found.get(pattern.key)) is not None:
            return way.original_routes
        if pattern.part_of is not None:
            whole, chosen = pattern.part_of
            routes = self.of(whole).original_routes.take(chosen)
            return routes if pattern.overheads is None else pattern.overheads.added_to(routes)
        bare = pattern if pattern.overheads is None else replace(pattern, overheads=None)
        if (packed := self._packed.get(bare.key)) is not None:
            offsets, links = packed.offsets.astype(np.int64), packed.links.astype(np.int64)
            routes = replace(packed, offsets=offsets, links=links, weights=np.array(packed.weights))
        else:
            self.searches += 1
            routes = find_routes(self.cluster, bare)
            if self._packed_crossings + len(routes.links) <= _PACKED_CROSSINGS:
                self._packed_crossings += len(routes.links)
                # In a third of the memory.
                weights = np.broadcast_to(1.0, len(routes.links)) if (routes.weights == 1).all() else routes.weights
                offsets, links = routes.offsets.astype("<i4"), routes.links.astype("<i4")
                self._packed[bare.key] = replace(routes, offsets=offsets, links=links, weights=weights)
        return routes if pattern.overheads is None else pattern.overheads.added_to(routes)

    def _search(self, pattern: Pattern) -> RouteSet:
        given = self.routes(pattern)
        routes, limits_Bps = given.with_limits_as_links(len(self.cluster.fabric))
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
