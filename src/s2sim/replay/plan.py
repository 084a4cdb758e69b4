"""What a recording's collectives become on a communication library."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.launches import Lowered, Request
from s2sim.collectives.libraries.lowering import lower
from s2sim.collectives.libraries.profile import PLAIN, Profile
from s2sim.collectives.libraries.tables import IDEAL
from s2sim.collectives.schedules.demand import Demand

if TYPE_CHECKING:
    from collections.abc import Collection

    from s2sim.collectives.libraries.library import Library
    from s2sim.reducers.scripts.script import Call, Recording


@dataclass(frozen=True, slots=True)
class Plan:
    """How the collectives of one recording are executed, one lowered a call.

    Attributes
    ----------
    groups : bool
        Whether those of one kind that are posted at once are one launch.
    in_flight : int or None
        How many run at once, in the order in which they were posted; None for any number.
    profile : Profile
        How the library runs them.
    """

    lowered: tuple[Lowered, ...]
    groups: bool
    in_flight: int | None
    profile: Profile = PLAIN

    @property
    def host_syncs(self) -> int:
        """Times that the busiest rank's host waits for the GPU because of how calls are executed."""
        by_group: Counter[tuple[int, ...]] = Counter()
        for each in self.lowered:
            by_group[each.ranks] += each.after.host_syncs + sum(step.before.host_syncs for step in each.steps)
        by_rank: Counter[int] = Counter()
        for ranks, syncs in by_group.items():
            by_rank.update(dict.fromkeys(ranks, syncs))
        return by_group[()] + max(by_rank.values(), default=0)

    def closed(self, calls: Collection[int], ideal: Plan) -> Plan:
        """Return the plan with some calls executed as ``ideal`` has them."""
        pairs = zip(self.lowered, ideal.lowered, strict=True)
        return replace(self, lowered=tuple(other if call in calls else own for call, (own, other) in enumerate(pairs)))

    def unordered(self, ideal: Plan) -> Plan:
        """Return the plan with groups and numbers in flight as ``ideal`` has them."""
        return replace(self, groups=ideal.groups, in_flight=ideal.in_flight)


def request_of(call: Call) -> Request:
    """Return what a recorded call asks of a library."""
    demand = Demand(call.kind, call.elements, call.itemsize, call.root, call.blocks)
    return Request(demand, call.op, call.dtype, call.size_from_data)


def make_plan(recording: Recording, library: Library = IDEAL) -> Plan:
    """Return what ``library`` executes for each call of a recording."""
    lowered = tuple(replace(lower(request_of(call), library), ranks=call.ranks) for call in recording.calls)
    return Plan(lowered, library.groups, library.in_flight, library.profile)
