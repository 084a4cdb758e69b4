"""One schedule in either network, the difference between the networks, and the busiest links."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.collective_run import CollectiveRun, CompletedRound
from s2sim.collectives.timing.rounds import Wanted
from s2sim.collectives.timing.routes import find_routes
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.cluster_spec import NetworkSpec
from s2sim.experiment.json_form import JsonForm
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.network.base import Network
from s2sim.network.fluid import OnLoads
from s2sim.network.network import deliver_ps, make_network
from s2sim.network.packet_queues import HOPS_PER_REPORT, count_packet_hops, pipeline_fill_ps
from s2sim.network.time_varying import TimeVaryingNetwork
from s2sim.simulation.faults.fault import Effect, Fault, FaultyNetwork, arrivals_ps
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Fabric, Routes
from s2sim.units import PS_PER_S

_BUSIEST_LINKS, _NAMED_FLOWS = 8, 8


@dataclass(frozen=True, slots=True)
class FlowShare:
    """Bytes that one pair of ranks sent over a link; of a flow that is split over several links, the part on it."""

    src: int
    dst: int
    bytes: float


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """What one link direction carried."""

    link: str
    bytes: float  # Bytes; a flow that is split over several links leaves a part on each
    utilisation: float  # Bytes over what it could have carried in the whole time
    flows: int = 0  # Pairs of ranks that sent over it
    shared_by: tuple[FlowShare, ...] = ()  # Those that sent most, at most eight


@dataclass(frozen=True, slots=True, eq=False)
class RoutedBytes:
    """Bytes of pairs of ranks (int64) along routes, float64 (m,); a reducing switch's message names its first rank."""

    routes: Routes
    src: Ints
    dst: Ints
    bytes: Floats

    def on_links(self) -> Floats:
        """Return the bytes of each crossing, float64 of the shape of ``routes.links``."""
        return np.repeat(self.bytes, np.diff(self.routes.offsets)) * self.routes.weights


