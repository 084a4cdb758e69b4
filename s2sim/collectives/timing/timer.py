"""Durations of collectives alone on a cluster, the fastest algorithm, and the bytes on links."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias, get_args

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.algorithms.registry import ALGORITHMS, Algorithm, make_algorithm, read_algorithm, same_at_rates
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.schedules.round_latency import inside_node
from s2sim.collectives.schedules.schedule import Pattern, Release, Schedule
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

# Relative error of a multiplication and division by a factor.
_ROUNDING = 1e-12


def closed_form_s(schedule: Schedule, cluster: Cluster, times: RoundTimes | None = None) -> float:
    """Return the closed form of a schedule's algorithm on the routes of its messages, which ``times`` may have cached.

    It raises `ContendedError` if two messages of a round share a link direction, including ports of hosts, or if routes
    differ in latency or rate from round to round, or in a round whose messages differ in size.
    """
    launch_s = schedule.launch_ps / PS_PER_S
    if schedule.rounds == 0:
        return launch_s
    times = times or RoundTimes(cluster, schedule.release)
    routes: set[_RouteKeys] = set()
    uneven = False
    for sent in (step.round for step in schedule.steps if step.round.pattern.messages):
        if not times.alone(sent.pattern).all():
            raise ContendedError(
                f"{schedule.algorithm} on {cluster.shape.name} has no closed form: messages share link directions; "
                "simulate it instead"
            )
        found, limits_Bps = times.routes(sent.pattern).with_limits_as_links(len(cluster.fabric))
        rates = found.narrowest(np.concatenate([cluster.fabric.rate_Bps, limits_Bps]))
        sizes_bytes, rounding = sent.bytes, 0.0
        if sent.pattern.overheads is not None:
            # The closed form counts bytes without protocol overhead.
            factor, rounding = sent.pattern.overheads.factor, _ROUNDING
            rates, sizes_bytes = rates / factor, sizes_bytes / factor
        inside = inside_node(cluster, sent.pattern)
        taken = frozenset(zip(inside.tolist(), found.latency_ps.tolist(), rates.tolist(), strict=True))
        routes.add(taken)
        uneven |= len(taken) > 1 and bool(np.ptp(sizes_bytes) > rounding * sizes_bytes.max())
    # All rounds inside nodes must have the same routes, and all others.
    all_inside = {taken for taken in routes if all(within for within, _, _ in taken)}
    if len(routes - all_inside) > 1 or len(all_inside) > 1 or uneven:
        raise ContendedError(
            f"{schedule.algorithm} on {cluster.shape.name} has no closed form: ways differ in latency or rate from "
            "round to round; simulate it instead"
        )
    distinct = sorted(frozenset().union(*routes))
    inside_hops, across_hops = (
        tuple(Hop(latency / PS_PER_S, rate) for within, latency, rate in distinct if within is side)
        for side in (True, False)
    )
    hops = Hops(inside_hops, across_hops, len(np.unique(cluster.node_of_rank)))
    algorithm = make_algorithm(schedule.algorithm, schedule.demand.kind)
    return launch_s + algorithm.closed_form_s(schedule.demand, hops)


# A minute or two if all rounds differ: routes and rates of a million messages take most of a second.
_MAX_MESSAGES = 2**27
# Cost of a round in messages: a constant, and one per number of links, which all are scanned.
_ROUND_COST, _LINKS_PER_MESSAGE = 100, 1000
_SAMPLED_ROUNDS = 64


def check_timing_cost(schedule: Schedule, links: int) -> None:
    """Refuse a schedule whose timing takes more than minutes, as estimated from a few dozen of its rounds."""
    steps = schedule.steps
    round_cost = _ROUND_COST + links // _LINKS_PER_MESSAGE
    if len(steps) * (2 * schedule.places + round_cost) <= _MAX_MESSAGES:
        return
    sampled = min(_SAMPLED_ROUNDS, len(steps))
    sizes = [steps[index * len(steps) // sampled].round.pattern.messages for index in range(sampled)]
    messages = sum(sizes) * len(steps) // sampled
    if messages + len(steps) * round_cost > _MAX_MESSAGES:
        raise OptionError(
            f"{schedule.algorithm} on {schedule.demand.ranks} ranks sends some {messages:.2g} messages in "
            f"{len(steps)} unlike rounds, more than minutes to time: take fewer workers or another algorithm"
        )


AUTO = "auto"
# Another algorithm is named that takes less than this share of the chosen one's time.
_CLEARLY = 0.9
# Estimates up to so many times the least may be the least on machines that the search sees a little differently.
_SCATTER = 1.15
_MOST_RANKS_OF_ALL = 128
# Messages whose bytes are added up before they are yielded, so that alternating patterns are yielded once.
_MESSAGES_PER_BATCH = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class TimedSchedule:
    """A schedule and its duration alone on a cluster."""

    schedule: Schedule
    duration_ps: int  # From a common start until the last rank is done
    why: str  # Reason for this algorithm, human-readable
    times: RoundTimes


def bytes_by_pattern(schedule: Schedule, wanted: Wanted | None = None) -> Iterator[tuple[Pattern, Floats]]:
    """Yield the patterns of a schedule, and the bytes of each message over many rounds.

    A pattern is yielded again if there are too many others between its rounds. With ``wanted`` only messages through
    switches and those for which ``wanted(src, dst)`` is true are yielded, the latter of many patterns as one pattern.
    """
    parts: list[tuple[Ints, Ints, Floats]] = []
    messages = 0

    def concatenated() -> tuple[Pattern, Floats]:
        src, dst, parts_bytes = (np.concatenate(side) for side in zip(*parts, strict=True))
        return Pattern(src, dst), parts_bytes

    for pattern, sizes_bytes in _batch_patterns(schedule):
        if wanted is None or pattern.through_switch:
            yield pattern, sizes_bytes
            continue
        chosen = np.flatnonzero(wanted(pattern.src, pattern.dst))
        parts.append((pattern.src[chosen], pattern.dst[chosen], sizes_bytes[chosen]))
        messages += len(chosen)
        if messages > _MESSAGES_PER_BATCH:
            yield concatenated()
            parts, messages = [], 0
    if messages:
        yield concatenated()


def _batch_patterns(schedule: Schedule) -> Iterator[tuple[Pattern, Floats]]:
    """Yield patterns with the bytes of their messages over rounds that are not too far apart."""
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
    """Return the bytes on every link, float64 of shape (links,)."""
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
    algorithm : str or Algorithm
        An algorithm or its option string; or ``auto`` for the choice of the library of ``profile``, else the fastest of
        those that libraries have for the kind. Kinds that an algorithm does not run are left to ``auto``.
    ways : RouteTable, optional
        Cached routes of this cluster, or of one that differs from it in rates only.
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
        self.ways = ways or RouteTable(cluster)
        self._times = {release: RoundTimes(cluster, release, self.ways) for release in get_args(Release)}

    @property
    def workers(self) -> int:
        """Ranks of a collective."""
        return self.cluster.workers

    def cuts(self) -> Cuts:
        """Return the cuts that bound collectives."""
        return self.cluster.cuts()

    def members_of(self, ranks: tuple[int, ...]) -> Ints:
        """Return the ranks of ``cluster`` that schedules of ``within(ranks)`` number from 0 on; none for all."""
        return np.asarray(ranks, np.int64)

    def within(self, ranks: tuple[int, ...]) -> Timer:
        """Return the timer of a group of some ranks, numbered from 0; of all, if there are none.

        Groups that the algorithm refuses, which was chosen for all ranks, are left to ``auto``.
        """
        if not ranks:
            return self
        if ranks not in self._within:
            self._within[ranks] = self._make_within(ranks)
        return self._within[ranks]

    def _make_within(self, ranks: tuple[int, ...]) -> Timer:
        return _GroupTimer(self.cluster.within(ranks), self._algorithm, self.ways.within(ranks), self.profile)

    def time(self, demand: Demand) -> TimedSchedule:
        """Return the schedule for this demand and its duration alone."""
        if demand not in self._known:
            self._known[demand] = self._choose(demand)
        return self._known[demand]

    def with_profile(self, profile: LibraryProfile) -> Timer:
        """Return the timer of the same cluster and algorithm for the profile of a library."""
        if profile not in self._by_profile:
            other: Timer = self._make_with_profile(profile)
            self._by_profile[profile] = other
            other._by_profile = self._by_profile
        return self._by_profile[profile]

    def _make_with_profile(self, profile: LibraryProfile) -> Timer:
        return Timer(self.cluster, self._algorithm, self.ways, profile)

    def candidates(self, demand: Demand, factor: float) -> list[TimedSchedule]:
        """Return the fastest candidate, and all that take less than ``factor`` times as long, in order.

        If overheads change by less than that factor, no other candidate can become the fastest. What a library chooses
        by estimates of its own is alone.
        """
        timed: list[TimedSchedule] = []
        if self._estimates_us(self._possibilities(demand)[0]):
            return [self.time(demand)]
        for bound_ps, schedule in self._by_bound(self._possibilities(demand)[0]):
            if not timed or bound_ps < factor * min(item.duration_ps for item in timed):
                timed.append(_host_bound_launch(self._timed(schedule), "one of several"))
        timed.sort(key=lambda item: item.duration_ps)
        return [item for item in timed if item.duration_ps < factor * timed[0].duration_ps or item is timed[0]]

    def faster(self, chosen: TimedSchedule) -> TimedSchedule | None:
        """Return the fastest other schedule than ``auto`` chose, if it takes less than nine tenths of the chosen.

        Of the library's own, and of the algorithms that need neither switches nor servers that sum; None for more than
        128 ranks, where timing all of them takes longer than the answer.
        """
        demand, best = chosen.schedule.demand, None
        if self._algorithm != AUTO or demand.ranks > _MOST_RANKS_OF_ALL:
            return None
        own = self._possibilities(demand)[0]
        considered = {schedule.algorithm.partition(":")[0] for schedule in own}
        names = [name for name in ALGORITHMS.names() if demand.kind in ALGORITHMS.get(name).kinds]
        others = [*own, *self._possible([name for name in names if name not in considered], demand)]
        less_than_ps = chosen.duration_ps * _CLEARLY
        for bound_ps, schedule in self._by_bound([each for each in others if not each.assisted]):
            if bound_ps >= less_than_ps:
                break
            timed = _host_bound_launch(self._timed(schedule), "not chosen")
            if timed.duration_ps < less_than_ps:
                best, less_than_ps = timed, timed.duration_ps
        return best

    def alternatives(self, chosen: TimedSchedule) -> list[TimedSchedule]:
        """Return what the library may choose as well: its estimates exceed that of the chosen by less than 15 %."""
        estimates = self._estimates_us(self._possibilities(chosen.schedule.demand)[0])
        if self._algorithm != AUTO or not estimates:
            return []
        close = [schedule for estimate_us, schedule in estimates[1:] if estimate_us < _SCATTER * estimates[0][0]]
        return [_host_bound_launch(self._timed(schedule), "may be chosen as well") for schedule in close]

    def _estimates_us(self, schedules: Sequence[Schedule]) -> list[tuple[float, Schedule]]:
        """Return schedules with the library's estimates in microseconds, in ascending order; empty if one has none."""
        estimates = [(self.profile.estimate_us(schedule, self.cluster), schedule) for schedule in schedules]
        known = [(estimate_us, schedule) for estimate_us, schedule in estimates if estimate_us is not None]
        return sorted(known, key=lambda each: each[0]) if len(known) == len(estimates) else []

    def _by_bound(self, schedules: Sequence[Schedule]) -> list[tuple[int, Schedule]]:
        """Return schedules with lower bounds of their durations in picoseconds, in ascending order."""
        bounds = [(duration_floor_ps(schedule, self._times[schedule.release]), schedule) for schedule in schedules]
        return sorted(bounds, key=lambda bound: bound[0])

    def _possibilities(self, demand: Demand) -> tuple[list[Schedule], str]:
        """Return the candidate schedules, at least one, and the reason for these."""
        if not isinstance(self._algorithm, str) and demand.kind in self._algorithm.kinds:
            # An algorithm without options has the chunks of the library.
            bare = option_text(self._algorithm)
            cut = [name for name in self.profile.candidates(demand, self.cluster) if name.partition(":")[0] == bare]
            return self._possible(cut, demand) or self._schedules(self._algorithm, demand), "asked for"
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
        # The first other algorithm that can run it, else the refusal of the first that libraries have.
        for name in others:
            if schedules := self._possible([name], demand):
                return schedules, f"{', '.join(chosen)} cannot run this many ranks here"
        return self._schedules(chosen[0], demand), ""

    def _choose(self, demand: Demand) -> TimedSchedule:
        """Return what the library chooses of the candidates by its estimates, else the fastest, and the reason."""
        schedules, why_alone = self._possibilities(demand)
        if len(schedules) == 1:
            return _host_bound_launch(self._timed(schedules[0]), why_alone)
        if estimates := self._estimates_us(schedules):
            (least_us, chosen), *others = estimates
            rest = ", ".join(f"{format_seconds(each_us / 1e6)} by {schedule.text}" for each_us, schedule in others)
            why = f"the library's own choice: it estimates {format_seconds(least_us / 1e6)} against {rest}"
            return _host_bound_launch(self._timed(chosen), why)
        found: list[TimedSchedule] = []
        slower_ones: list[str] = []
        for least_ps, schedule in self._by_bound(schedules):
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
        """Return the schedules of an algorithm, one for each protocol of the library."""
        made, kept = make_algorithm(algorithm, demand.kind), self.ways.kept
        rates = self.profile.rates_of(self.cluster)
        if kept is None or rates is None or not same_at_rates(made):
            return self._make_schedules(made, demand)
        return kept.of((made, demand, self.profile, rates), lambda: self._make_schedules(made, demand))

    def _make_schedules(self, algorithm: Algorithm, demand: Demand) -> list[Schedule]:
        schedule = algorithm.schedule(demand, self.cluster)
        check_timing_cost(schedule, len(self.cluster.fabric))
        profiles = self.profile.protocols(schedule, self.cluster)
        return [apply_overheads(schedule, self.cluster, profile, self.ways.sent) for profile in profiles]

    def _possible(self, names: Sequence[str], demand: Demand) -> list[Schedule]:
        """Return the schedules of the algorithms that can run this number of ranks on this cluster."""
        schedules = []
        for name in names:
            with suppress(OptionError, TopologyError):
                schedules += self._schedules(name, demand)
        return schedules

    def _timed(self, schedule: Schedule) -> TimedSchedule:
        times = self._times[schedule.release]
        return TimedSchedule(schedule, duration_ps(schedule, self.cluster, times), "", times)


def _host_bound_launch(alone: TimedSchedule, why: str) -> TimedSchedule:
    """Return a timed schedule with the wait for the host, if its launches take longer."""
    schedule = alone.schedule
    waits_ps = schedule.host_ps - alone.duration_ps
    if waits_ps <= 0:
        return replace(alone, why=why)
    waiting = replace(schedule, launch_ps=schedule.launch_ps + waits_ps, host_bound=True)
    host = format_seconds(schedule.host_ps / PS_PER_S)
    return TimedSchedule(waiting, schedule.host_ps, f"{why}; its host takes {host} to launch", alone.times)


class _GroupTimer(Timer):
    """The timer of a group, which the algorithm may refuse."""

    def _choose(self, demand: Demand) -> TimedSchedule:
        with suppress(OptionError, TopologyError):
            return super()._choose(demand)
        return Timer(self.cluster, AUTO, self.ways, self.profile).time(demand)
