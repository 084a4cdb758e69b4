"""A collective from its spec to its schedule, its time and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.algorithms.registry import helpers_of, make_algorithm
from s2sim.collectives.schedules.demand import Demand, bus_factor, make_demand, nccl_tests_bytes
from s2sim.collectives.timing.bounds import lower_bound, rank_ends_ps, simulate_ps
from s2sim.collectives.timing.collective_run import CompletedRound
from s2sim.collectives.timing.concurrent_groups import ConcurrentGroupsTimer
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.collectives.timing.rounds import Wanted, bytes_by_pattern
from s2sim.collectives.timing.terms import schedule_terms
from s2sim.collectives.timing.timer import TimedSchedule, Timer, closed_form_s
from s2sim.errors import ContendedError, OptionError, warn
from s2sim.experiment.cluster_spec import accept_fields_of
from s2sim.experiment.costs import Cost, collective_features, cost_of
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.experiment.scenario.cluster import (
    Scenario,
    effects_in_order,
    extrapolated_constants_notes,
    healthy_and_damaged_routes,
    resolve_traffic,
    traffic_record,
    warn_of_vendor,
)
from s2sim.experiment.scenario.content_hash import profile_content
from s2sim.experiment.scenario.groups import ParallelGroups, concurrent_groups_timer, parse_groups
from s2sim.libraries.library import Library
from s2sim.libraries.lowering import IDEAL, CollectiveRequest, choose_library, lower
from s2sim.network.fluid import OnLoads
from s2sim.simulation.faults.fault import Effect, permanent_effects
from s2sim.topology.cluster import Cluster
from s2sim.topology.describe import summary_line
from s2sim.traffic import networks
from s2sim.traffic.collective_result import BesideRow, CollectiveResult, OtherAlgorithm, TermRow
from s2sim.traffic.spec import CollectiveSpec
from s2sim.uncertainty.interval import Band, interval_at
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.experiment.timeline import Timeline


def concurrent_groups(text: str, workers: int, scenario: Scenario) -> ParallelGroups | None:
    """Return the requested groups, which run the same concurrently; None, with a warning, if one has all ranks."""
    groups = parse_groups(text, workers)
    if scenario.disturbed:
        raise OptionError(
            f"--groups {text}: groups beside each other are timed with nothing else going on, and faults that begin "
            "later are: leave either out"
        )
    if groups.count > 1:
        return groups
    warn(f"--groups {text} changes nothing here: one group has all ranks")
    return None


class SimulatedCollective(NamedTuple):
    """A simulated collective; ``sent`` returns the bytes on routes, all of which may not fit in memory."""

    duration_ps: int
    ends_ps: Ints
    sent: Callable[[Wanted | None], Iterable[networks.RoutedBytes]]
    check: networks.CollectiveCheck | None
    effects: tuple[Effect, ...]


def simulate_collective(planned: PlannedCollective, progress: ProgressWatcher = SILENT) -> SimulatedCollective:
    """Run a collective in the requested network, and in the other one for a cross-check."""
    spec, scenario, cluster, timed = planned.spec, planned.scenario, planned.cluster, planned.timed
    schedule, check = timed.schedule, None
    routes = healthy_and_damaged_routes(schedule, planned.healthy, cluster)
    effects = permanent_effects(scenario.faults, planned.healthy, routes)
    workers = np.arange(cluster.workers) if planned.groups is None else planned.groups.dp_groups.reshape(-1)

    def sent(wanted: Wanted | None) -> Iterable[networks.RoutedBytes]:
        chosen = None if wanted is None else lambda src, dst: wanted(workers[src], workers[dst])
        for pattern, sizes_bytes in bytes_by_pattern(schedule, chosen):
            ends = workers[pattern.src], workers[pattern.dst]
            yield networks.RoutedBytes(timed.times.routes(pattern), *ends, sizes_bytes)

    if spec.as_packets:
        packet_ends_ps = networks.run_as_packets(schedule, cluster, spec, progress)
        packets_ps = int(packet_ends_ps.max())
        if spec.cross_check:
            durations_ps = {"fluid_ps": timed.duration_ps, "packets_ps": packets_ps}
            check = networks.compare_networks_on(schedule, cluster, spec, **durations_ps)
    if spec.network == "packet":
        return SimulatedCollective(packets_ps, packet_ends_ps, sent, check, effects_in_order(effects, scenario.faults))
    if planned.by_message:
        disturbed = networks.simulate_with_faults(schedule, cluster, scenario.faults)
        both, ends_ps = effects_in_order([*effects, *disturbed.effects], scenario.faults), disturbed.ends_ps
        return SimulatedCollective(int(ends_ps.max()), ends_ps, lambda _: [disturbed.sent], check, both)
    ends_ps = rank_ends_ps(schedule, cluster, timed.times)
    return SimulatedCollective(timed.duration_ps, ends_ps, sent, check, effects_in_order(effects, scenario.faults))


def collective_result(planned: PlannedCollective, progress: ProgressWatcher = SILENT) -> CollectiveResult:
    """Return the time of a planned collective, its bandwidths, bound and busiest links."""
    spec, cluster, demand, timed = planned.spec, planned.cluster, planned.demand, planned.timed
    simulated = simulate_collective(planned, progress)
    time_s = simulated.duration_ps / PS_PER_S
    try:
        closed = None if planned.scenario.disturbed else closed_form_s(timed.schedule, cluster, timed.times)
    except ContendedError:
        closed = None
    assisted, sizes, groups = timed.schedule.assisted, planned.groups, None
    bound = lower_bound([demand], planned.timer.cuts(), assisted=assisted)
    if sizes is not None:
        assert isinstance(planned.timer, ConcurrentGroupsTimer)
        alone_s = planned.timer.alone_ps(demand) / PS_PER_S
        groups = BesideRow(sizes.tp, sizes.pp, sizes.dp, sizes.count, alone_s, time_s / alone_s if alone_s else None)
    alone = spec.network == "fluid" and not planned.by_message and sizes is None
    faster = planned.timer.faster(timed) if alone else None
    alternatives = [each for _, each in planned.timer.alternatives(timed)] if alone else []
    others_s = [each.duration_ps / PS_PER_S for each in alternatives]
    uses_clock = spec.execution != "by-message" or planned.scenario.disturbed
    size_bytes = nccl_tests_bytes(demand)
    sent = [(demand.kind, size_bytes)]
    algbw = size_bytes / time_s if time_s else None
    record = planned.record()
    return CollectiveResult(
        spec=spec,
        spec_sha256=record["spec_sha256"],
        kind=demand.kind,
        algorithm=timed.schedule.algorithm,
        why=timed.why,
        cluster=summary_line(cluster),
        workers=demand.ranks,
        size_bytes=size_bytes,
        network=spec.network,
        time_s=time_s,
        clocked_s=None if uses_clock else timed.duration_ps / PS_PER_S,
        lower_bound_s=bound.seconds,
        lower_bound_why=bound.derivation,
        closed_form_s=closed,
        algbw_Bps=algbw,
        busbw_Bps=None if algbw is None else algbw * bus_factor(demand.kind, demand.ranks),
        bytes_per_rank=int(timed.schedule.traffic()[0][: demand.ranks].max()),
        bottlenecks=networks.busiest_links(cluster.fabric, simulated.sent, time_s),
        rank_finish_s=tuple((simulated.ends_ps[: demand.ranks] / PS_PER_S).tolist()),
        cross_check=simulated.check,
        effects=simulated.effects,
        band=_band([time_s, *others_s], planned, size_bytes, bound.seconds),
        groups=groups,
        protocol=timed.schedule.protocol or None,
        faster=None if faster is None else _other(faster),
        alternatives=tuple(_other(each) for each in alternatives),
        notes=tuple(extrapolated_constants_notes(planned.library, planned.scenario, demand.ranks, sent)),
        provenance=record,
    )


def _other(timed: TimedSchedule) -> OtherAlgorithm:
    return OtherAlgorithm(timed.schedule.algorithm, timed.schedule.protocol or None, timed.duration_ps / PS_PER_S)


def _band(times_s: Sequence[float], planned: PlannedCollective, size_bytes: int, least_s: float) -> Band | None:
    """Return the band around the time, and around those of what the library may choose as well, above a bound."""
    if planned.by_message or planned.groups is not None:
        return None
    where = planned.cluster, planned.profile, planned.demand.kind, size_bytes, least_s
    bands = [found for time_s in times_s if (found := interval_at(time_s, *where)) is not None]
    return Band(min(each.low_s for each in bands), max(each.high_s for each in bands), bands[0].of) if bands else None


@dataclass(frozen=True, slots=True, eq=False)
class PlannedCollective:
    """A collective on a cluster, ready to run.

    ``library`` is None without protocol overhead, ``profile`` is that overhead. ``timed`` is by the fluid network,
    with nothing else in flight; ``cluster`` has the permanent faults. With concurrent ``groups`` both clusters have
    their ranks group after group.
    """

    spec: CollectiveSpec
    scenario: Scenario
    demand: Demand
    profile: LibraryProfile
    timed: TimedSchedule
    timer: Timer
    healthy: Cluster
    cluster: Cluster
    library: Library | None
    groups: ParallelGroups | None = None

    @property
    def by_message(self) -> bool:
        """Whether every rank waits only for its own messages."""
        return self.scenario.disturbed or self.spec.execution == "by-message"

    def record(self) -> dict[str, Any]:
        """Return the run record."""
        asked = [self.demand.kind, self.spec.size_bytes, self.demand.root, profile_content(self.profile)]
        groups = [] if self.groups is None else [self.groups.text]
        sent = [*asked, *groups, *([self.spec.execution] if self.by_message and not self.scenario.disturbed else [])]
        return traffic_record(self.spec, self.scenario, self.cluster.workers, *sent, library=self.library)


def plan_collective(spec: CollectiveSpec) -> PlannedCollective:
    """Return the schedule of one collective on a cluster, and its time."""
    scenario = resolve_traffic(spec, spec.algorithm)
    if spec.execution == "clocked" and scenario.disturbed:
        fault = next(fault.text for fault in scenario.faults if not fault.permanent)
        raise OptionError(
            f"execution clocked: under {fault} ranks wait for their own messages alone, and rounds have no clock: "
            "leave it out"
        )
    library = None if spec.library is None else choose_library(spec.library).on(scenario.shape)
    profile = NO_OVERHEADS if library is None else library.profile
    if library is not None and scenario.shape.gpu is not None:
        warn_of_vendor(library, scenario.shape.gpu)
    if library is not None and profile == NO_OVERHEADS:
        why = None if library.name == IDEAL.name else library.unmodelled_reason(scenario.shape)
        what = "changes nothing here: a collective runs as asked, on the wire alone"
        warn(f"--library {spec.library} {what if why is None else f'gives the time of the wire alone: {why}'}")
    groups = None if spec.groups is None else concurrent_groups(spec.groups, spec.workers, scenario)
    ranks = spec.workers if groups is None else groups.dp
    demand = make_demand(spec.kind, spec.size_bytes, ranks, spec.root)
    if library is not None and spec.kind in ("all_reduce", "reduce", "reduce_scatter", "all_gather"):
        # One size for all ranks is one count, as in nccl-tests, whether or not it divides.
        equal = replace(demand, elements=(max(demand.elements),) * ranks)
        asked = demand if isinstance(spec.size_bytes, tuple) else equal
        op = "gather" if spec.kind == "all_gather" else "sum"
        lowered = lower(CollectiveRequest(asked, op, "float32", size_from_data=False), library)
        if lowered.demands != (asked,):
            warn(f"{library.name} runs {lowered.requested} as {lowered.executes}: the time is of what was asked for")
    places = spec.workers
    if not isinstance(scenario.algorithm, str):
        places += helpers_of(make_algorithm(scenario.algorithm, spec.kind), places, scenario.shape.gpus_per_node)
    healthy = scenario.healthy(places)
    if spec.seed and not (
        healthy.layout.draws or spec.placement == "random" or any(fault.draws for fault in scenario.faults)
    ):
        warn(f"--seed {spec.seed} changes nothing here: neither routing, nor placement, nor a fault draws")
    scenario.warn_of_idle_overrides(places)
    timer = scenario.timer(places).with_profile(profile)
    if groups is not None:
        timer = concurrent_groups_timer(scenario.cluster(spec.workers), groups, scenario.algorithm, profile=profile)
        healthy = healthy.within(groups.dp_groups.reshape(-1).tolist())
    timed = timer.time(demand)
    return PlannedCollective(spec, scenario, demand, profile, timed, timer, healthy, timer.cluster, library, groups)


def collective_cost(spec: CollectiveSpec) -> Cost:
    """Return what a collective will take."""
    return cost_of("collective", collective_features(spec.kind, spec.algorithm, spec.workers))


@accept_fields_of(CollectiveSpec)
def run_collective(
    kind: str, topology: str, *, workers: int, size_bytes: int | Sequence[int], **options: Any
) -> CollectiveResult:
    """Simulate one collective from a common start, with nothing else on the cluster.

    Parameters
    ----------
    size_bytes : int or sequence of int
        As nccl-tests counts it, or the contribution of each rank.
    """
    spec = CollectiveSpec.of(topology, kind=kind, workers=workers, size_bytes=size_bytes, **options)
    return collective_result(plan_collective(spec))


def collective_timeline(planned: PlannedCollective) -> Timeline:
    """Return the activity of ranks and links, message by message, in the fluid network."""
    from s2sim.experiment.timeline import Timeline, check_messages

    schedule = planned.timed.schedule
    check_messages([schedule], f"{schedule.algorithm} over {schedule.demand.ranks} ranks")
    timeline = Timeline(planned.cluster)
    watch_rounds(planned, lambda ran: timeline.add_round(ran, schedule.demand.kind), timeline.add_loads)
    return timeline


def watch_rounds(
    planned: PlannedCollective, on_round: Callable[[CompletedRound], None], on_loads: OnLoads | None = None
) -> None:
    """Call ``on_round`` after each delivered round, and ``on_loads`` whenever loads of links change."""
    schedule = planned.timed.schedule
    if planned.by_message:
        networks.simulate_with_faults(schedule, planned.cluster, planned.scenario.faults, on_round, on_loads)
    else:
        simulate_ps(schedule, planned.cluster, on_round, on_loads)


def planned_terms(planned: PlannedCollective) -> tuple[TermRow, ...]:
    """Return the terms of a planned collective; `OptionError` if its time does not consist of terms."""
    if planned.spec.network != "fluid" or planned.by_message:
        raise OptionError(
            "--terms is of clocked rounds on the fluid network with nothing else in flight: leave --network packet, "
            "--execution by-message, and faults that begin later, out"
        )
    terms = schedule_terms(planned.timed, planned.cluster)
    return tuple(TermRow(term.kind, term.of, term.count, term.ps / PS_PER_S, dict(term.constants)) for term in terms)
