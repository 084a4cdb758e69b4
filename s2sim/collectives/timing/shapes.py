"""Bounds of the rounds of a chain at any rates, for which links and messages that are alike count once.

Links are alike if they are of one kind and the same sizes cross them in the same rounds, in the same order: sums are
then equal to the last bit. Messages are alike if they are, and the links that they cross.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.schedule import CombinedRound, LazySteps, Schedule, Stage
from s2sim.collectives.timing.library_profile import LibraryProfile, RecentCache, all_equal
from s2sim.collectives.timing.routes import RouteSet, RouteTable, independent_messages
from s2sim.network.base import without_slack_links
from s2sim.network.fluid import solve_batch_ps
from s2sim.network.network import round_up_ps
from s2sim.topology.graph import Routes
from s2sim.units import PS_PER_S

# Links times rounds, up to which a bound may consider each latency.
_MAX_LATENCIES = 2**20
# The golden ratio, as in Fibonacci hashing (Knuth, vol. 3, 6.4).
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class PipelineBound:
    """A lower bound of a chain of rounds, see `s2sim.collectives.timing.rounds.RoundTimes.all_at_least_ps`."""

    until: Floats  # Bytes on each link in the rounds before each round, of shape (rounds + 1, links)
    # so_far_ps, from_there_ps: least latency on each link in rounds up to each round, or from there on
    so_far_ps: Floats
    from_there_ps: Floats
    times: int  # Number of consecutive rounds of each message

    @classmethod
    def of(cls, crossing: "Crossings", links: int, times: int, *, each_latency: bool) -> "PipelineBound":
        """Return the bound of all messages of a chain from their crossings of some links."""
        stages = int(crossing.first.max()) + 1
        places = crossing.first * links + crossing.link
        carried = np.bincount(places, crossing.bytes * crossing.weight, stages * links)
        until = np.zeros((stages + 1, links))
        np.cumsum(carried.reshape(stages, -1), axis=0, out=until[1:])
        soonest_ps = np.full((stages if each_latency else 1, links), np.inf)
        np.minimum.at(soonest_ps.reshape(-1), places if each_latency else crossing.link, crossing.latency_ps)
        if not each_latency:
            soonest_ps = np.broadcast_to(soonest_ps, (stages, links))
            return cls(until, soonest_ps, soonest_ps, times)
        return cls(until, np.minimum.accumulate(soonest_ps), np.minimum.accumulate(soonest_ps[::-1])[::-1], times)

    def at_least_ps(self, rate: Floats) -> int:
        """Return the bound at these bytes per picosecond of the links, in picoseconds."""
        stages, until = len(self.until) - 1, self.until
        # Rounds with the same first and last active stage have the same messages.
        rounds = np.arange(1, stages + self.times)
        begun, ended = np.minimum(rounds, stages), np.maximum(rounds - self.times, 0)
        at_least_ps = 0
        for both, times in zip(*np.unique(begun * stages + ended, return_counts=True), strict=True):
            first, last = both % stages, both // stages - 1
            sent_bytes = until[last + 1] - until[first]
            busy_ps = (np.maximum(self.so_far_ps[last], self.from_there_ps[first]) + sent_bytes / rate)[sent_bytes > 0]
            at_least_ps += int(times) * int(busy_ps.max(initial=0))
        return at_least_ps


class Crossings(NamedTuple):
    """Links that messages cross, in the order of messages: arrays of one shape."""

    link: Ints  # Index among the links that are used
    weight: Floats
    first: Ints  # First round of the message
    bytes: Floats
    latency_ps: Ints


def crossings_of(whole: CombinedRound, way: RouteSet) -> Crossings:
    """Return those of all messages of a chain of rounds on their routes."""
    message = np.repeat(np.arange(len(whole.first)), np.diff(way.routes.offsets))
    of_message = whole.first[message], whole.round.bytes[message], way.routes.latency_ps[message]
    return Crossings(way.place, way.routes.weights, *of_message)


def considers_each_latency(whole: CombinedRound, way: RouteSet) -> bool:
    """Return whether there are few enough links and rounds to consider each latency in a bound."""
    return (int(whole.first.max()) + 1) * len(way.used) <= _MAX_LATENCIES


def distinct_rows(columns: Sequence[NDArray[np.generic]]) -> tuple[Ints, Ints]:
    """Return the index of the first of equal rows, and the number of each row among these, int64.

    Columns have 8 bytes an entry.

    >>> [each.tolist() for each in distinct_rows([np.array([1, 1, 2, 1]), np.array([0.5, 0.25, 0.5, 0.5])])]
    [[0, 1, 2], [0, 1, 2, 0]]
    """
    table = [np.ascontiguousarray(column).view(np.uint64) for column in columns]
    digest = np.zeros(len(table[0]), np.uint64)
    for column in table:
        digest = (digest ^ column) * _MIX
        digest ^= digest >> np.uint64(29)
    _, first, number = np.unique(digest, return_index=True, return_inverse=True)
    if not all(np.array_equal(column[first][number], column) for column in table):
        # Two rows have one digest.
        _, first, number = np.unique(np.stack(table), axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[number.reshape(-1)]


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """The links and messages of a chain of rounds that differ; sizes and latencies are numbers of distinct ones."""

    kind: Ints  # Of each link
    # Crossings of these links: the link, its share of the message, first round, size and latency of the message
    link: Ints
    weight: Floats
    first: Ints
    size: Ints
    latency: Ints
    # Messages: first round, size, latency, and the links that each crosses, int64 of shape (messages, most links)
    message_first: Ints
    message_size: Ints
    message_latency: Ints
    crosses: Ints

    @classmethod
    def of(cls, way: RouteSet, kind: Ints, first: Ints, size: Ints, latency: Ints) -> "Alike":
        """Return those of messages on their routes; ``kind`` is of each used link, the others of each message."""
        routes = way.routes
        lengths, begins = np.diff(routes.offsets), routes.offsets[:-1]
        message = np.repeat(np.arange(len(lengths)), lengths)
        order = np.argsort(way.place, kind="stable")
        of_message = message[order]
        _, code = distinct_rows([routes.weights[order], first[of_message], size[of_message], latency[of_message]])
        on_link = np.bincount(way.place)
        start = np.cumsum(on_link) - on_link
        turn = np.arange(len(code)) - np.repeat(start, on_link)
        _, in_turn = distinct_rows([code, turn])
        mixed = (in_turn.astype(np.uint64) + np.uint64(1)) * _MIX
        sequence = np.add.reduceat((mixed ^ (mixed >> np.uint64(29))) * _MIX, start)
        chosen, class_of_link = distinct_rows([kind, on_link, sequence])
        if not np.array_equal(code, code[start[chosen][class_of_link[way.place[order]]] + turn]):
            # Two sequences have one digest.
            chosen = class_of_link = np.arange(len(kind))
        kept = np.concatenate([np.arange(start[link], start[link] + on_link[link]) for link in chosen])
        steps = np.minimum(np.arange(int(lengths.max())), lengths[:, None] - 1)
        crossed = class_of_link[way.place[begins[:, None] + steps]]
        rows, _ = distinct_rows([first, size, latency, *crossed.T])
        crossing = order[kept]
        own = message[crossing]
        return cls(
            kind[chosen],
            np.repeat(np.arange(len(chosen)), on_link[chosen]),
            routes.weights[crossing],
            first[own],
            size[own],
            latency[own],
            first[rows],
            size[rows],
            latency[rows],
            crossed[rows],
        )


class RoundShape(NamedTuple):
    """The links and messages of a round: load, mean bytes and least latency; size, latency and links crossed."""

    link: Ints
    load: Floats
    mean_bytes: Floats | np.float64
    soonest_ps: Ints
    bytes: Floats
    latency_ps: Ints
    crosses: Ints

    def bounds_ps(self, capacity: Floats) -> tuple[int, int]:
        """Return an upper and a lower bound of its duration; ``capacity`` is of each link, in bytes per picosecond."""
        share = np.zeros(len(capacity))
        share[self.link] = capacity[self.link] / self.load
        at_most_ps = self.latency_ps + round_up_ps(self.bytes / share[self.crosses].min(axis=1))
        at_least_ps = self.soonest_ps + round_up_ps(self.mean_bytes / share[self.link])
        return int(at_most_ps.max()), int(at_least_ps.max())


class ChainShape:
    """Bounds of a chain of rounds in which each message is sent in ``whole.times`` consecutive ones."""

    def __init__(self, whole: CombinedRound, way: RouteSet, alike: Alike, sizes: Floats, latencies_ps: Ints) -> None:
        self._alike, self._times = alike, whole.times
        self._each_latency = considers_each_latency(whole, way)
        of_crossings = sizes[alike.size], latencies_ps[alike.latency]
        self._crossings = Crossings(alike.link, alike.weight, alike.first, *of_crossings)
        self._messages = sizes[alike.message_size], latencies_ps[alike.message_latency], alike.crosses
        begins = np.unique(whole.first)
        starts = np.union1d(begins, begins + whole.times)
        self._starts, self.lengths = starts[:-1], np.diff(starts).tolist()

    @cached_property
    def _pipeline(self) -> PipelineBound:
        return PipelineBound.of(self._crossings, len(self._alike.kind), self._times, each_latency=self._each_latency)

    def at_least_ps(self, capacity: Floats) -> int:
        """Return the lower bound of all rounds at a capacity of each kind of link in bytes per picosecond."""
        return self._pipeline.at_least_ps(capacity[self._alike.kind])

    @cached_property
    def _rounds(self) -> list[RoundShape | None]:
        return [self._round(start) for start in self._starts.tolist()]

    def _round(self, start: int) -> RoundShape | None:
        """Return one round of the step that starts with this one; None if nothing is sent."""
        of_message, of_crossing = (
            (first <= start) & (first > start - self._times) for first in (self._alike.message_first, self._alike.first)
        )
        if not of_message.any():
            return None
        crossing = self._crossings
        link, latency_ps = crossing.link[of_crossing], crossing.latency_ps[of_crossing]
        weight, sizes = crossing.weight[of_crossing], crossing.bytes[of_crossing]
        sent_bytes, sent_ps, crosses = self._messages
        own, own_ps, own_links = sent_bytes[of_message], sent_ps[of_message], crosses[of_message]
        rows, _ = distinct_rows([own, own_ps, *own_links.T])
        used, place = np.unique(link, return_inverse=True)
        load = np.bincount(place, weight).astype(np.float64)
        soonest_ps = np.full(len(used), latency_ps.max())
        np.minimum.at(soonest_ps, place, latency_ps)
        mean = own[0] if all_equal(own) else np.bincount(place, sizes * weight) / load
        return RoundShape(used, load, mean, soonest_ps, own[rows], own_ps[rows], own_links[rows])

    def bounds_ps(self, capacity: Floats) -> list[tuple[int, int]]:
        """Return an upper and a lower bound of one round of each step in picoseconds."""
        of_links = capacity[self._alike.kind]
        return [(0, 0) if each is None else each.bounds_ps(of_links) for each in self._rounds]


class ScheduleShape:
    """What bounds the time of a schedule, a chain of rounds, at the rates of any kinds of links.

    ``capacity`` below are the bytes per picosecond of each kind.
    """

    def __init__(self, schedule: Schedule, kept: "KeptSchedules") -> None:
        self._kept = kept
        whole = schedule.stage.whole
        self._pipelined = whole is not None
        if whole is not None:
            self._parts = [(0, kept.chain(whole), 1)]
            return
        self._parts = []
        for index, step in enumerate(schedule.steps):
            if step.round.pattern.messages:
                alone = CombinedRound(step.round, np.zeros(len(step.round.bytes), np.int64), 1, step.round.pattern.src)
                self._parts.append((index, kept.chain(alone), step.times))

    def at_least_ps(self, capacity: Floats) -> int:
        """Return the lower bound without the launch."""
        of_kinds = self._kept.with_limits(capacity)
        if self._pipelined:
            return self._parts[0][1].at_least_ps(of_kinds)
        return sum(times * part.bounds_ps(of_kinds)[0][1] for _, part, times in self._parts)

    def duration_ps(self, capacity: Floats, solve: Callable[[int], int]) -> int:
        """Return the duration without the launch; ``solve`` returns that of a step's round, of which bounds differ."""
        of_kinds, duration_ps = self._kept.with_limits(capacity), 0
        for first, part, times in self._parts:
            bounds = zip(part.bounds_ps(of_kinds), part.lengths, strict=True)
            for step, ((most, least), length) in enumerate(bounds, first):
                duration_ps += times * length * (most if most <= least else solve(step))
        return duration_ps


