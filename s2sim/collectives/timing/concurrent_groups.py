"""Durations of a collective that several groups of disjoint ranks run concurrently."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, starmap

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives.algorithms.registry import Algorithm, helpers_of
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import merge_concurrent
from s2sim.collectives.schedules.schedule import Pattern, Schedule
from s2sim.collectives.timing.bounds import check_timing_cost
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.collectives.timing.routes import RouteTable, components
from s2sim.collectives.timing.timer import AUTO, Possibility, Timer
from s2sim.errors import OptionError
from s2sim.options import option_text
from s2sim.topology.cluster import Cluster, Cuts
from s2sim.topology.graph import Routes


# Timers at other rates have the same routes.
@lru_cache(maxsize=8)
def _link_sharing_sets(ways: RouteTable, groups: int, ranks: int, links: int) -> Ints:
    """Return the sets of groups that share links if ranks at distances 1, 2, 4, ... in a group send each other."""
    members = np.arange(groups * ranks).reshape(groups, ranks)
    sets, shift = np.arange(groups), 1
    while shift < ranks:
        for distance in (shift, -shift):
            routes = ways.routes(Pattern(members.reshape(-1), np.roll(members, distance, axis=1).reshape(-1)))
            sets = _join_sets(np.repeat(np.arange(groups), ranks), routes, sets, links)
        shift *= 2
    return sets


def _join_sets(group: Ints, routes: Routes, sets: Ints, links: int) -> Ints:
    """Return the sets of groups, int64 of shape (groups,), joined where messages of these groups share links."""
    crossing_set = np.repeat(sets[group], np.diff(routes.offsets))
    return np.unique(components(crossing_set, routes.links, len(sets), links)[sets], return_inverse=True)[1]


def _communicating_pairs(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return all pairs of sender and receiver in a schedule, int64 of shape (m,) each."""
    whole = schedule.stage.whole
    rounds = (step.round for step in schedule.steps) if whole is None else [whole.round]
    patterns = dict.fromkeys(sent.pattern for sent in rounds)
    sides = [(each.src, each.dst) for each in patterns] or [(np.zeros(0, np.int64),) * 2]
    src, dst = (np.concatenate(side) for side in zip(*sides, strict=True))
    places = schedule.demand.ranks
    if any(each.through_switch for each in patterns):
        # Inside a node each rank has separate ports to the switch.
        src, dst = np.arange(places), np.roll(np.arange(places), -1)
    return np.divmod(np.unique(src * places + dst), places)


