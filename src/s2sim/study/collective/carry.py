"""One planned collective through the networks that were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.duration import rank_ends_ps
from s2sim.collectives.timing.timer import sent_by_pattern
from s2sim.replay.faults.permanent import permanent_effects
from s2sim.study.collective.both_networks import compare, run_as_packets
from s2sim.study.collective.disturbed import disturb_collective
from s2sim.study.collective.link_loads import Sent
from s2sim.study.progress import SILENT
from s2sim.study.scenario.faults import in_order, sent_both_ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from s2sim.arrays import Ints
    from s2sim.collectives.timing.timer import Wanted
    from s2sim.replay.faults.fault import Effect
    from s2sim.study.collective.both_networks import CollectiveCheck
    from s2sim.study.collective.plan import PlannedCollective
    from s2sim.study.progress import Progress


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """How a collective went; ``sent`` returns what links carried, all of which may not fit in memory."""

    duration_ps: int
    ends_ps: Ints
    sent: Callable[[Wanted | None], Iterable[Sent]]
    check: CollectiveCheck | None
    effects: tuple[Effect, ...]


def carry(planned: PlannedCollective, progress: Progress = SILENT) -> Carried:
    """Run a collective in the network that was asked for, and in the other one for a cross-check."""
    spec, scenario, cluster, timed = planned.spec, planned.scenario, planned.cluster, planned.timed
    schedule, check = timed.schedule, None
    effects = permanent_effects(scenario.faults, planned.healthy, sent_both_ways(schedule, planned.healthy, cluster))

    workers = np.arange(cluster.workers) if planned.beside is None else planned.beside.workers

    def sent(wanted: Wanted | None) -> Iterable[Sent]:
        chosen = None if wanted is None else lambda src, dst: wanted(workers[src], workers[dst])
        for pattern, sizes_bytes in sent_by_pattern(schedule, chosen):
            yield Sent(timed.times.routes(pattern), workers[pattern.src], workers[pattern.dst], sizes_bytes)

    if spec.as_packets:
        packets_ps, packet_ends_ps = run_as_packets(schedule, cluster, spec, progress)
        if spec.cross_check:
            check = compare(schedule, cluster, spec, fluid_ps=timed.duration_ps, packets_ps=packets_ps)
    if spec.network == "packet":
        return Carried(packets_ps, packet_ends_ps, sent, check, in_order(effects, scenario.faults))
    if planned.by_message:
        disturbed = disturb_collective(schedule, cluster, scenario.faults)
        both = in_order([*effects, *disturbed.effects], scenario.faults)
        return Carried(disturbed.duration_ps, disturbed.ends_ps, lambda _: [disturbed.sent], check, both)
    ends_ps = rank_ends_ps(schedule, cluster, timed.times)
    return Carried(timed.duration_ps, ends_ps, sent, check, in_order(effects, scenario.faults))
