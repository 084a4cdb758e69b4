"""Durations of collectives alone on a cluster, the fastest algorithm, and the bytes on links."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TypeAlias, get_args

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.algorithms.registry import ALGORITHMS, Algorithm, make_algorithm, read_algorithm, same_at_rates
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.schedules.round_latency import inside_node
from s2sim.collectives.schedules.schedule import LazySteps, Release, Schedule, with_protocol
from s2sim.collectives.timing.bounds import chain_durations_ps, check_timing_cost, duration_floor_ps, duration_ps
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile, apply_overheads
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.routes import RouteTable
from s2sim.errors import ContendedError, OptionError, TopologyError
from s2sim.options import option_text
from s2sim.topology.cluster import Cluster, Cuts
from s2sim.units import PS_PER_S, format_seconds

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
    hops = Hops(inside_hops, across_hops, cluster.nodes_used)
    return launch_s + make_algorithm(schedule.algorithm, schedule.demand.kind).closed_form_s(schedule.demand, hops)


AUTO = "auto"
# Another algorithm is named that takes less than this share of the chosen one's time.
_CLEARLY = 0.9
SCATTER = 1.15
"""Estimates up to so many times the least may be the least on machines that the search sees a little differently."""
_MOST_RANKS_OF_ALL = 128
_OWN_CHOICE, _ASKED_FOR = "the library's own choice", "asked for"


@dataclass(frozen=True, slots=True, eq=False)
class TimedSchedule:
    """A schedule and its duration alone on a cluster."""

    schedule: Schedule
    duration_ps: int  # From a common start until the last rank is done
    why: str  # Reason for this algorithm, human-readable
    times: RoundTimes

    @property
    def choice(self) -> tuple[str, str] | None:
        """Algorithm and protocol, if a library's estimates chose them, which need not be the fastest."""
        schedule = self.schedule
        return (schedule.algorithm.partition(":")[0], schedule.protocol) if _OWN_CHOICE in self.why else None