# Collectives whose schedules are in use at the same time; some 10 MB each with 1,024 ranks.
_IN_USE = 2
# Rounds whose solutions are kept, and by how much factors between rates may differ that are the same.
_SOLVED, _SAME = 256, 1e-12


class KeptSchedules:
    """The schedules of collectives on clusters that differ in rates only, made once.

    Links of one class and rate on the first of these are of one kind. ``ways`` are the routes on all, ``profiles`` an
    algorithm's text and the library's profile of each protocol by what they follow from.
    """

    def __init__(self, ways: RouteTable) -> None:
        fabric = ways.cluster.fabric
        self._ways = ways
        of_link = np.stack([fabric.link_class.astype(np.float64), fabric.rate_Bps])
        _, self._first, kind = np.unique(of_link, axis=1, return_index=True, return_inverse=True)
        self._kind: Ints = kind.reshape(-1)
        self._limits: dict[float, int] = {}
        self._alike: dict[bytes, Alike] = {}
        self._kept: dict[Hashable, Schedule] = {}
        self.profiles: dict[Hashable, tuple[str, tuple[LibraryProfile, ...]]] = {}
        self._shapes: dict[int, ScheduleShape] = {}
        self._made: RecentCache[Hashable, Schedule] = RecentCache(_IN_USE, lambda _: 1)
        self._sent: dict[bytes, tuple[Floats, Ints]] = {}

    def sent_ps(self, routes: Routes, sizes_bytes: Floats, capacity: Floats) -> Ints:
        """Return when each of some messages without latency has been sent, int64 picoseconds of shape (m,).

        Where all links that may limit them are faster by one factor than they were, times are shorter by it: those of
        messages inside nodes stay, and those of others follow the rate of the network.
        """
        routes = without_slack_links(routes, capacity)
        ends_ps = np.zeros(len(sizes_bytes), np.int64)
        for chosen in independent_messages(routes, capacity):
            ends_ps[chosen] = self._sent_together_ps(routes.take(chosen), sizes_bytes[chosen], capacity)
        return ends_ps

    def _sent_together_ps(self, routes: Routes, sizes_bytes: Floats, capacity: Floats) -> Ints:
        parts = (each.tobytes() for each in (routes.offsets, routes.links, routes.weights, sizes_bytes))
        key, limiting = blake2b(b"".join(parts), digest_size=16).digest(), capacity[np.unique(routes.links)]
        if key in self._sent:
            slower, known_ps = self._sent[key]
            factor = limiting / slower
            # Rounding up to picoseconds matters least where times are longest.
            if factor.min() >= 1 and factor.max() <= factor.min() * (1 + _SAME):
                return round_up_ps(known_ps / factor[0])
        solved_ps = solve_batch_ps(routes, np.zeros(len(sizes_bytes), np.int64), sizes_bytes, capacity)
        while len(self._sent) >= _SOLVED:
            self._sent.pop(next(iter(self._sent)))
        self._sent[key] = limiting, solved_ps
        return solved_ps

    def capacity(self, of_links: Floats) -> Floats | None:
        """Return the capacity of each kind of link from that of each link; None if links of a kind differ."""
        of_kinds = of_links[self._first]
        return of_kinds if np.array_equal(of_kinds[self._kind], of_links) else None

    def with_limits(self, capacity: Floats) -> Floats:
        """Return the capacities of the kinds of links, and of the limits that represent links."""
        return np.concatenate([capacity, np.array([*self._limits]) / PS_PER_S])

    def chain(self, whole: CombinedRound) -> ChainShape:
        """Return the bounds of a chain of rounds."""
        way, pattern = self._ways.of(whole.round.pattern), whole.round.pattern
        sizes, size = np.unique(whole.round.bytes, return_inverse=True)
        latencies_ps, latency = np.unique(way.routes.latency_ps, return_inverse=True)
        parts = pattern.src, pattern.dst, whole.first, size, latency, way.limits_Bps
        held = b"".join(part.tobytes() + len(part).to_bytes(8, "little") for part in parts)
        key = blake2b(held, digest_size=16).digest()
        if key not in self._alike:
            first = len(self._first)
            limits, number = np.unique(way.limits_Bps, return_inverse=True)
            own = [first + self._limits.setdefault(limit, len(self._limits)) for limit in limits.tolist()]
            kind = np.concatenate([self._kind, np.array(own, np.int64)[number]])[way.used]
            self._alike[key] = Alike.of(way, kind, whole.first, size, latency)
        return ChainShape(whole, way, self._alike[key], sizes, latencies_ps)

    def of(self, key: Hashable, make: Callable[[], Schedule]) -> Schedule:
        """Return the schedule of a key as ``make`` returns it; the contents of its stage are made when read."""
        if key not in self._kept:
            self._kept[key] = self._light(self._made.of(key, make), key, make)
        return self._kept[key]

    def _light(self, schedule: Schedule, key: Hashable, make: Callable[[], Schedule]) -> Schedule:
        if not schedule.stage.chain or not len(schedule.steps):
            return schedule

        def stage() -> Stage:
            return self._made.of(key, make).stage

        volume = None if schedule.stage.volume is None else (lambda ranks: stage().traffic(ranks))
        # The first step tells whether switches reduce.
        first = schedule.steps[0]
        steps = LazySteps(len(schedule.steps), lambda step: stage().steps[step] if step else first)
        light = replace(schedule, stage=Stage(steps, lambda step, time: stage().pieces(step, time), volume))
        self._shapes[id(light)] = ScheduleShape(schedule, self)
        return light

    def shape(self, schedule: Schedule) -> ScheduleShape | None:
        """Return the shape of one of the schedules; None of others."""
        return self._shapes.get(id(schedule))
