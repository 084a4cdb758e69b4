"""How long a collective takes that several groups of ranks do at once, each on ranks of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives.algorithms.registry import Algorithm, helpers_of, make_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import merge_concurrent
from s2sim.collectives.schedules.schedule import Pattern, Schedule
from s2sim.collectives.timing.bounds import LowerBound, lower_bound
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile, apply_overheads
from s2sim.collectives.timing.routes import RouteTable
from s2sim.collectives.timing.timer import AUTO, Timer, check_timing_cost
from s2sim.errors import OptionError
from s2sim.options import option_text
from s2sim.topology.cluster import Cluster, Cuts
from s2sim.topology.graph import Routes


class LinkSharing:
    """Sets of groups whose messages share links, also by way of other groups.

    Parameters
    ----------
    cluster : Cluster
        Where they run, group after group.
    route_table : Ways
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

    def __init__(self, cluster: Cluster, ways: RouteTable, members: Ints, sets: Ints | None = None) -> None:
        self._cluster, self._ways, self._groups, self._ranks = cluster, ways, len(members), members.shape[1]
        self.sets = _link_sharing_sets(ways, self._groups, self._ranks, len(cluster.fabric)) if sets is None else sets

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
            src, dst = _communicating_pairs(schedule)
            starts = (groups * self._ranks)[:, None]
            routes = self._ways.routes(Pattern((starts + src).reshape(-1), (starts + dst).reshape(-1)))
            sent.append((np.repeat(groups, len(src)), routes))
        sets = self.sets
        for group, routes in sent:
            sets = _join_sets(group, routes, sets, len(self._cluster.fabric))
        kept, seen = np.zeros(self._groups, np.bool_), set()
        for chosen, loads in zip(_groups_by_set(sets), self._loads(sets, sent), strict=True):
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
def _link_sharing_sets(ways: RouteTable, groups: int, ranks: int, links: int) -> Ints:
    """Return the sets of groups that meet where ranks of a group that are 1, 2, 4, ... apart send each other."""
    members = np.arange(groups * ranks).reshape(groups, ranks)
    sets, shift = np.arange(groups), 1
    while shift < ranks:
        for way in (shift, -shift):
            routes = ways.routes(Pattern(members.reshape(-1), np.roll(members, way, axis=1).reshape(-1)))
            sets = _join_sets(np.repeat(np.arange(groups), ranks), routes, sets, links)
        shift *= 2
    return sets


def _join_sets(group: Ints, routes: Routes, sets: Ints, links: int) -> Ints:
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


def _groups_by_set(sets: Ints) -> Iterator[Ints]:
    """Yield the groups of each set."""
    for number in range(int(sets.max()) + 1):
        yield np.flatnonzero(sets == number)


def _communicating_pairs(schedule: Schedule) -> tuple[Ints, Ints]:
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


