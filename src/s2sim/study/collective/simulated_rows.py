"""Rows of a log as they run in simulation, with the terms of their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s2sim.collectives.terms.of_schedule import terms_of
from s2sim.study.collective.as_logged import LoggedTimer
from s2sim.study.collective.many_sizes import time_sizes
from s2sim.study.collective.plan import plan_collective
from s2sim.study.collective.sizes import make_demand
from s2sim.study.scenario.calibrated import outside_notes
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.terms.term import Term
    from s2sim.study.collective.spec import CollectiveSpec
    from s2sim.study.measured_logs.table import MeasuredRow, MeasuredTable
    from s2sim.study.progress import Progress
    from s2sim.topology.cluster import Cluster


class FoundRow(NamedTuple):
    """A row that is compared, and its table."""

    row: MeasuredRow
    table: MeasuredTable


class SimulatedRow(NamedTuple):
    """What a row takes in simulation; no terms where something else than the schedule decides how long."""

    size_bytes: int
    time_s: float
    algorithm: str
    protocol: str
    terms: tuple[Term, ...]


def simulate_rows(
    spec: CollectiveSpec, found: Sequence[FoundRow], progress: Progress
) -> tuple[list[SimulatedRow], Cluster, list[str]]:
    """Return what rows take as the log says that they ran, where, and what else to know.

    Over packets, or where links fail meanwhile, they run as asked, and have no terms.
    """
    planned = plan_collective(spec)
    cluster, sizes = planned.cluster, [each.row.size_bytes for each in found]
    if spec.network != "fluid" or planned.by_message:
        timed, _, notes = time_sizes(spec, sizes, progress)
        return [SimulatedRow(size.size_bytes, size.time_s, size.algorithm, "", ()) for size in timed], cluster, notes
    notes = outside_notes(planned.library, planned.scenario, spec.workers, [(spec.kind, size) for size in sizes])
    timer = LoggedTimer(cluster, planned.profile, spec.algorithm)
    known: dict[object, SimulatedRow] = {}
    progress.start(len(found), "simulating sizes")
    simulated = []
    for row, table in found:
        key = row.size_bytes, row.algorithm, row.protocol, row.channels, table.line
        if key not in known:
            demand = make_demand(spec.kind, row.size_bytes, spec.workers, spec.root)
            one = timer.time(demand, row, table)
            schedule, terms = one.schedule, terms_of(one, cluster)
            time_s = one.duration_ps / PS_PER_S
            known[key] = SimulatedRow(row.size_bytes, time_s, schedule.algorithm, schedule.protocol, terms)
        simulated.append(known[key])
        progress.advance()
    progress.stop()
    return simulated, cluster, notes
