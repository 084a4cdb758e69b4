"""Messages cut into packets: how many there are, and what store and forward adds to a message alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import OptionError
from s2sim.network.packet.ways import find_way
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.network.packet.ways import Way
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routes import Routes

# Ethernet's and InfiniBand's common largest payload.
PACKET_BYTES = 4096
# How often whoever watches is told.
HOPS_A_REPORT = 10_000


def check_packets(packet_bytes: int, buffer_bytes: int | None) -> None:
    """Raise the error for packets of nothing, or buffers that hold none."""
    if packet_bytes < 1:
        raise OptionError(f"packets of {packet_bytes} bytes were asked for: at least 1 is needed")
    if buffer_bytes is not None and buffer_bytes < packet_bytes:
        raise OptionError(
            f"a buffer of {buffer_bytes} bytes holds no packet of {packet_bytes}: ask for a larger buffer or "
            "smaller packets"
        )


def count_packets(sizes_bytes: NDArray[np.float64], packet_bytes: int) -> NDArray[np.int64]:
    """Return the packets of each message, int64 of shape (n,); nothing is one empty packet.

    >>> count_packets(np.array([0.0, 4096.0, 4097.0]), 4096)
    array([1, 1, 2])
    """
    return np.maximum(np.ceil(sizes_bytes / packet_bytes), 1).astype(np.int64)


def count_packet_hops(routes: Routes, sizes_bytes: NDArray[np.float64], packet_bytes: int) -> int:
    """Return how many times a packet crosses a link, which is what a simulation with packets costs."""
    if not len(sizes_bytes):
        return 0
    hops = np.add.reduceat(routes.weights, routes.offsets[:-1])
    # Counted as floats: absurd sizes are refused by this number, and must not overflow before.
    return round(float((np.maximum(np.ceil(sizes_bytes / packet_bytes), 1) * hops).sum()))


def fill_ps(
    fabric: Fabric, routes: Routes, sizes_bytes: NDArray[np.float64], packet_bytes: int = PACKET_BYTES
) -> NDArray[np.int64]:
    """Return how much longer each message takes alone as packets than as a fluid, int64 picoseconds of shape (n,).

    Where packets are equal and take one way it is what a packet takes on every link but the narrowest. Otherwise it
    is counted out, packet by packet: with a_k the arrivals at a link, in order, and s_k what each takes there, packet
    k leaves at max over j <= k of a_j + s_j + ... + s_k.

    Parameters
    ----------
    fabric : Fabric
        Links.
    routes : Routes
        One a message.
    sizes_bytes : float64 array, shape (n,)
        Bytes of each.
    packet_bytes : int
        Bytes of a packet; the last of a message may be shorter.
    """
    fills = np.zeros(len(sizes_bytes), np.int64)
    packets = count_packets(sizes_bytes, packet_bytes)
    rates = fabric.rate_Bps / PS_PER_S
    for index, (size_bytes, count) in enumerate(zip(sizes_bytes.tolist(), packets.tolist(), strict=True)):
        way = find_way(fabric, routes, index)
        cut = np.full(count, float(packet_bytes))
        cut[-1] = size_bytes - (count - 1) * packet_bytes
        fills[index] = round(_alone_ps(way, rates[way.links], cut) - size_bytes / way.rate)
    return fills


def _alone_ps(way: Way, rates: NDArray[np.float64], cut: NDArray[np.float64]) -> float:
    """Return when the last packet of a message alone has left its last link, in picoseconds without latency.

    Latency moves all packets alike, because links side by side have the same.
    """
    arrivals: dict[int, list[tuple[NDArray[np.int64], NDArray[np.float64]]]] = {at: [] for at in range(len(way.links))}
    _deal(way, -1, np.arange(len(cut)), np.zeros(len(cut)), arrivals)
    last = 0.0
    for at, rate in enumerate(rates.tolist()):
        packet = np.concatenate([packets for packets, _ in arrivals[at]])
        arrival = np.concatenate([times for _, times in arrivals[at]])
        order = np.lexsort((packet, arrival))
        packet, arrival = packet[order], arrival[order]
        sending = cut[packet] / rate
        sent = np.cumsum(sending)
        leaving = sent + np.maximum.accumulate(arrival - sent + sending)
        _deal(way, at, packet, leaving, arrivals)
        last = max(last, float(leaving.max(initial=0.0)))
    return last


def _deal(
    way: Way,
    at: int,
    packet: NDArray[np.int64],
    leaving: NDArray[np.float64],
    arrivals: dict[int, list[tuple[NDArray[np.int64], NDArray[np.float64]]]],
) -> None:
    """Give the packets that leave a link to the links that follow, in turn."""
    steps = [step for step in way.steps if step.before == at]
    turns = take_turns(np.array([step.weight for step in steps]), len(packet))
    for lane, step in enumerate(steps):
        arrivals[step.after].append((packet[turns == lane], leaving[turns == lane]))


def take_turns(weights: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return which of several lanes each of ``count`` packets takes, in proportion and as evenly as can be.

    The k-th packet of a lane is due at k over its weight, and the lane first in the list goes first where they tie.

    >>> take_turns(np.array([0.5, 0.25, 0.25]), 8)
    array([0, 0, 1, 2, 0, 0, 1, 2])
    """
    if len(weights) <= 1:
        return np.zeros(count, np.int64)
    due = np.arange(1, count + 1) / weights[:, None]
    return np.argsort(due, axis=None, kind="stable")[:count] // max(count, 1)
