"""What ranks and links do during a collective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.timing.duration import simulate_ps
from s2sim.study.collective.disturbed import disturb_collective
from s2sim.study.measuring.timeline import Timeline, check_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.collectives.timing.running import RanRound
    from s2sim.network.fluid import OnLoads
    from s2sim.study.collective.plan import PlannedCollective


def timeline_of(planned: PlannedCollective) -> Timeline:
    """Return what ranks and links do while it runs, message by message, in the fluid network."""
    schedule = planned.timed.schedule
    check_messages([schedule], f"{schedule.algorithm} over {schedule.demand.ranks} ranks")
    timeline = Timeline(planned.cluster)

    def note(ran: RanRound) -> None:
        timeline.add_round(ran, schedule.demand.kind)

    watch_rounds(planned, note, timeline.add_loads)
    return timeline


def watch_rounds(
    planned: PlannedCollective, on_round: Callable[[RanRound], None], on_loads: OnLoads | None = None
) -> None:
    """Tell of every round when all of it has been delivered, and of the loads of all links whenever they change."""
    schedule = planned.timed.schedule
    if planned.by_message:
        disturb_collective(schedule, planned.cluster, planned.scenario.faults, on_round, on_loads)
    else:
        simulate_ps(schedule, planned.cluster, on_round, on_loads)
