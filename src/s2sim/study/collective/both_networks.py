"""One schedule through either network, and how far apart these are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.running import Running
from s2sim.collectives.timing.ways import find_routes
from s2sim.errors import OptionError
from s2sim.network.models import check_network, make_network
from s2sim.network.packet.messages import HOPS_A_REPORT, PACKET_BYTES, count_packet_hops, fill_ps
from s2sim.study.flows.deliver import check_packet_hops
from s2sim.study.progress import Silent
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.running import RanRound
    from s2sim.study.progress import Progress
    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Packets:
    """What the packet network is made of.

    Attributes
    ----------
    packet_bytes : int or None
        Bytes of a packet; None for 4096.
    buffer_bytes : int or None
        Bytes that a link's queue holds; None for any number.
    """

    packet_bytes: int | None = None
    buffer_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of a packet."""
        return PACKET_BYTES if self.packet_bytes is None else self.packet_bytes


@dataclass(frozen=True, slots=True)
class CollectiveCheck:
    """What the network that was not asked for makes of a collective.

    Attributes
    ----------
    other : str
        Its name.
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


def check_packets_asked(network: str, packets: Packets, *, cross_check: bool) -> None:
    """Raise the error for options of packets that change nothing, or cannot be."""
    has_packets = "packet" if cross_check and network == "fluid" else network
    check_network(network)
    check_network(has_packets, packet_bytes=packets.packet_bytes, buffer_bytes=packets.buffer_bytes)


def run_as_packets(
    schedule: Schedule, cluster: Cluster, packets: Packets, progress: Progress | None = None
) -> tuple[int, NDArray[np.int64]]:
    """Return when the last rank is done and when each is, in integer picoseconds, in the packet network.

    Raises
    ------
    S2SimError
        Where it would take too long, or where a switch reduces.
    """
    import simpy

    hops = 0
    for step in schedule.steps:
        pattern = step.round.pattern
        if pattern.through_switch:
            raise OptionError(f"{schedule.algorithm} reduces in switches, which packets do not model: leave them out")
        if pattern.messages:
            per_round = count_packet_hops(find_routes(cluster, pattern), step.round.bytes, packets.size_bytes)
            hops += step.times * per_round
    check_packet_hops(hops, packets.size_bytes)
    watcher = progress or Silent()
    watcher.start(hops // HOPS_A_REPORT, f"sending packets ({HOPS_A_REPORT:,} hops each)")
    env = simpy.Environment(initial_time=0)
    network = make_network(
        "packet",
        env,
        cluster.fabric,
        packet_bytes=packets.packet_bytes,
        buffer_bytes=packets.buffer_bytes,
        on_hops=watcher.advance,
    )
    ends_ps = np.zeros(schedule.places, np.int64)

    def note(ran: RanRound) -> None:
        for side in (ran.round.pattern.src, ran.round.pattern.dst):
            np.maximum.at(ends_ps, side, ran.end_ps)

    Running(network, schedule, cluster, lambda: None, on_round=note).start()
    env.run()
    watcher.stop()
    return int(ends_ps.max()), ends_ps


def compare(
    schedule: Schedule, cluster: Cluster, packets: Packets, *, other: str, fluid_ps: int, packets_ps: int
) -> CollectiveCheck:
    """Return how far apart the two networks are."""
    fill = _fill_ps(schedule, cluster, packets.size_bytes) if schedule.stage.chain else None
    return CollectiveCheck(
        other=other,
        packet_bytes=packets.size_bytes,
        time_s=(packets_ps if other == "packet" else fluid_ps) / PS_PER_S,
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