@dataclass(eq=False)
class Possibility:
    """A schedule that may run, made when it is timed: a library estimates many that it does not choose."""

    algorithm: str
    profile: LibraryProfile  # Of one protocol
    make: Callable[[], Schedule]

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule with the overheads of the library."""
        return self.make()

    @property
    def text(self) -> str:
        """The algorithm and its protocol."""
        return with_protocol(self.algorithm, self.profile.protocol)


class Timer:
    """Times collectives alone on one cluster, each distinct one once.

    ``algorithm`` may be ``auto``, for the choice of the library of ``profile``, else the fastest of those that
    libraries have for the kind. Kinds that an algorithm does not run are left to that. ``ways`` are cached routes of
    this cluster, or of one that differs from it in rates only.
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

    def within(self, ranks: tuple[int, ...]) -> "Timer":
        """Return the timer of a group of some ranks, numbered from 0; of all, if there are none.

        Groups that the algorithm refuses, which was chosen for all ranks, are left to ``auto``.
        """
        if not ranks:
            return self
        if ranks not in self._within:
            self._within[ranks] = self._make_within(ranks)
        return self._within[ranks]

    def _make_within(self, ranks: tuple[int, ...]) -> "Timer":
        return _GroupTimer(self.cluster.within(ranks), self._algorithm, self.ways.within(ranks), self.profile)

    def time(self, demand: Demand) -> TimedSchedule:
        """Return the schedule for this demand and its duration alone."""
        if demand not in self._known:
            self._known[demand] = self._choose(demand)
        return self._known[demand]

    def time_all(self, demands: Sequence[Demand]) -> list[TimedSchedule]:
        """Return what `time` does for each demand; rounds of one pattern follow each other, while routes are kept."""
        chains: dict[tuple[str, int, Release], list[tuple[Demand, Schedule, str]]] = {}
        for demand in dict.fromkeys(demands):
            estimated = None if demand in self._known else self._estimated(demand, *self._possibilities(demand))
            if estimated is None:
                continue
            schedule, why = estimated[0].schedule, estimated[1]
            if schedule.stage.chain and isinstance(schedule.steps, LazySteps):
                alike = schedule.algorithm, len(schedule.steps), schedule.release
                chains.setdefault(alike, []).append((demand, schedule, why))
            else:
                self._known[demand] = _host_bound_launch(self._timed(schedule), why)
        for (_, _, release), each in chains.items():
            times = self._times[release]
            durations_ps = chain_durations_ps([schedule for _, schedule, _ in each], times)
            for (demand, schedule, why), duration in zip(each, durations_ps, strict=True):
                self._known[demand] = _host_bound_launch(TimedSchedule(schedule, duration, "", times), why)
        return [self.time(demand) for demand in demands]

    def with_profile(self, profile: LibraryProfile) -> "Timer":
        """Return the timer of the same cluster and algorithm for the profile of a library."""
        if profile not in self._by_profile:
            other: Timer = self._make_with_profile(profile)
            self._by_profile[profile] = other
            other._by_profile = self._by_profile
        return self._by_profile[profile]

    def _make_with_profile(self, profile: LibraryProfile) -> "Timer":
        return Timer(self.cluster, self._algorithm, self.ways, profile)

    def candidates(self, demand: Demand, factor: float) -> list[TimedSchedule]:
        """Return the fastest candidate, and all that take less than ``factor`` times as long, in order.

        If overheads change by less than that factor, no other candidate can become the fastest. What a library chooses
        by estimates of its own is alone.
        """
        timed: list[TimedSchedule] = []
        possible = self._possibilities(demand)[0]
        if self._estimates_us(possible, demand):
            return [self.time(demand)]
        for bound_ps, schedule in self._by_bound(possible):
            if not timed or bound_ps < factor * min(item.duration_ps for item in timed):
                timed.append(_host_bound_launch(self._timed(schedule), "one of several"))
        timed.sort(key=lambda item: item.duration_ps)
        return [item for item in timed if item.duration_ps < factor * timed[0].duration_ps or item is timed[0]]

    def faster(self, chosen: TimedSchedule, *, library_only: bool = False) -> TimedSchedule | None:
        """Return the fastest other schedule than ``auto`` chose, if it takes less than nine tenths of the chosen.

        Of the library's own, and of the algorithms that need neither switches nor servers that sum; None for more than
        128 ranks, where timing all of them takes longer than the answer. ``library_only`` has the library's own alone,
        for any number of ranks.
        """
        demand, best = chosen.schedule.demand, None
        if self._algorithm != AUTO or (demand.ranks > _MOST_RANKS_OF_ALL and not library_only):
            return None
        others = self._possibilities(demand)[0]
        if not library_only:
            considered = {each.algorithm.partition(":")[0] for each in others}
            names = [name for name in ALGORITHMS.names() if demand.kind in ALGORITHMS.get(name).kinds]
            more = self._possible([name for name in names if name not in considered], demand)
            others = [*others, *(each for each in more if not each.schedule.assisted)]
        less_than_ps = chosen.duration_ps * _CLEARLY
        for bound_ps, schedule in self._by_bound(others):
            if bound_ps >= less_than_ps:
                break
            timed = _host_bound_launch(self._timed(schedule), "not chosen")
            if timed.duration_ps < less_than_ps:
                best, less_than_ps = timed, timed.duration_ps
        return best

    def alternatives(self, chosen: TimedSchedule) -> list[tuple[float, TimedSchedule]]:
        """Return what the library may choose as well, with its estimate over that of the chosen, below `SCATTER`."""
        demand = chosen.schedule.demand
        estimates = self._estimates_us(self._possibilities(demand)[0], demand)
        if self._algorithm != AUTO or not estimates:
            return []
        close = ((estimate_us / estimates[0][0], each.schedule) for estimate_us, each in estimates[1:])
        return [
            (ratio, _host_bound_launch(self._timed(schedule), "may be chosen as well"))
            for ratio, schedule in close
            if ratio < SCATTER
        ]

    def _estimates_us(self, possible: Sequence[Possibility], demand: Demand) -> list[tuple[float, Possibility]]:
        """Return possibilities with the library's estimates, in ascending order; empty if one has none."""
        estimates = [(each.profile.estimate_us(demand, each.algorithm, self.cluster), each) for each in possible]
        known = [(estimate_us, each) for estimate_us, each in estimates if estimate_us is not None]
        return sorted(known, key=lambda each: each[0]) if len(known) == len(estimates) else []

    def _by_bound(self, possible: Sequence[Possibility]) -> list[tuple[int, Schedule]]:
        """Return schedules with lower bounds of their durations in picoseconds, in ascending order."""
        schedules = [each.schedule for each in possible]
        bounds = [(duration_floor_ps(schedule, self._times[schedule.release]), schedule) for schedule in schedules]
        return sorted(bounds, key=lambda bound: bound[0])

    def _possibilities(self, demand: Demand) -> tuple[list[Possibility], str]:
        """Return what may run, at least one schedule, and the reason for these."""
        if not isinstance(self._algorithm, str) and demand.kind in self._algorithm.kinds:
            # An algorithm without options has the chunks of the library.
            bare = option_text(self._algorithm)
            cut = [name for name in self.profile.candidates(demand, self.cluster) if name.partition(":")[0] == bare]
            return self._possible(cut, demand) or self._schedules(self._algorithm, demand), _ASKED_FOR
        chosen = list(self.profile.candidates(demand, self.cluster))
        others: list[str] = []
        if not chosen:
            able = [name for name in ALGORITHMS.names() if demand.kind in ALGORITHMS.get(name).kinds]
            chosen = [name for name in able if demand.kind in ALGORITHMS.get(name).auto]
            others = [name for name in able if name not in chosen]
        if demand.ranks == 1:
            return self._schedules(chosen[0], demand), "one rank has nothing to send"
        if possible := self._possible(chosen, demand):
            return possible, f"what libraries commonly run for {demand.kind}"
        # The first other algorithm that can run it, else the refusal of the first that libraries have.
        for name in others:
            if possible := self._possible([name], demand):
                return possible, f"{', '.join(chosen)} cannot run this many ranks here"
        return self._schedules(chosen[0], demand), ""

    def _estimated(self, demand: Demand, possible: Sequence[Possibility], why: str) -> tuple[Possibility, str] | None:
        """Return what is alone (and ``why``), or chosen by estimates, and the reason; None if the fastest is."""
        if len(possible) == 1:
            return possible[0], why
        if not (estimates := self._estimates_us(possible, demand)):
            return None
        (least_us, chosen), *others = estimates
        rest = ", ".join(f"{format_seconds(each_us / 1e6)} by {each.text}" for each_us, each in others)
        what = f"asked for, {_OWN_CHOICE} of protocol" if why == _ASKED_FOR else _OWN_CHOICE
        return chosen, f"{what}: it estimates {format_seconds(least_us / 1e6)} against {rest}"

    def _choose(self, demand: Demand) -> TimedSchedule:
        """Return what the library chooses of the candidates by its estimates, else the fastest, and the reason."""
        possible, why_alone = self._possibilities(demand)
        if estimated := self._estimated(demand, possible, why_alone):
            return _host_bound_launch(self._timed(estimated[0].schedule), estimated[1])
        found: list[TimedSchedule] = []
        slower_ones: list[str] = []
        for least_ps, schedule in self._by_bound(possible):
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

    def _schedules(self, algorithm: str | Algorithm, demand: Demand) -> list[Possibility]:
        made, kept, cluster = make_algorithm(algorithm, demand.kind), self.ways.kept, self.cluster

        @cache
        def bare() -> Schedule:
            schedule = made.schedule(demand, cluster)
            check_timing_cost(schedule, len(cluster.fabric))
            return schedule

        def profiles() -> tuple[str, tuple[LibraryProfile, ...]]:
            return bare().algorithm, self.profile.protocols(bare(), cluster)

        def charged(profile: LibraryProfile) -> Schedule:
            return apply_overheads(bare(), cluster, profile, self.ways.sent)

        rates = self.profile.rates_of(cluster)
        if kept is None or rates is None or not same_at_rates(made):
            name, each = profiles()
            return [Possibility(name, profile, partial(charged, profile)) for profile in each]
        key = made, demand, self.profile, rates
        if key not in kept.profiles:
            kept.profiles[key] = profiles()
        name, each = kept.profiles[key]
        makes = [(profile, partial(kept.of, (*key, profile), partial(charged, profile))) for profile in each]
        return [Possibility(name, *make) for make in makes]

    def _possible(self, names: Sequence[str], demand: Demand) -> list[Possibility]:
        possible = []
        for name in names:
            with suppress(OptionError, TopologyError):
                possible += self._schedules(name, demand)
        return possible

    def _timed(self, schedule: Schedule) -> TimedSchedule:
        times = self._times[schedule.release]
        return TimedSchedule(schedule, duration_ps(schedule, self.cluster, times), "", times)


def _host_bound_launch(alone: TimedSchedule, why: str) -> TimedSchedule:
    """Return a timed schedule with the wait for the host, if its launches take longer."""
    schedule = alone.schedule
    if (waits_ps := schedule.host_ps - alone.duration_ps) <= 0:
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