class ConcurrentGroupsTimer(Timer):
    """Times the collectives of the first group while all groups run the same.

    Groups share links, but are independent communicators of a library: each has the algorithm and the protocol that a
    group of its placement has alone. ``members`` are the ranks of each group on the given cluster, int64 of shape
    (groups, ranks), in its order; the attribute ``cluster`` has all groups concatenated: rank r of group g is number g
    times the ranks of a group plus r. ``alone`` is the timer of the first group without the others; groups that share
    links have equal numbers in ``sets``, int64 of shape (groups,).
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
        # The set of each group that shares links with others, directly or through more, for any messages inside groups.
        links = len(self.cluster.fabric)
        self._sets = _link_sharing_sets(self.ways, self.groups, self.workers, links) if sets is None else sets
        gpus = self.cluster.shape.gpus_per_node
        if not isinstance(self._algorithm, str) and helpers_of(self._algorithm, self.workers, gpus):
            raise OptionError(
                f"{option_text(self._algorithm)} has servers on GPUs of their own, which groups beside each other have "
                "not: take another algorithm"
            )
        self.alone = alone or Timer(cluster.within(first), algorithm, ways.within(first) if ways else None, profile)
        others = (tuple(self._members[kind[0]].tolist()) for kind in self._kinds[1:])
        given = ((self.cluster.within(own), self._algorithm, self.ways.within(own), profile) for own in others)
        # One group of each placement without the others.
        self._each_alone = [self.alone, *starmap(type(self.alone), given)]

    @property
    def workers(self) -> int:
        """Ranks of a group."""
        return len(self._members[0])

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self._members)

    def members_of(self, ranks: tuple[int, ...]) -> Ints:
        """Return the ranks of ``cluster`` that have these numbers in their groups, group by group; none for all."""
        return self._members[:, list(ranks)].reshape(-1)

    def _make_within(self, ranks: tuple[int, ...]) -> Timer:
        return self._make(self._members[:, list(ranks)], self.profile, self.alone.within(ranks))

    def _make_with_profile(self, profile: LibraryProfile) -> Timer:
        return self._make(self._members, profile, self.alone.with_profile(profile))

    def _make(self, members: Ints, profile: LibraryProfile, alone: Timer) -> Timer:
        return ConcurrentGroupsTimer(
            self.cluster, members, self._algorithm, self.ways, profile, alone=alone, sets=self._sets
        )

    def alone_ps(self, demand: Demand) -> int:
        """Return the duration of the slowest group without the others, in picoseconds."""
        return max(timer.time(demand).duration_ps for timer in self._each_alone)

    def cuts(self) -> Cuts:
        """Return the cuts of the cluster, crossed by all groups."""
        return replace(self.cluster.cuts(), concurrent=self.groups)

    def _possibilities(self, demand: Demand) -> tuple[list[Possibility], str]:
        """Return the schedule of all groups, each with its choice alone, and the reason for that of the first."""
        each, parts = [timer.time(demand) for timer in self._each_alone], []
        for schedule, kind in zip((alone.schedule for alone in each), self._kinds, strict=True):
            # All groups together may not wait for the host.
            launch_ps = sum(int(term.each[0]) for term in schedule.launch)
            bare = replace(schedule, launch_ps=launch_ps, host_bound=False) if schedule.host_bound else schedule
            parts.append((bare, kind))
        # Equally placed groups that share no link with the timed ones have the same durations.
        schedule = replace(merge_concurrent(self._one_of_each(parts)), concurrent=self.cluster.workers - self.workers)
        check_timing_cost(schedule, len(self.cluster.fabric))
        possible = [Possibility(schedule.algorithm, self.profile, lambda: schedule)]
        others = {alone.schedule.text: None for alone in each if alone.schedule.text != each[0].schedule.text}
        why = f"for one group alone: {each[0].why}" if self.groups > 1 else each[0].why
        return possible, f"{why}; groups placed otherwise run {', '.join(others)}" if others else why

    def _one_of_each(self, parts: Sequence[tuple[Schedule, Ints]]) -> list[tuple[Schedule, Ints]]:
        """Return schedules with the groups that have to be timed."""
        # ``parts`` are schedules, each with the equally placed groups that run it. Of sets of groups with equal
        # placement and equal loads of their links only the first is kept.
        nodes = self.cluster.node_of_rank.reshape(self.groups, -1)
        switched = any(step.round.pattern.through_switch for schedule, _ in parts for step in schedule.steps[:1])
        if self.groups == 1 or (switched and (nodes != nodes[:, :1]).any()):
            return list(parts)
        kinds, sent = np.zeros(self.groups, np.int64), []
        for kind, (schedule, groups) in enumerate(parts):
            kinds[groups] = kind
            src, dst = _communicating_pairs(schedule)
            starts = (groups * self.workers)[:, None]
            routes = self.ways.routes(Pattern((starts + src).reshape(-1), (starts + dst).reshape(-1)))
            sent.append((np.repeat(groups, len(src)), routes))
        sets = self._sets
        for group, routes in sent:
            sets = _join_sets(group, routes, sets, len(self.cluster.fabric))
        kept, seen = np.zeros(self.groups, np.bool_), set()
        for number, loads in enumerate(self._loads(sets, sent)):
            chosen = np.flatnonzero(sets == number)
            key = (tuple(np.sort(kinds[chosen]).tolist()), loads.tobytes())
            if key not in seen:
                seen.add(key)
                kept[chosen] = True
        return [(schedule, groups[kept[groups]]) for schedule, groups in parts if kept[groups].any()]

    def _loads(self, sets: Ints, sent: Sequence[tuple[Ints, Routes]]) -> Iterator[Floats]:
        """Yield for each set the rates and loads of its links, sorted, float64 of shape (links, 2)."""
        rate_Bps = self.cluster.fabric.rate_Bps
        load, owner = np.zeros(len(rate_Bps)), np.full(len(rate_Bps), -1)
        for group, routes in sent:
            load += np.bincount(routes.links, routes.weights, len(load))
            owner[routes.links] = sets[np.repeat(group, np.diff(routes.offsets))]
        used = np.flatnonzero(owner >= 0)
        order = used[np.lexsort((load[used], rate_Bps[used], owner[used]))]
        links = np.stack([rate_Bps[order], np.round(load[order], 6)], axis=1).astype(np.float64)
        for begin, end in pairwise(np.searchsorted(owner[order], np.arange(sets.max() + 2)).tolist()):
            yield links[begin:end]


def _equally_placed_groups(cluster: Cluster, members: Ints) -> list[Ints]:
    """Return the classes of equally placed groups, that of group 0 first: a library runs the same in each class."""
    # Their ranks share nodes and interfaces in the same way, with the same latencies from each rank to the next.
    nodes, count = cluster.layout.node_set, len(members)
    if members.shape[1] == 1 or count == 1:
        return [np.arange(count)]
    gpus = cluster.gpu_of_rank[members]
    following = np.roll(members, -1, axis=1)
    latency_ps = cluster.routes(members.reshape(-1), following.reshape(-1)).latency_ps.reshape(members.shape)
    features = [nodes.spec[nodes.node_of_gpu[gpus]], latency_ps]
    if nodes.meshes.variants:
        features.append(nodes.local_gpu(gpus))
    numbers = (cluster.node_of_rank[members], nodes.node_of_gpu[gpus], nodes.port_of_gpu[gpus])
    features += [number - number[:, :1] for number in numbers]
    _, first, kind = np.unique(np.concatenate(features, axis=1), axis=0, return_index=True, return_inverse=True)
    return [np.flatnonzero(kind == number) for number in np.argsort(first)]
