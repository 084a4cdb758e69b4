"""One collective on one cluster: time, bandwidths as nccl-tests counts them, bound and busiest links."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from s2sim.collectives.algorithms.registry import helpers_of, make_algorithm
from s2sim.collectives.timing.bounds import lower_bound
from s2sim.collectives.timing.closed_form import closed_form_s
from s2sim.collectives.timing.duration import rank_ends_ps, simulate_ps
from s2sim.collectives.timing.timer import AUTO, Timer, sent_by_pattern
from s2sim.errors import ContendedError, OptionError, S2SimWarning
from s2sim.replay.faults.registry import make_faults
from s2sim.study.collective.both_networks import Packets, check_packets_asked, compare, run_as_packets
from s2sim.study.collective.disturbed import (
    check_fluid,
    disturb_collective,
    draws,
    effects_json,
    in_order,
    lasting_collective,
    warn_of_idle_faults,
)
from s2sim.study.collective.link_loads import LinkLoad, Sent, busiest_links
from s2sim.study.collective.sizes import bus_factor, counted_bytes, make_demand
from s2sim.study.json_form import LEFT_OUT, JsonForm, key
from s2sim.study.measuring.timeline import Timeline, check_messages
from s2sim.study.scenario.cluster import Scenario
from s2sim.study.scenario.idle_overrides import warn_of_idle_overrides
from s2sim.topology.describe import first_line
from s2sim.topology.files.catalogue import load_shape
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.collectives.schedules.demand import Demand, Kind
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.running import RanRound
    from s2sim.collectives.timing.timer import Timed
    from s2sim.replay.faults.fault import Effect, Fault
    from s2sim.study.collective.both_networks import CollectiveCheck
    from s2sim.study.progress import Progress
    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class CollectiveResult(JsonForm):
    """What `s2sim.run_collective` returns.

    Attributes
    ----------
    kind, algorithm, why, headline : str
        What ran, why that algorithm, and where.
    workers, size_bytes : int
        Ranks, and the size as nccl-tests counts it.
    network : str
        ``"fluid"`` or ``"packet"``.
    time_s : float
        Of the last rank.
    lower_bound_s, lower_bound_why : float, str
        No schedule is faster, and the cut or partition that forces it.
    closed_form_s : float or None
        What the algorithm's closed form gives; None where messages share links, so that none holds.
    algbw_Bps, busbw_Bps : float or None
        Size over time, and that times the factor by which links see it; None where no time passes.
    bytes_per_rank : int
        Most bytes sent by a rank.
    bottlenecks : tuple of LinkLoad
        The busiest links.
    rank_finish_s : tuple of float
        When the last message from or to each rank has been delivered.
    cross_check : CollectiveCheck or None
        What the other network makes of it, where that was asked for.
    effects : tuple of Effect
        What each fault did.
    """

    kind: str
    algorithm: str
    why: str
    headline: str = field(metadata=key("cluster"))
    workers: int
    size_bytes: int
    network: str
    time_s: float
    lower_bound_s: float
    lower_bound_why: str
    closed_form_s: float | None
    algbw_Bps: float | None
    busbw_Bps: float | None
    bytes_per_rank: int
    bottlenecks: tuple[LinkLoad, ...]
    rank_finish_s: tuple[float, ...]
    cross_check: CollectiveCheck | None = field(default=None, metadata=LEFT_OUT)
    effects: tuple[Effect, ...] = field(default=(), metadata=LEFT_OUT)

    def more_json(self) -> dict[str, Any]:
        """Return what was not always asked for: the other network, and faults."""
        check = {} if self.cross_check is None else {"cross_check": self.cross_check}
        return {**check, **effects_json(self.effects)}


def _sent(schedule: Schedule, cluster: Cluster) -> Iterator[Sent]:
    for pattern, routes, sizes_bytes in sent_by_pattern(schedule, cluster):
        yield Sent(routes, pattern.src, pattern.dst, sizes_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class PlannedCollective:
    """A collective on a cluster, ready to be looked at from any side.

    Attributes
    ----------
    cluster : Cluster
        Where it runs.
    demand : Demand
        What it does.
    timed : Timed
        The schedule that runs, and its time by the fluid network with nothing else in flight.
    healthy : Cluster
        The cluster without its faults.
    faults : tuple of Fault
        What goes wrong, links included that the cluster has slow or dead from the start on.
    """

    cluster: Cluster
    demand: Demand
    timed: Timed
    healthy: Cluster
    faults: tuple[Fault, ...]

    @property
    def disturbed(self) -> bool:
        """Whether something happens while it runs, so that the time of its schedule alone is not the answer."""
        return not all(fault.lasting for fault in self.faults)


def plan_collective(
    kind: Kind,
    topology: str,
    *,
    workers: int,
    size_bytes: int | Sequence[int],
    algorithm: str = AUTO,
    placement: str = "linear",
    overrides: Sequence[str] = (),
    seed: int = 0,
    root: int = 0,
    faults: Sequence[str] = (),
) -> PlannedCollective:
    """Return the schedule of one collective on a cluster, and its time; for the parameters see `run_collective`."""
    if workers < 1:
        raise OptionError(f"{workers} workers were asked for; at least 1 is needed")
    demand = make_demand(kind, size_bytes, workers, root)
    asked = make_faults(faults)
    scenario = Scenario(load_shape(topology, overrides), tuple(overrides), placement, seed, asked, algorithm)
    gpus_per_node = scenario.shape.gpus_per_node
    helpers = 0 if algorithm == AUTO else helpers_of(make_algorithm(algorithm, kind), workers, gpus_per_node)
    healthy, cluster = scenario.healthy(workers + helpers), scenario.cluster(workers + helpers)
    if seed and not (healthy.routing_draws or placement == "random" or draws(asked)):
        text = f"--seed {seed} changes nothing here: neither routing, nor placement, nor a fault draws"
        warnings.warn(text, S2SimWarning, stacklevel=2)
    warn_of_idle_overrides(scenario, workers + helpers)
    return PlannedCollective(cluster, demand, Timer(cluster, algorithm).time(demand), healthy, asked)


def run_collective(
    kind: Kind,
    topology: str,
    *,
    workers: int,
    size_bytes: int | Sequence[int],
    algorithm: str = AUTO,
    placement: str = "linear",
    overrides: Sequence[str] = (),
    seed: int = 0,
    root: int = 0,
    faults: Sequence[str] = (),
) -> CollectiveResult:
    """Simulate one collective from a common start, with nothing else on the cluster.

    Parameters
    ----------
    kind : str
        What it does, one of `KINDS`.
    topology : str
        Name of a shipped topology or path of a TOML file.
    workers : int
        Ranks.
    size_bytes : int or sequence of int
        As nccl-tests counts it, or what each rank contributes.
    algorithm : str
        Option string, or ``auto`` for the fastest of those that libraries choose among.
    placement : str
        ``linear``, ``round-robin``, ``random`` or the path of a file.
    overrides : sequence of str
        ``field=value`` on the topology's fields.
    seed : int
        Of what is drawn: ECMP's hash, Valiant's detours, a random placement.
    root : int
        Rank that a broadcast comes from or a reduce goes to.
    faults : sequence of str
        Option strings of what goes wrong.
    """
    planned = plan_collective(
        kind,
        topology,
        workers=workers,
        size_bytes=size_bytes,
        algorithm=algorithm,
        placement=placement,
        overrides=overrides,
        seed=seed,
        root=root,
        faults=faults,
    )
    return result_of(planned)


def result_of(
    planned: PlannedCollective,
    *,
    network: str = "fluid",
    packets: Packets | None = None,
    cross_check: bool = False,
    progress: Progress | None = None,
) -> CollectiveResult:
    """Return what a planned collective takes, its bandwidths, bound and busiest links.

    Parameters
    ----------
    planned : PlannedCollective
        From `plan_collective`.
    network : {"fluid", "packet"}
        Which of them gives the time.
    packets : Packets, optional
        Options of the packet network.
    cross_check : bool
        Whether to run the other one too.
    progress : Progress, optional
        Told of packets.
    """
    cluster, demand, timed = planned.cluster, planned.demand, planned.timed
    packets = packets or Packets()
    check_packets_asked(network, packets, cross_check=cross_check)
    check_fluid(planned.faults, network, cross_check=cross_check)
    duration_ps, check = timed.duration_ps, None
    effects = lasting_collective(timed.schedule, planned.healthy, cluster, planned.faults)
    if network == "packet" or cross_check:
        packets_ps, ends_ps = run_as_packets(timed.schedule, cluster, packets, progress)
        if cross_check:
            other = "packet" if network == "fluid" else "fluid"
            check = compare(
                timed.schedule, cluster, packets, other=other, fluid_ps=timed.duration_ps, packets_ps=packets_ps
            )
        duration_ps = packets_ps if network == "packet" else duration_ps
    if planned.disturbed:
        disturbed = disturb_collective(timed.schedule, cluster, planned.faults)
        duration_ps, ends_ps = disturbed.duration_ps, disturbed.ends_ps
        effects += disturbed.effects
    elif network == "fluid":
        ends_ps = rank_ends_ps(timed.schedule, cluster, timed.times)
    warn_of_idle_faults(effects)
    time_s = duration_ps / PS_PER_S
    try:
        closed = None if planned.disturbed else closed_form_s(timed.schedule, cluster)
    except ContendedError:
        closed = None
    bound = lower_bound([demand], cluster.cuts(), assisted=timed.schedule.assisted)
    size_bytes = counted_bytes(demand)
    algbw = size_bytes / time_s if time_s else None
    return CollectiveResult(
        kind=demand.kind,
        algorithm=timed.schedule.algorithm,
        why=timed.why,
        headline=first_line(cluster),
        workers=demand.ranks,
        size_bytes=size_bytes,
        network=network,
        time_s=time_s,
        lower_bound_s=bound.seconds,
        lower_bound_why=bound.derivation,
        closed_form_s=closed,
        algbw_Bps=algbw,
        busbw_Bps=None if algbw is None else algbw * bus_factor(demand.kind, demand.ranks),
        bytes_per_rank=int(timed.schedule.traffic()[0][: demand.ranks].max()),
        bottlenecks=busiest_links(
            cluster.fabric,
            lambda: [disturbed.sent] if planned.disturbed else _sent(timed.schedule, cluster),
            time_s,
        ),
        rank_finish_s=tuple((ends_ps[: demand.ranks] / PS_PER_S).tolist()),
        cross_check=check,
        effects=in_order(effects, planned.faults),
    )


def timeline_of(planned: PlannedCollective) -> Timeline:
    """Return what ranks and links do while it runs, message by message, in the fluid network."""
    schedule = planned.timed.schedule
    check_messages([schedule], f"{schedule.algorithm} over {schedule.demand.ranks} ranks")
    timeline = Timeline(planned.cluster)

    def note(ran: RanRound) -> None:
        timeline.add_round(ran, schedule.demand.kind)

    if planned.disturbed:
        disturb_collective(schedule, planned.cluster, planned.faults, note, timeline.add_loads)
    else:
        simulate_ps(schedule, planned.cluster, note, timeline.add_loads)
    return timeline
