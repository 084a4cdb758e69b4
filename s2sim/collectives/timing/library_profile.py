"""What a communication library adds to a schedule when it sends it, and which algorithm it takes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads
from s2sim.collectives.schedules.schedule import LazySteps, Pattern, Round, Schedule, Step
from s2sim.errors import S2SimError
from s2sim.topology.cluster import Cluster
from s2sim.topology.quantity import Quantity
from s2sim.topology.shape import ClusterShape

# Some 150 bytes each.
_CACHED_MESSAGES = 1 << 18


class PatternCache:
    """Patterns as a library sends them on one cluster, and on others that differ from it in rates alone.

    As many as memory holds are kept, those that were used last.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[bytes, Hashable], Pattern] = {}
        self._messages = 0

    def of(self, pattern: Pattern, told: Hashable, overheads: Callable[[], Overheads | None]) -> Pattern:
        """Return a pattern with its overheads, which are computed once; itself where there are none.

        They depend on ``told``, the pattern and the cluster alone, see `Profile.told_by`.
        """
        key = (pattern.key, told)
        sent = self._found.pop(key, None)
        if sent is None:
            found = overheads()
            if found is None:
                return pattern
            sent = replace(pattern, overheads=found)
            self._messages += sent.messages
            while self._found and self._messages > _CACHED_MESSAGES:
                self._messages -= self._found.pop(next(iter(self._found))).messages
        self._found[key] = sent
        return sent


@dataclass(frozen=True, slots=True)
class LibraryProfile:
    """How a library runs collectives, beside what it executes; this one adds nothing and leaves the choice open.

    Others inherit from it, and are frozen dataclasses of their parameters too: equal profiles time alike.
    """

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return what is added to each message of one round of a schedule on a cluster; None for nothing."""

    def cache_key(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Hashable | None:
        """Return on what overheads of a round depend beside its pattern; None where they may depend on anything.

        Rounds of equal patterns of which it tells the same have the same overheads, also on clusters that differ in
        rates alone.
        """

    def launch_ps(self, schedule: Schedule, cluster: Cluster) -> int:
        """Return what passes before the first byte of a launch, in picoseconds: the sum of `launch_terms`."""
        return sum(int(each.each[0]) for each in self.launch_terms(schedule, cluster))

    def launch_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return what a launch is the sum of, of one message each; empty for nothing, and where that is not told."""
        return ()

    def host_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return what the host takes from one launch to the next is the sum of; empty for less than GPUs ever take."""
        return ()

    def choose(self, demand: Demand, cluster: Cluster) -> str | None:
        """Return the option string of the algorithm that the library takes; None for the fastest."""

    def candidates(self, demand: Demand, cluster: Cluster) -> tuple[str, ...]:
        """Return option strings of the algorithms that the library has; none for those that libraries have."""
        return ()

    def protocols(self, schedule: Schedule, cluster: Cluster) -> tuple[LibraryProfile, ...]:
        """Return one profile for each way in which the library can send this, of which the fastest counts: itself."""
        return (self,)

    @property
    def protocol(self) -> str:
        """Name of the way in which it sends, empty where there is only one."""
        return ""

    def blocks(self, demand: Demand, cluster: Cluster) -> int:
        """Return how many thread blocks a collective's kernel has on each GPU; 0 where that is not known."""
        return 0

    def unmodelled_reason(self, shape: ClusterShape) -> str | None:
        """Return why it is not known what the library adds on clusters of a shape; None where it is."""
        return None

    @property
    def used_quantities(self) -> tuple[Quantity, ...]:
        """Numbers from which it works, with their origins."""
        return ()

    def assumed(self, shape: ClusterShape) -> str:
        """Return in a few words what it takes clusters of a shape to run."""
        return "with a profile of its own"


NO_OVERHEADS = LibraryProfile()

# Of steps that are made when asked for, which may have a pattern each.
_PATTERN_CACHE = 64


def apply_overheads(
    schedule: Schedule, cluster: Cluster, profile: LibraryProfile, kept: PatternCache | None = None
) -> Schedule:
    """Return a schedule as a library of this profile sends it on a cluster.

    Rounds take the bytes that the library makes of them, their patterns carry the latency and limits that `find_routes`
    adds to the ways, and the launch comes before the first of them: whoever runs what comes out need know of no
    profile. Patterns that are ``kept`` of other schedules on this cluster, or on one that differs from it in rates
    alone, are taken from there.
    """
    if profile == NO_OVERHEADS:
        return schedule
    launch_ps = profile.launch_ps(schedule, cluster)
    if launch_ps < 0:
        raise S2SimError(f"a launch of {launch_ps} ps was charged for {schedule.algorithm}: it must not be negative")
    patterns: dict[tuple[Pattern, bytes], Pattern] = {}

    def send(sent: Round) -> Round:
        told = None if kept is None or not sent.pattern.messages else profile.cache_key(sent, schedule, cluster)
        if kept is not None and told is not None:
            pattern = kept.of(sent.pattern, told, lambda: profile.overheads(sent, schedule, cluster))
            return sent if pattern.overheads is None else Round(pattern, sent.bytes * pattern.overheads.factor)
        found = profile.overheads(sent, schedule, cluster) if sent.pattern.messages else None
        if found is None:
            return sent
        if lazy and len(patterns) >= _PATTERN_CACHE:
            patterns.clear()
        # Rounds of one pattern go on sharing it: its routes are found once.
        pattern = patterns.setdefault((sent.pattern, found.key), replace(sent.pattern, overheads=found))
        return Round(pattern, sent.bytes * found.factor)

    steps, lazy = schedule.steps, isinstance(schedule.steps, LazySteps)
    if lazy:
        sent: Sequence[Step] = LazySteps(len(steps), lambda at: replace(step := steps[at], round=send(step.round)))
    else:
        rounds = {each: send(each) for each in dict.fromkeys(step.round for step in steps)}
        sent = [replace(step, round=rounds[step.round]) for step in steps]
    whole = schedule.stage.whole
    stage = replace(schedule.stage, steps=sent, whole=whole and replace(whole, round=send(whole.round)))
    launch = profile.launch_terms(schedule, cluster)
    host = profile.host_terms(schedule, cluster)
    return replace(schedule, stage=stage, launch_ps=launch_ps, launch=launch, protocol=profile.protocol, host=host)
