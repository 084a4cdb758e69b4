"""One schedule through either network, and how far apart these are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.running import Running
from s2sim.collectives.timing.ways import find_routes
from s2sim.errors import OptionError, S2SimError
from s2sim.network.models import make_network
from s2sim.network.packet.messages import HOPS_A_REPORT, count_packet_hops, fill_ps
from s2sim.study.progress import SILENT
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.running import RanRound
    from s2sim.study.network_spec import NetworkSpec
    from s2sim.study.progress import Progress
    from s2sim.topology.cluster import Cluster


# Half a minute or so.
MOST_PACKET_HOPS = 5_000_000


@dataclass(frozen=True, slots=True)
class CollectiveCheck:
    """What the network that was not asked for makes of a collective.

    Attributes
    ----------
    packet_bytes : int
        Bytes of a packet in the one that has packets.
    time_s : float
        Of the last rank, in the other network.
    fill_s : float or None
        What store and forward adds to the rounds, if nothing is shared: every round fills the pipeline again. None
        where steps overlap, so that fills do not add.
    difference : float
        Time as packets, less the fill, over the time as a fluid, less 1.
    """

    other: str
    packet_bytes: int
    time_s: float
    fill_s: float | None
    difference: float


def check_packet_hops(hops: int, packet_bytes: int) -> None:
    """Raise the error for what would take too long as packets."""
    if hops > MOST_PACKET_HOPS:
        raise S2SimError(
            f"packets of {packet_bytes} bytes would cross links {hops:,} times, more than {MOST_PACKET_HOPS:,}: ask "
            "for larger packets (--packet-bytes), send less, or use the fluid network"
        )


def run_as_packets(
    schedule: Schedule, cluster: Cluster, spec: NetworkSpec, progress: Progress = SILENT
) -> tuple[int, Ints]:
    """Return when the last rank is done and when each is, in integer picoseconds, in the packet network.

    `S2SimError` where it would take too long, or where a switch reduces.
    """
    import simpy

    hops = 0
    for step in schedule.steps:
        pattern = step.round.pattern
        if pattern.through_switch:
            raise OptionError(f"{schedule.algorithm} reduces in switches, which packets do not model: leave them out")
        if pattern.messages:
            per_round = count_packet_hops(find_routes(cluster, pattern), step.round.bytes, spec.packet_size_bytes)
            hops += step.times * per_round
    check_packet_hops(hops, spec.packet_size_bytes)
    progress.start(hops // HOPS_A_REPORT, f"sending packets ({HOPS_A_REPORT:,} hops each)")
    env = simpy.Environment(initial_time=0)
    network = make_network(
        "packet",
        env,
        cluster.fabric,
        packet_bytes=spec.packet_bytes,
        buffer_bytes=spec.buffer_bytes,
        on_hops=progress.advance,
    )
    ends_ps = np.zeros(schedule.places, np.int64)

    def note(ran: RanRound) -> None:
        for side in (ran.round.pattern.src, ran.round.pattern.dst):
            np.maximum.at(ends_ps, side, ran.end_ps)

    Running(network, schedule, cluster, lambda: None, on_round=note).start()
    env.run()
    progress.stop()
    return int(ends_ps.max()), ends_ps


def compare(
    schedule: Schedule, cluster: Cluster, spec: NetworkSpec, *, fluid_ps: int, packets_ps: int
) -> CollectiveCheck:
    """Return how far apart the two networks are."""
    fill = _fill_ps(schedule, cluster, spec.packet_size_bytes) if schedule.stage.chain else None
    return CollectiveCheck(
        other=spec.other_network,
        packet_bytes=spec.packet_size_bytes,
        time_s=(packets_ps if spec.other_network == "packet" else fluid_ps) / PS_PER_S,
        fill_s=None if fill is None else fill / PS_PER_S,
        difference=(packets_ps - (fill or 0) - fluid_ps) / max(fluid_ps, 1),
    )


def _fill_ps(schedule: Schedule, cluster: Cluster, packet_bytes: int) -> int:
    """Return the sum over rounds of the longest fill of a message."""
    total = 0
    for step in schedule.steps:
        if step.round.pattern.messages:
            routes = find_routes(cluster, step.round.pattern)
            total += step.times * int(fill_ps(cluster.fabric, routes, step.round.bytes, packet_bytes).max())
    return total
