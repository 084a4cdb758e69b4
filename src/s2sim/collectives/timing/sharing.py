"""Which groups of ranks share links with each other, so that those that nobody meets need not be timed one by one."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.schedule import Pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.arrays import Floats, Ints
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.ways import Ways
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes


class Sharing:
    """Sets of groups whose messages share links, also by way of other groups.

    Parameters
    ----------
    cluster : Cluster
        Where they run, group after group.
    ways : Ways
        Of the same cluster.
    members : int64 array, shape (groups, ranks)
        The ranks of each group.
    sets : int64 array, shape (groups,), optional
        Sets that are known already.

    Attributes
    ----------
    sets : int64 array, shape (groups,)
        The set of each group, whatever its ranks send each other.
    """

    def __init__(self, cluster: Cluster, ways: Ways, members: Ints, sets: Ints | None = None) -> None:
        self._cluster, self._ways, self._groups, self._ranks = cluster, ways, len(members), members.shape[1]
        self.sets = _sets_of(ways, self._groups, self._ranks, len(cluster.fabric)) if sets is None else sets

    def one_of_each(self, parts: Sequence[tuple[Schedule, Ints]]) -> list[tuple[Schedule, Ints]]:
        """Return schedules with those of their groups that have to be timed.

        Of sets of groups that are placed alike and load their links alike, one is left, that of group 0 among them.

        Parameters
        ----------
        parts : sequence of (Schedule, int64 array)
            Schedules, each with the groups that run it, which are placed alike.
        """
        nodes = self._cluster.node_of_rank.reshape(self._groups, -1)
        switched = any(step.round.pattern.through_switch for schedule, _ in parts for step in schedule.steps[:1])
        if self._groups == 1 or (switched and (nodes != nodes[:, :1]).any()):
            return list(parts)
        kinds, sent = np.zeros(self._groups, np.int64), []
        for kind, (schedule, groups) in enumerate(parts):
            kinds[groups] = kind
            src, dst = _pairs(schedule)
            starts = (groups * self._ranks)[:, None]
            routes = self._ways.routes(Pattern((starts + src).reshape(-1), (starts + dst).reshape(-1)))
            sent.append((np.repeat(groups, len(src)), routes))
        sets = self.sets
        for group, routes in sent:
            sets = _joined(group, routes, sets, len(self._cluster.fabric))
        kept, seen = np.zeros(self._groups, np.bool_), set()
        for chosen, loads in zip(_by_set(sets), self._loads(sets, sent), strict=True):
            key = (tuple(np.sort(kinds[chosen]).tolist()), loads.tobytes())
            if key not in seen:
                seen.add(key)
                kept[chosen] = True
        return [(schedule, groups[kept[groups]]) for schedule, groups in parts if kept[groups].any()]

    def _loads(self, sets: Ints, sent: Sequence[tuple[Ints, Routes]]) -> Iterator[Floats]:
        """Yield for each set the rates of the links that it uses and what crosses each, in order."""
        rate_Bps = self._cluster.fabric.rate_Bps
        load, owner = np.zeros(len(rate_Bps)), np.full(len(rate_Bps), -1)
        for group, routes in sent:
            load += np.bincount(routes.links, routes.weights, len(load))
            owner[routes.links] = sets[np.repeat(group, np.diff(routes.offsets))]
        used = np.flatnonzero(owner >= 0)
        order = used[np.lexsort((load[used], rate_Bps[used], owner[used]))]
        told = np.stack([rate_Bps[order], np.round(load[order], 6)], axis=1).astype(np.float64)
        ends = np.searchsorted(owner[order], np.arange(sets.max() + 2)).tolist()
        for begin, end in pairwise(ends):
            yield told[begin:end]


# Timers at other rates have the same ways.
@lru_cache(maxsize=8)
def _sets_of(ways: Ways, groups: int, ranks: int, links: int) -> Ints:
    """Return the sets of groups that meet where ranks of a group that are 1, 2, 4, ... apart send each other."""
    members = np.arange(groups * ranks).reshape(groups, ranks)
    sets, shift = np.arange(groups), 1
    while shift < ranks:
        for way in (shift, -shift):
            routes = ways.routes(Pattern(members.reshape(-1), np.roll(members, way, axis=1).reshape(-1)))
            sets = _joined(np.repeat(np.arange(groups), ranks), routes, sets, links)
        shift *= 2
    return sets


def _joined(group: Ints, routes: Routes, sets: Ints, links: int) -> Ints:
    """Return the sets of groups, int64 of shape (groups,), joined where messages of these groups share links."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    groups = len(sets)
    place, link = np.divmod(np.unique(np.repeat(sets[group], np.diff(routes.offsets)) * links + routes.links), links)
    edges = (np.ones(len(place), np.int8), (place, groups + link))
    size = groups + links
    labels = connected_components(coo_array(edges, shape=(size, size)), directed=False)[1]
    found: Ints = np.unique(labels[sets], return_inverse=True)[1]
    return found


def _by_set(sets: Ints) -> Iterator[Ints]:
    """Yield the groups of each set."""
    for number in range(int(sets.max()) + 1):
        yield np.flatnonzero(sets == number)


def _pairs(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return which ranks send to which at all in a schedule, int64 of shape (m,) each."""
    whole = schedule.stage.whole
    patterns: dict[Pattern, None] = {}
    if whole is not None:
        patterns[whole.round.pattern] = None
    else:
        patterns = dict.fromkeys(step.round.pattern for step in schedule.steps)
    sides = [(each.src, each.dst) for each in patterns] or [(np.zeros(0, np.int64),) * 2]
    src, dst = (np.concatenate(side) for side in zip(*sides, strict=True))
    places = schedule.demand.ranks
    if any(each.through_switch for each in patterns):
        # Inside a node each has ports of its own to the switch.
        src, dst = np.arange(places), np.roll(np.arange(places), -1)
    return np.divmod(np.unique(src * places + dst), places)
