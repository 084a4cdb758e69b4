"""How long a collective takes alone on a cluster, which algorithm is fastest, and what its links carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias, get_args

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.algorithms.registry import ALGORITHMS, Algorithm, make_algorithm, read_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.schedules.round_latency import inside_node
from s2sim.collectives.schedules.schedule import Pattern, Release, Round, Schedule
from s2sim.collectives.timing.bounds import duration_floor_ps, duration_ps
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile, apply_overheads
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.routes import RouteTable
from s2sim.errors import ContendedError, OptionError, TopologyError
from s2sim.options import option_text
from s2sim.topology.cluster import Cluster, Cuts
from s2sim.units import PS_PER_S, format_seconds

Wanted: TypeAlias = Callable[[Ints, Ints], Mask]


_RouteKeys: TypeAlias = frozenset[tuple[bool, int, float]]  # inside a node, latency in picoseconds, bytes per second

# What multiplying and dividing by a factor may change.
_ROUNDING = 1e-12


def closed_form_s(schedule: Schedule, cluster: Cluster, times: RoundTimes | None = None) -> float:
    """Return the closed form of a schedule's algorithm for the ways that its messages take.

    With ``times`` what these know of routes serves.

    Raises
    ------
    ContendedError
        Where two messages of a round share a link direction, hosts' own ports included, or where ways differ in
        latency or rate from round to round, or in a round whose messages differ in size: no closed form holds there.
    """
    launch_s = schedule.launch_ps / PS_PER_S
    if schedule.rounds == 0:
        return launch_s
    times = times or RoundTimes(cluster, schedule.release)
    ways: set[_RouteKeys] = set()
    uneven = False
    for sent in (step.round for step in schedule.steps if step.round.pattern.messages):
        if not times.alone(sent.pattern).all():
            raise ContendedError(
                f"{schedule.algorithm} on {cluster.shape.name} has no closed form: messages share link directions; "
                "simulate it instead"
            )
        taken = _distinct_routes(sent.pattern, cluster, times)
        ways.add(taken)
        uneven |= len(taken) > 1 and _sizes_differ(sent)
    # Rounds inside nodes and rounds between them may differ from each other, but not among themselves.
    inside = {taken for taken in ways if all(within for within, _, _ in taken)}
    if len(ways - inside) > 1 or len(inside) > 1 or uneven:
        raise ContendedError(
            f"{schedule.algorithm} on {cluster.shape.name} has no closed form: ways differ in latency or rate from "
            "round to round; simulate it instead"
        )
    found = sorted(frozenset().union(*ways))
    hops = Hops(
        inside=tuple(Hop(latency / PS_PER_S, rate) for within, latency, rate in found if within),
        across=tuple(Hop(latency / PS_PER_S, rate) for within, latency, rate in found if not within),
        nodes=len(np.unique(cluster.node_of_rank)),
    )
    algorithm = make_algorithm(schedule.algorithm, schedule.demand.kind)
    return launch_s + algorithm.closed_form_s(schedule.demand, hops)


def _sizes_differ(sent: Round) -> bool:
    """Return whether the messages of a round differ in size, whatever a library makes of their bytes."""
    if sent.pattern.overheads is None:
        return bool(np.ptp(sent.bytes) > 0)
    sizes_bytes = sent.bytes / sent.pattern.overheads.factor
    return bool(np.ptp(sizes_bytes) > _ROUNDING * sizes_bytes.max())


def _distinct_routes(pattern: Pattern, cluster: Cluster, times: RoundTimes) -> _RouteKeys:
    routes, limits_Bps = times.routes(pattern).with_limits_as_links(len(cluster.fabric))
    rates = routes.narrowest(np.concatenate([cluster.fabric.rate_Bps, limits_Bps]))
    if pattern.overheads is not None:
        # The closed form knows the bytes of the collective, not what the library makes of them.
        rates = rates / pattern.overheads.factor
    inside = inside_node(cluster, pattern)
    return frozenset(zip(inside.tolist(), routes.latency_ps.tolist(), rates.tolist(), strict=True))


# A minute or two, where no two rounds are alike: routes and shares of a million messages take most of a second.
_MAX_MESSAGES = 2**27
# What a round costs beside its messages, as so many of them: all links are looked over.
_A_ROUND, _LINKS_A_MESSAGE = 100, 1000
_ROUND_COST = 64


def check_timing_cost(schedule: Schedule, links: int) -> None:
    """Refuse a schedule of so many unlike messages and rounds on so many links that timing takes more than minutes.

    Raises
    ------
    OptionError
        With about how many there are, as a few dozen of the rounds tell.
    """
    steps = schedule.steps
    a_round = _A_ROUND + links // _LINKS_A_MESSAGE
    if len(steps) * (2 * schedule.places + a_round) <= _MAX_MESSAGES:
        return
    looked_at = min(_ROUND_COST, len(steps))
    some = [steps[index * len(steps) // looked_at].round.pattern.messages for index in range(looked_at)]
    messages = sum(some) * len(steps) // looked_at
    if messages + len(steps) * a_round > _MAX_MESSAGES:
        raise OptionError(
            f"{schedule.algorithm} on {schedule.demand.ranks} ranks sends some {messages:.2g} messages in "
            f"{len(steps)} unlike rounds, more than minutes to time: take fewer workers or another algorithm"
        )


AUTO = "auto"
# Bytes of so many messages are added up before their links are told, so that patterns that take turns count as one.
_MESSAGES_PER_BATCH = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class TimedSchedule:
    """A schedule and how it runs alone."""

    schedule: Schedule  # What runs
    duration_ps: int  # From a common start until the last rank is done
    why: str  # Why this algorithm, for people
    times: RoundTimes  # Of its rounds


def bytes_by_pattern(schedule: Schedule, wanted: Wanted | None = None) -> Iterator[tuple[Pattern, Floats]]:
    """Yield the patterns of a schedule, and the bytes of each message over many rounds.

    A pattern is yielded once, or more often where there are too many others between its rounds. With ``wanted`` only
    those messages count for whose ranks ``wanted(src, dst)`` is true, those of many patterns as one, and what passes a
    switch.
    """
    parts: list[tuple[Ints, Ints, Floats]] = []
    messages = 0
    for pattern, sizes_bytes in _batch_patterns(schedule):
        if wanted is None or pattern.through_switch:
            yield pattern, sizes_bytes
            continue
        chosen = np.flatnonzero(wanted(pattern.src, pattern.dst))
        parts.append((pattern.src[chosen], pattern.dst[chosen], sizes_bytes[chosen]))
        messages += len(chosen)
        if messages > _MESSAGES_PER_BATCH:
            yield _concatenate(parts)
            parts, messages = [], 0
    if messages:
        yield _concatenate(parts)


def _concatenate(parts: Sequence[tuple[Ints, Ints, Floats]]) -> tuple[Pattern, Floats]:
    src, dst, sizes_bytes = (np.concatenate(side) for side in zip(*parts, strict=True))
    return Pattern(src, dst), sizes_bytes


def _batch_patterns(schedule: Schedule) -> Iterator[tuple[Pattern, Floats]]:
    """Yield patterns with the bytes of their messages, as long as not too many others are between their rounds."""
    gathered: dict[bytes, tuple[Pattern, Floats]] = {}
    messages = 0
    for step in schedule.steps:
        pattern = step.round.pattern
        if pattern.messages == 0:
            continue
        if pattern.key not in gathered:
            gathered[pattern.key] = pattern, np.zeros(pattern.messages)
            messages += pattern.messages
            while messages > _MESSAGES_PER_BATCH and len(gathered) > 1:
                first, sizes_bytes = gathered.pop(next(iter(gathered)))
                messages -= first.messages
                yield first, sizes_bytes
        gathered[pattern.key][1][:] += step.times * step.round.bytes
    yield from gathered.values()


def link_bytes(schedule: Schedule, times: RoundTimes) -> Floats:
    """Return the bytes that every link carries, float64 of shape (links,)."""
    carried = np.zeros(times.links)
    for pattern, sizes_bytes in bytes_by_pattern(schedule):
        routes = times.routes(pattern)
        per_crossing = np.repeat(sizes_bytes, np.diff(routes.offsets)) * routes.weights
        carried += np.bincount(routes.links, per_crossing, len(carried))
    return carried


class Timer:
    """Times collectives alone on one cluster, each distinct one once.

    Parameters
    ----------
    cluster : Cluster
        Where they run.
    algorithm : str or Algorithm
        One, its option string, or ``auto`` for the fastest of those that libraries choose among for the kind. One
        that does not run a kind leaves that kind to ``auto``.
    route_table : Ways, optional
        Routes already found on this cluster, or on one that differs from it in rates alone.
    profile : Profile
        How a library runs them. Where it has a choice of its own, ``auto`` is that.
    """

    def __init__(
        self,
        cluster: Cluster,
        algorithm: str | Algorithm = AUTO,
        ways: RouteTable | None = None,
        profile: LibraryProfile = NO_OVERHEADS,
    ) -> None:
        self.cluster = cluster
        self.profile = profile
        self._algorithm = read_algorithm(algorithm) if isinstance(algorithm, str) and algorithm != AUTO else algorithm
        self._known: dict[Demand, TimedSchedule] = {}
        self._by_profile: dict[LibraryProfile, Timer] = {profile: self}
        self._within: dict[tuple[int, ...], Timer] = {}
        self._ways = ways or RouteTable(cluster)
        self._times = {release: RoundTimes(cluster, release, self._ways) for release in get_args(Release)}

    @property
    def workers(self) -> int:
        """Ranks of what is timed."""
        return self.cluster.workers

    def cuts(self) -> Cuts:
        """Return the cuts that bound what is timed."""
        return self.cluster.cuts()

    def members_of(self, ranks: tuple[int, ...]) -> Ints:
        """Return which ranks of ``cluster`` the schedules of ``within(ranks)`` number from 0 on; none for all."""
        return np.asarray(ranks, np.int64)

    def within(self, ranks: tuple[int, ...]) -> Timer:
        """Return the timer of a group of some ranks, numbered from 0; of all, if there are none.

        Where the algorithm refuses the group it leaves it to ``auto``: it was asked for with all ranks in mind.
        """
        if not ranks:
            return self
        if ranks not in self._within:
            cluster, ways = self.cluster.within(ranks), self._ways.within(ranks)
            self._within[ranks] = _GroupTimer(cluster, self._algorithm, ways, self.profile)
        return self._within[ranks]

    def time(self, demand: Demand) -> TimedSchedule:
        """Return the schedule for this demand and how it runs alone."""
        if demand not in self._known:
            self._known[demand] = self._choose(demand)
        return self._known[demand]

    def with_profile(self, profile: LibraryProfile) -> Timer:
        """Return the timer of the same cluster and algorithm for a library's profile; itself for its own."""
        if profile not in self._by_profile:
            other = Timer(self.cluster, self._algorithm, self._ways, profile)
            other._by_profile = self._by_profile
            self._by_profile[profile] = other
        return self._by_profile[profile]

    def candidates(self, demand: Demand, factor: float) -> list[TimedSchedule]:
        """Return the fastest of what is chosen among, and all that take less than ``factor`` times as long, in order.

        Whoever changes what a library adds by less than that factor need time no others anew.
        """
        found: list[TimedSchedule] = []
        bounded = [(self._bound_ps(schedule), schedule) for schedule in self._possibilities(demand)[0]]
        for bound_ps, schedule in sorted(bounded, key=lambda each: each[0]):
            if not found or bound_ps < factor * min(timed.duration_ps for timed in found):
                found.append(_host_bound_launch(self._timed(schedule), "one of several"))
        found.sort(key=lambda timed: timed.duration_ps)
        return [timed for timed in found if timed.duration_ps < factor * found[0].duration_ps or timed is found[0]]

    def _choose(self, demand: Demand) -> TimedSchedule:
        return self._fastest_of(*self._possibilities(demand))

    def _possibilities(self, demand: Demand) -> tuple[list[Schedule], str]:
        """Return the schedules of which the fastest is taken, at least one, and why these."""
        if not isinstance(self._algorithm, str) and demand.kind in self._algorithm.kinds:
            # One without options is cut as the library cuts it.
            bare = option_text(self._algorithm)
            cut = [name for name in self.profile.candidates(demand, self.cluster) if name.partition(":")[0] == bare]
            return self._possible(cut, demand) or self._schedules(self._algorithm, demand), "asked for"
        own = self.profile.choose(demand, self.cluster) if demand.ranks > 1 else None
        if own is not None:
            return self._schedules(own, demand), "the library's own choice"
        chosen = list(self.profile.candidates(demand, self.cluster))
        others: list[str] = []
        if not chosen:
            able = [name for name in ALGORITHMS.names() if demand.kind in ALGORITHMS.get(name).kinds]
            chosen = [name for name in able if demand.kind in ALGORITHMS.get(name).auto]
            others = [name for name in able if name not in chosen]
        if demand.ranks == 1:
            return self._schedules(chosen[0], demand), "one rank has nothing to send"
        if schedules := self._possible(chosen, demand):
            return schedules, f"what libraries run for {demand.kind}"
        # The first other algorithm that takes what those that libraries run refuse; else their refusal.
        for name in others:
            if schedules := self._possible([name], demand):
                return schedules, f"{', '.join(chosen)} cannot run this many ranks here"
        return self._schedules(chosen[0], demand), ""

    def _bound_ps(self, schedule: Schedule) -> int:
        return duration_floor_ps(schedule, self._times[schedule.release])

    def _fastest_of(self, schedules: Sequence[Schedule], why_alone: str) -> TimedSchedule:
        """Return the fastest of several schedules, with the times of the others; one alone for its own reason."""
        if len(schedules) == 1:
            return _host_bound_launch(self._timed(schedules[0]), why_alone)
        candidates = [(self._bound_ps(schedule), schedule) for schedule in schedules]
        candidates.sort(key=lambda candidate: candidate[0])
        found: list[TimedSchedule] = []
        slower_ones: list[str] = []
        for least_ps, schedule in candidates:
            if found and least_ps >= found[0].duration_ps:
                slower_ones.append(f"at least {format_seconds(least_ps / PS_PER_S)} by {schedule.text}")
                continue
            found.append(self._timed(schedule))
            found.sort(key=lambda timed: timed.duration_ps)
        best, *slower = found
        slower_ones += [f"{format_seconds(item.duration_ps / PS_PER_S)} by {item.schedule.text}" for item in slower]
        protocol = f" with {best.schedule.protocol}" if best.schedule.protocol else ""
        time = format_seconds(best.duration_ps / PS_PER_S)
        return _host_bound_launch(best, f"fastest{protocol}: {time} against {', '.join(slower_ones)}")

    def _schedules(self, algorithm: str | Algorithm, demand: Demand) -> list[Schedule]:
        """Return the schedules of an algorithm, one for each way in which the library can send it."""
        schedule = make_algorithm(algorithm, demand.kind).schedule(demand, self.cluster)
        check_timing_cost(schedule, len(self.cluster.fabric))
        profiles = self.profile.protocols(schedule, self.cluster)
        return [apply_overheads(schedule, self.cluster, profile, self._ways.sent) for profile in profiles]

    def _possible(self, names: Sequence[str], demand: Demand) -> list[Schedule]:
        """Return the schedules of those algorithms that do not refuse this many ranks on this cluster."""
        schedules = []
        for name in names:
            with suppress(OptionError, TopologyError):
                schedules += self._schedules(name, demand)
        return schedules

    def _timed(self, schedule: Schedule) -> TimedSchedule:
        times = self._times[schedule.release]
        return TimedSchedule(schedule, duration_ps(schedule, self.cluster, times), "", times)


def _host_bound_launch(alone: TimedSchedule, why: str) -> TimedSchedule:
    """Return how a schedule runs where its GPUs wait for a host that launches no faster."""
    schedule = alone.schedule
    waits_ps = schedule.host_ps - alone.duration_ps
    if waits_ps <= 0:
        return replace(alone, why=why)
    waiting = replace(schedule, launch_ps=schedule.launch_ps + waits_ps, host_bound=True)
    host = format_seconds(schedule.host_ps / PS_PER_S)
    return TimedSchedule(waiting, schedule.host_ps, f"{why}; its host takes {host} to launch", alone.times)


class _GroupTimer(Timer):
    """The timer of a group, in which an algorithm may refuse."""

    def _choose(self, demand: Demand) -> TimedSchedule:
        with suppress(OptionError, TopologyError):
            return super()._choose(demand)
        return Timer(self.cluster, AUTO, self._ways, self.profile).time(demand)
