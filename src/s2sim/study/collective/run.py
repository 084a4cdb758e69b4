"""One collective on one cluster: time, bandwidths as nccl-tests counts them, bound and busiest links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.collectives.timing.bounds import lower_bound
from s2sim.collectives.timing.closed_form import closed_form_s
from s2sim.errors import ContendedError
from s2sim.study.by_name import takes_fields_of
from s2sim.study.collective.carry import carry
from s2sim.study.collective.link_loads import busiest_links
from s2sim.study.collective.plan import plan_collective
from s2sim.study.collective.result import CollectiveResult
from s2sim.study.collective.sizes import bus_factor, counted_bytes
from s2sim.study.collective.spec import CollectiveSpec
from s2sim.study.fidelity.around import band_around
from s2sim.study.progress import SILENT
from s2sim.study.scenario.calibrated import outside_notes
from s2sim.topology.describe import first_line
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.collective.plan import PlannedCollective
    from s2sim.study.progress import Progress


@takes_fields_of(CollectiveSpec)
def run_collective(
    kind: str, topology: str, *, workers: int, size_bytes: int | Sequence[int], **options: Any
) -> CollectiveResult:
    """Simulate one collective from a common start, with nothing else on the cluster.

    Parameters
    ----------
    kind : str
        What it does, one of `KINDS`.
    topology : str
        Name of a shipped topology or path of a TOML file.
    size_bytes : int or sequence of int
        As nccl-tests counts it, or what each rank contributes.
    **options
        The other fields of `s2sim.study.collective.spec.CollectiveSpec`: ``algorithm``, ``placement``, ``overrides``,
        ``seed``, ``root``, ``faults``, ``network``, ``packet_bytes``, ``buffer_bytes``, ``cross_check``.

    Raises
    ------
    S2SimError
        For anything that cannot be done as asked.
    """
    spec = CollectiveSpec.of(topology, kind=kind, workers=workers, size_bytes=size_bytes, **options)
    return result_of(plan_collective(spec))


def result_of(planned: PlannedCollective, progress: Progress = SILENT) -> CollectiveResult:
    """Return what a planned collective takes, its bandwidths, bound and busiest links."""
    spec, cluster, demand, timed = planned.spec, planned.cluster, planned.demand, planned.timed
    carried = carry(planned, progress)
    time_s = carried.duration_ps / PS_PER_S
    try:
        closed = None if planned.scenario.disturbed else closed_form_s(timed.schedule, cluster, timed.times)
    except ContendedError:
        closed = None
    bound = lower_bound([demand], cluster.cuts(), assisted=timed.schedule.assisted)
    size_bytes = counted_bytes(demand)
    algbw = size_bytes / time_s if time_s else None
    return CollectiveResult(
        spec=spec,
        spec_sha256=planned.spec_sha256(),
        kind=demand.kind,
        algorithm=timed.schedule.algorithm,
        why=timed.why,
        headline=first_line(cluster),
        workers=demand.ranks,
        size_bytes=size_bytes,
        network=spec.network,
        time_s=time_s,
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
        if planned.scenario.disturbed
        else band_around(time_s, cluster, planned.profile, demand.kind, size_bytes),
        notes=tuple(outside_notes(planned.library, planned.scenario, demand.ranks, [(demand.kind, size_bytes)])),
    )