def _rank_bit(ranks: Ints, fabric: Fabric) -> NDArray[np.uint64]:
    """Return one of 64 bits for each rank: that of its part of all ranks."""
    return np.uint64(1) << (ranks * 64 // fabric.gpus).astype(np.uint64)


def busiest_links(
    fabric: Fabric, traffic: Callable[[Wanted | None], Iterable[RoutedBytes]], seconds: float
) -> tuple[LinkLoad, ...]:
    """Return the busiest links of ``seconds`` s; ``traffic`` is called twice, then for ``wanted(src, dst)`` alone."""
    if seconds == 0:
        return ()
    carried = np.zeros(len(fabric))
    # Which parts of the ranks each link has bytes from, and which it has bytes for.
    parts = np.zeros((2, len(fabric)), np.uint64)
    for sent in traffic(None):
        carried += np.bincount(sent.routes.links, sent.on_links(), len(carried))
        for side, ranks in zip(parts, (sent.src, sent.dst), strict=True):
            part = _rank_bit(ranks[: len(sent.bytes)], fabric)
            np.bitwise_or.at(side, sent.routes.links, np.repeat(part, np.diff(sent.routes.offsets)))
    utilisation = carried / (fabric.rate_Bps * seconds)
    order = np.lexsort((np.arange(len(utilisation)), -utilisation))[:_BUSIEST_LINKS]
    busiest = [int(link) for link in order if carried[link]]

    def wanted(src: Ints, dst: Ints) -> Mask:
        ends = (parts[side, busiest, None] & _rank_bit(ranks, fabric) for side, ranks in enumerate((src, dst)))
        from_part, to_part = ends
        found: Mask = ((from_part != 0) & (to_part != 0)).any(axis=0)
        return found

    def largest(flows: Sequence[FlowShare]) -> tuple[FlowShare, ...]:
        of_pairs = [flow for flow in flows if flow.src >= 0]
        return tuple(sorted(of_pairs, key=lambda flow: (-flow.bytes, flow.src, flow.dst))[:_NAMED_FLOWS])

    users = _flows_on_links(busiest, traffic(wanted))
    return tuple(
        LinkLoad(
            fabric.link_names[link],
            float(carried[link]),
            float(utilisation[link]),
            len(users[link]),
            largest(users[link]),
        )
        for link in busiest
    )


def _flows_on_links(links: Sequence[int], traffic: Iterable[RoutedBytes]) -> dict[int, list[FlowShare]]:
    """Return what crosses each link by pair of ranks; what a switch reduces for many has negative numbers."""
    shares: dict[int, dict[tuple[int, int], float]] = {link: {} for link in links}
    for sent in traffic:
        on_links, in_pairs = sent.on_links(), len(sent.src) == len(sent.bytes)
        for crossing in np.flatnonzero(np.isin(sent.routes.links, links)).tolist():
            message = int(np.searchsorted(sent.routes.offsets, crossing, side="right")) - 1
            pairs = shares[int(sent.routes.links[crossing])]
            pair = (int(sent.src[message]), int(sent.dst[message])) if in_pairs else (-1 - message, -1)
            pairs[pair] = pairs.get(pair, 0.0) + float(on_links[crossing])
    return {link: [FlowShare(*pair, size) for pair, size in pairs.items()] for link, pairs in shares.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """The transfers of a traffic file, shape (n,): start times int64 picoseconds, ranks int64, sizes float64 bytes."""

    start_ps: Ints
    src: Ints
    dst: Ints
    sizes_bytes: Floats

    @property
    def ranks(self) -> int:
        """Number of ranks up to the largest that is named."""
        return int(max(self.src.max(initial=0), self.dst.max(initial=0))) + 1


# Half a minute or so.
MAX_PACKET_HOPS = 5_000_000


@dataclass(frozen=True, slots=True)
class CollectiveCheck:
    """What the network that was not asked for makes of a collective."""

    other: str
    packet_bytes: int  # Bytes of a packet in the one that has packets
    time_s: float  # Of the last rank, in the other network
    # What store and forward adds to the rounds, if nothing is shared: every round fills the pipeline again. None where
    # steps overlap, so that fills do not add.
    fill_s: float | None
    difference: float  # Time as packets, less the fill, over the time as a fluid, less 1


def packet_network(hops: int, spec: NetworkSpec, progress: ProgressWatcher) -> partial[Network]:
    """Return the constructor of the packet network; `S2SimError` if so many hops of packets take too long."""
    if hops > MAX_PACKET_HOPS:
        raise S2SimError(
            f"packets of {spec.packet_size_bytes} bytes would cross links {hops:,} times, more than "
            f"{MAX_PACKET_HOPS:,}: ask for larger packets (--packet-bytes), send less, or use the fluid network"
        )
    progress.start(hops // HOPS_PER_REPORT, f"sending packets ({HOPS_PER_REPORT:,} hops each)")
    return partial(
        make_network, "packet", packet_bytes=spec.packet_bytes, buffer_bytes=spec.buffer_bytes, on_hops=progress.advance
    )


def run_as_packets(schedule: Schedule, cluster: Cluster, spec: NetworkSpec, progress: ProgressWatcher = SILENT) -> Ints:
    """Return each rank's end in packets, int64 ps of shape (places,); `S2SimError` if too long, or a switch reduces."""
    hops = 0
    for step in schedule.steps:
        pattern = step.round.pattern
        if pattern.through_switch:
            raise OptionError(f"{schedule.algorithm} reduces in switches, which packets do not model: leave them out")
        if pattern.messages:
            per_round = count_packet_hops(find_routes(cluster, pattern), step.round.bytes, spec.packet_size_bytes)
            hops += step.times * per_round
    env = simpy.Environment(initial_time=0)
    network = packet_network(hops, spec, progress)(env, cluster.fabric)
    ends_ps = np.zeros(schedule.places, np.int64)

    def note(ran: CompletedRound) -> None:
        for side in (ran.round.pattern.src, ran.round.pattern.dst):
            np.maximum.at(ends_ps, side, ran.end_ps)

    CollectiveRun(network, schedule, cluster, lambda: None, on_round=note).start()
    env.run()
    progress.stop()
    return ends_ps


def compare_networks_on(
    schedule: Schedule, cluster: Cluster, spec: NetworkSpec, *, fluid_ps: int, packets_ps: int
) -> CollectiveCheck:
    """Return the difference between the two networks."""
    fill = None
    if schedule.stage.chain:
        fill = 0
        for step in (step for step in schedule.steps if step.round.pattern.messages):
            routes = find_routes(cluster, step.round.pattern)
            fills_ps = pipeline_fill_ps(cluster.fabric, routes, step.round.bytes, spec.packet_size_bytes)
            fill += step.times * int(fills_ps.max())
    return CollectiveCheck(
        other=spec.other_network,
        packet_bytes=spec.packet_size_bytes,
        time_s=(packets_ps if spec.other_network == "packet" else fluid_ps) / PS_PER_S,
        fill_s=None if fill is None else fill / PS_PER_S,
        difference=(packets_ps - (fill or 0) - fluid_ps) / max(fluid_ps, 1),
    )


class FaultySimulation(NamedTuple):
    """A simulation with faults: the end of each rank or transfer, what faults did, and what was sent."""

    ends_ps: Ints
    effects: list[Effect]
    sent: RoutedBytes


def simulate_with_faults(
    schedule: Schedule,
    cluster: Cluster,
    faults: Sequence[Fault],
    on_round: Callable[[CompletedRound], None] | None = None,
    on_loads: OnLoads | None = None,
) -> FaultySimulation:
    """Run a collective in the fluid network, message by message, while faults happen.

    The cluster has the permanent faults; a rank takes part from its arrival on. The effect of a fault that delays a
    rank is measured against a run without it. ``on_round`` is called after each delivered round, ``on_loads``
    whenever the loads of links change.
    """

    def run(happening: Sequence[Fault], *, watched: bool) -> tuple[Ints, FaultyNetwork]:
        """Return the end of each rank, int64 picoseconds of shape (places,), and the network."""
        env = simpy.Environment(initial_time=0)
        late_ps = arrivals_ps(happening, cluster.workers, "a collective")[: schedule.places]
        disturbance = FaultyNetwork(env, cluster, happening, on_loads if watched else None)
        ends_ps = np.zeros(schedule.places, np.int64)
        over = env.event()

        def end(rank: int) -> None:
            ends_ps[rank] = env.now

        def finish() -> None:
            over.succeed()

        noted, alone = on_round if watched else None, partial(find_routes, cluster)
        running = disturbance.running(schedule, finish, noted, on_rank_done=end, alone=alone)

        def arrive() -> Generator[simpy.Event, None, None]:
            for moment_ps in np.unique(late_ps).tolist():
                yield env.timeout(moment_ps - int(env.now))
                running.post(np.flatnonzero(late_ps == moment_ps).tolist())

        env.process(arrive())
        env.run(until=over)
        return ends_ps, disturbance

    ends_ps, disturbance = run(faults, watched=True)
    effects = disturbance.effects()
    for fault in faults:
        if not fault.on_network:
            without_ps, _ = run([other for other in faults if other is not fault], watched=False)
            effect = fault.effect_on_collective(ends_ps, without_ps)
            effects += [] if effect is None else [effect]
    return FaultySimulation(ends_ps, effects, RoutedBytes(*disturbance.network.sent()))


@dataclass(frozen=True, slots=True, eq=False)
class CrossCheck(JsonForm):
    """What the network that was not asked for makes of the transfers, in float64 arrays of shape (n,)."""

    more_json: ClassVar[tuple[str, ...]] = ("largest_difference", "median_difference", "note")

    other: str
    packet_bytes: int  # Bytes of a packet in the one that has packets
    finish_s: Floats  # When each transfer is delivered in it, in seconds from time 0
    fill_s: Floats  # What store and forward adds to each transfer alone, in seconds
    difference: Floats  # The time of each as packets, less its fill, over its time as a fluid, less 1

    @property
    def largest_difference(self) -> float:
        """Largest difference, without its sign."""
        return float(np.abs(self.difference).max(initial=0.0))

    @property
    def median_difference(self) -> float:
        """Median of the differences, without their signs."""
        return float(np.median(np.abs(self.difference))) if len(self.difference) else 0.0

    @property
    def note(self) -> str:
        """What the differences are."""
        return (
            "difference = (time as packets - fill) / time as a fluid - 1; finish_s holds the fill where the "
            "other network is packet"
        )


def simulate_flows_with_faults(
    cluster: Cluster, faults: Sequence[Fault], transfers: Transfers, progress: ProgressWatcher = SILENT
) -> FaultySimulation:
    """Send transfers while faults happen, those of late ranks later; ``cluster`` has the permanent faults."""
    pairs, start_ps = (transfers.src, transfers.dst), transfers.start_ps
    late_ps = arrivals_ps(faults, cluster.workers, "a transfer")[transfers.src]
    made: list[FaultyNetwork] = []
    progress.start(len(start_ps), "delivering")

    def network(env: simpy.Environment, _: Fabric) -> TimeVaryingNetwork:
        made.append(FaultyNetwork(env, cluster, faults))
        # The transfers' routes are the first that the network is given.
        made[0].network.join(np.arange(len(start_ps)), *pairs)
        return made[0].network

    routes = cluster.routes(*pairs)
    ends_ps = deliver_ps(cluster.fabric, routes, start_ps + late_ps, transfers.sizes_bytes, progress.advance, network)
    progress.stop()
    ends_ps = ends_ps + made[0].late_ps(0, 0, 0, len(ends_ps))
    slow = [fault.effect_on_transfers(transfers.src) for fault in faults]
    effects = [*made[0].effects(), *(effect for effect in slow if effect is not None)]
    return FaultySimulation(ends_ps, effects, RoutedBytes(*made[0].network.sent()))
