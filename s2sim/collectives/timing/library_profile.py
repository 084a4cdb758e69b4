"""The overheads that a communication library adds to a schedule, and its choice of algorithms."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TypeVar

import numpy as np

from s2sim.arrays import Floats
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads
from s2sim.collectives.schedules.schedule import LazySteps, Pattern, Round, Schedule, Step
from s2sim.errors import S2SimError
from s2sim.topology.cluster import Cluster
from s2sim.topology.quantity import Quantity
from s2sim.topology.shape import ClusterShape

K = TypeVar("K")
V = TypeVar("V")
# Some 50 bytes each.
_CACHED_MESSAGES = 1 << 20


class RecentCache(dict[K, V]):
    """Values by key, of which those used last are kept, of a total size of at most ``most``."""

    def __init__(self, most: int, size_of: Callable[[V], int]) -> None:
        super().__init__()
        self._most, self._size_of, self._total = most, size_of, 0

    def of(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, which is made where it is not kept."""
        value = self.pop(key, None)
        if value is None:
            value = make()
            self._total += self._size_of(value)
            while self and self._total > self._most:
                self._total -= self._size_of(self.pop(next(iter(self))))
        # The most recently used is the last.
        self[key] = value
        return value


class PatternCache(RecentCache[tuple[bytes, Hashable], Pattern]):
    """Patterns with overheads on one cluster, and on others that differ from it in rates only."""

    def __init__(self) -> None:
        super().__init__(_CACHED_MESSAGES, attrgetter("messages"))


@dataclass(frozen=True, slots=True)
class LibraryProfile:
    """How a library runs collectives; this one adds nothing and leaves the choice of algorithms open.

    Others inherit from it, and are frozen dataclasses of their parameters too: equal profiles have equal times.
    """

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return the overheads of each message of a round of a schedule on a cluster; None for none."""

    def cache_key(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Hashable | None:
        """Return the inputs of the overheads of a round except its pattern; None if overheads cannot be cached.

        Rounds with equal patterns and keys have the same overheads, also on clusters that differ in rates only.
        """

    def rates_of(self, cluster: Cluster) -> Hashable | None:
        """Return the rates of a cluster on which schedules without switches depend; None if these are not known."""
        return () if type(self) is LibraryProfile else None

    def launch_ps(self, schedule: Schedule, cluster: Cluster) -> int:
        """Return the time before the first byte of a launch, in picoseconds: the sum of `launch_terms`."""
        return sum(int(each.each[0]) for each in self.launch_terms(schedule, cluster))

    def launch_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the terms of the time of a launch, of one message each; empty for none, or if not defined."""
        return ()

    def host_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the terms of the time of the host between launches; empty if GPUs always take longer."""
        return ()

    def estimate_us(self, demand: Demand, algorithm: str, cluster: Cluster) -> float | None:
        """Return the microseconds by which the library chooses among algorithms (option strings) with this protocol.

        None if it takes the fastest.
        """

    def candidates(self, demand: Demand, cluster: Cluster) -> tuple[str, ...]:
        """Return option strings of the algorithms of the library; none for those that libraries have in general."""
        return ()

    def protocols(self, schedule: Schedule, cluster: Cluster) -> "tuple[LibraryProfile, ...]":
        """Return one profile per protocol of the library for this schedule, of which the fastest counts."""
        return (self,)

    @property
    def protocol(self) -> str:
        """Name of the protocol, empty if the library has only one."""
        return ""

    def blocks(self, demand: Demand, cluster: Cluster) -> int:
        """Return the number of thread blocks of the kernel on each GPU; 0 if unknown."""
        return 0

    def unmodelled_reason(self, shape: ClusterShape) -> str | None:
        """Return why overheads on clusters of a shape are unknown; None if they are known."""
        return None

    @property
    def used_quantities(self) -> tuple[Quantity, ...]:
        """Constants with their origins."""
        return ()

    def assumed(self, shape: ClusterShape) -> str:
        """Return a short description of the software that it assumes on clusters of a shape."""
        return "with a profile of its own"


NO_OVERHEADS = LibraryProfile()


def all_equal(sizes_bytes: Floats) -> bool:
    """Return whether all messages have the same size, float64 of shape (m,)."""
    return bool((sizes_bytes == sizes_bytes[0]).all())


def apply_overheads(
    schedule: Schedule, cluster: Cluster, profile: LibraryProfile, cache: PatternCache | None = None
) -> Schedule:
    """Return a schedule with the overheads of a library on a cluster: bytes, latencies, limits and the launch.

    ``cache`` may have patterns of other schedules on this cluster, or on one that differs from it in rates only.
    """
    if profile == NO_OVERHEADS:
        return schedule
    if (launch_ps := profile.launch_ps(schedule, cluster)) < 0:
        raise S2SimError(f"a launch of {launch_ps} ps was charged for {schedule.algorithm}: it must not be negative")
    shared, own = PatternCache() if cache is None else cache, PatternCache()

    def send(sent: Round) -> Round:
        if not sent.pattern.messages:
            return sent
        overheads: Callable[[], Overheads | None] = partial(profile.overheads, sent, schedule, cluster)
        key, patterns = profile.cache_key(sent, schedule, cluster), shared
        if key is None:
            # Rounds of one pattern share the new pattern all the same, so that its routes are computed once.
            found = overheads()
            key, patterns, overheads = None if found is None else found.key, own, lambda: found
        pattern = patterns.of((sent.pattern.key, key), lambda: replace(sent.pattern, overheads=overheads()))
        if pattern.overheads is None:
            return sent
        sizes = sent.bytes * pattern.overheads.factor
        # Equal ones are kept as one.
        return Round(pattern, np.broadcast_to(sizes[:1].copy(), sizes.shape) if all_equal(sizes) else sizes)

    steps = schedule.steps
    if isinstance(steps, LazySteps):
        sent: Sequence[Step] = LazySteps(len(steps), lambda at: replace(step := steps[at], round=send(step.round)))
    else:
        rounds = {each: send(each) for each in dict.fromkeys(step.round for step in steps)}
        sent = [replace(step, round=rounds[step.round]) for step in steps]
    whole = schedule.stage.whole
    stage = replace(schedule.stage, steps=sent, whole=whole and replace(whole, round=send(whole.round)))
    launch, host = profile.launch_terms(schedule, cluster), profile.host_terms(schedule, cluster)
    return replace(schedule, stage=stage, launch_ps=launch_ps, launch=launch, protocol=profile.protocol, host=host)