class ConcurrentGroupsTimer(Timer):
    """Times what all groups do at once; whoever asks need know of one group alone, the first.

    Groups do not know of each other: each takes the algorithm and the protocol that are fastest for the first group
    alone, as a library would that has a communicator for each. Then all of their rounds share links.

    Parameters
    ----------
    cluster : Cluster
        Where they run.
    members : int64 array, shape (groups, ranks)
        The ranks of each group, in its order.
    algorithm, ways, profile
        As of a `Timer`; ``route_table`` are those of ``cluster``.
    alone : Timer, optional
        That of the first group with no other.
    sets : int64 array, shape (groups,), optional
        Which groups are known to share links, see `LinkSharing`.

    Attributes
    ----------
    cluster : Cluster
        All groups, one after the other: rank r of group g is number g times the ranks of a group plus r.
    alone : Timer
        That of the first group with no other.
    """

    def __init__(
        self,
        cluster: Cluster,
        members: Ints,
        algorithm: str | Algorithm = AUTO,
        ways: RouteTable | None = None,
        profile: LibraryProfile = NO_OVERHEADS,
        *,
        alone: Timer | None = None,
        sets: Ints | None = None,
    ) -> None:
        everyone, first = tuple(members.reshape(-1).tolist()), tuple(members[0].tolist())
        super().__init__(cluster.within(everyone), algorithm, ways.within(everyone) if ways else None, profile)
        self._members = np.arange(members.size, dtype=np.int64).reshape(members.shape)
        self._kinds = _equally_placed_groups(self.cluster, self._members)
        self._sharing = LinkSharing(self.cluster, self._ways, self._members, sets)
        self._refuse_servers()
        self.alone = alone or Timer(cluster.within(first), algorithm, ways.within(first) if ways else None, profile)

    def _refuse_servers(self) -> None:
        asked, gpus = self._algorithm, self.cluster.shape.gpus_per_node
        if not isinstance(asked, str) and helpers_of(asked, self.workers, gpus):
            raise OptionError(
                f"{option_text(asked)} has servers on GPUs of their own, which groups beside each other have not: take "
                "another algorithm"
            )

    @property
    def workers(self) -> int:
        """Ranks of a group."""
        return len(self._members[0])

    @property
    def groups(self) -> int:
        """How many there are."""
        return len(self._members)

    def members_of(self, ranks: tuple[int, ...]) -> Ints:
        """Return which ranks of ``cluster`` are these in each group, group after group; none for all."""
        return self._members[:, list(ranks)].reshape(-1)

    def within(self, ranks: tuple[int, ...]) -> Timer:
        """Return the timer of some ranks of every group, which are groups then; of all, if there are none."""
        if not ranks:
            return self
        if ranks not in self._within:
            self._within[ranks] = ConcurrentGroupsTimer(
                self.cluster,
                self._members[:, list(ranks)],
                self._algorithm,
                self._ways,
                self.profile,
                alone=self.alone.within(ranks),
                sets=self._sharing.sets,
            )
        return self._within[ranks]

    def with_profile(self, profile: LibraryProfile) -> Timer:
        """Return the timer of the same groups for a library's profile; itself for its own."""
        if profile not in self._by_profile:
            other = ConcurrentGroupsTimer(
                self.cluster,
                self._members,
                self._algorithm,
                self._ways,
                profile,
                alone=self.alone.with_profile(profile),
                sets=self._sharing.sets,
            )
            other._by_profile = self._by_profile
            self._by_profile[profile] = other
        return self._by_profile[profile]

    def bound(self, demands: Sequence[Demand], *, assisted: bool = False) -> LowerBound:
        """Return the lower bound of demands of every group: the bytes of all groups have to cross a cut."""
        return lower_bound(demands, self.cuts(), assisted=assisted)

    def cuts(self) -> Cuts:
        """Return the cuts of the cluster, which all groups have to cross."""
        return replace(self.cluster.cuts(), concurrent=self.groups)

    def _possibilities(self, demand: Demand) -> tuple[list[Schedule], str]:
        """Return what all groups do when each does what is fastest for the first one alone, and why that."""
        alone = self.alone.time(demand)
        parts = [(self._as_alone(alone.schedule, kind[0]), kind) for kind in self._kinds]
        # Groups that share no link with those that are timed, and are placed alike, take as long as these.
        timed = merge_concurrent(self._sharing.one_of_each(parts))
        schedule = replace(timed, concurrent=self.cluster.workers - self.workers)
        check_timing_cost(schedule, len(self.cluster.fabric))
        return [schedule], f"for one group alone: {alone.why}" if self.groups > 1 else alone.why

    def _as_alone(self, alone: Schedule, group: int) -> Schedule:
        """Return the schedule of one group by the algorithm and the protocol of another one's."""
        view, demand = self.cluster.within(self._members[group]), alone.demand
        asked, name = self._algorithm, alone.algorithm.partition(":")[0]
        # A schedule does not tell all options that were asked for.
        given = not isinstance(asked, str) and asked.name == name and option_text(asked) != name
        plain = make_algorithm(asked if given else alone.algorithm, demand.kind).schedule(demand, view)
        profiles = self.profile.protocols(plain, view)
        profile = next((each for each in profiles if each.protocol == alone.protocol), profiles[-1])
        return apply_overheads(plain, view, profile)


def _equally_placed_groups(cluster: Cluster, members: Ints) -> list[Ints]:
    """Return which groups are placed alike, the kind of group 0 first: the same library sends alike in them.

    Their ranks share nodes and interfaces in the same way, and what goes from each rank to the next takes as long.
    """
    nodes, count = cluster.dims.node_set, len(members)
    if members.shape[1] == 1 or count == 1:
        return [np.arange(count)]
    gpus = cluster.gpu_of_rank[members]
    following = np.roll(members, -1, axis=1)
    latency_ps = cluster.routes(members.reshape(-1), following.reshape(-1)).latency_ps.reshape(members.shape)
    told = [nodes.spec[nodes.node_of_gpu[gpus]], latency_ps]
    if nodes.meshes.variants:
        told.append(nodes.local_gpu(gpus))
    numbers = (cluster.node_of_rank[members], nodes.node_of_gpu[gpus], nodes.port_of_gpu[gpus])
    told += [number - number[:, :1] for number in numbers]
    _, first, kind = np.unique(np.concatenate(told, axis=1), axis=0, return_index=True, return_inverse=True)
    return [np.flatnonzero(kind == number) for number in np.argsort(first)]
