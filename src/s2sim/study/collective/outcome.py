"""What a planned collective comes to: time, bandwidths as nccl-tests counts them, bound and busiest links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.schedules.demand import bus_factor
from s2sim.collectives.timing.bounds import lower_bound
from s2sim.collectives.timing.closed_form import closed_form_s
from s2sim.errors import ContendedError
from s2sim.study.collective.carry import carry
from s2sim.study.collective.link_loads import busiest_links
from s2sim.study.collective.result import CollectiveResult
from s2sim.study.collective.sizes import counted_bytes
from s2sim.study.fidelity.around import band_around
from s2sim.study.progress import SILENT
from s2sim.study.scenario.calibrated import outside_notes
from s2sim.topology.describe import first_line
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.study.collective.plan import PlannedCollective
    from s2sim.study.progress import Progress


def result_of(planned: PlannedCollective, progress: Progress = SILENT) -> CollectiveResult:
    """Return what a planned collective takes, its bandwidths, bound and busiest links."""
    spec, cluster, demand, timed = planned.spec, planned.cluster, planned.demand, planned.timed
    carried = carry(planned, progress)
    time_s = carried.duration_ps / PS_PER_S
    try:
        closed = None if planned.scenario.disturbed else closed_form_s(timed.schedule, cluster, timed.times)
    except ContendedError:
        closed = None
    assisted, beside = timed.schedule.assisted, planned.beside
    if beside is None:
        bound = lower_bound([demand], cluster.cuts(), assisted=assisted)
    else:
        bound = beside.bound(demand, assisted=assisted)
    size_bytes = counted_bytes(demand)
    algbw = size_bytes / time_s if time_s else None
    return CollectiveResult(
        spec=spec,
        spec_sha256=planned.spec_sha256(),
        kind=demand.kind,
        algorithm=timed.schedule.algorithm,
        why=timed.why,
        cluster=first_line(cluster),
        workers=demand.ranks,
        size_bytes=size_bytes,
        network=spec.network,
        time_s=time_s,
        clocked_s=None
        if spec.execution != "by-message" or planned.scenario.disturbed
        else timed.duration_ps / PS_PER_S,
        lower_bound_s=bound.seconds,
        lower_bound_why=bound.derivation,
        closed_form_s=closed,
        algbw_Bps=algbw,
        busbw_Bps=None if algbw is None else algbw * bus_factor(demand.kind, demand.ranks),
        bytes_per_rank=int(timed.schedule.traffic()[0][: demand.ranks].max()),
        bottlenecks=busiest_links(cluster.fabric, carried.sent, time_s),
        rank_finish_s=tuple((carried.ends_ps[: demand.ranks] / PS_PER_S).tolist()),
        cross_check=carried.check,
        effects=carried.effects,
        band=None
        if planned.by_message or beside is not None
        else band_around(time_s, cluster, planned.profile, demand.kind, size_bytes),
        groups=None if beside is None else beside.row(demand, time_s),
        notes=tuple(outside_notes(planned.library, planned.scenario, demand.ranks, [(demand.kind, size_bytes)])),
    )
