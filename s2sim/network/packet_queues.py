"""Messages cut into packets: how many there are, and what store and forward adds to a message alone."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from s2sim.errors import OptionError, S2SimError
from s2sim.topology.graph import Fabric, Routes
from s2sim.units import PS_PER_S

# Shares are sums of fractions such as 1/3.
_SHARE_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class LinkTransition:
    """From one link of a route to a next one."""

    before: int  # Position in the route of the link that packets come from; -1 for the source
    after: int  # Position of the link that they go to
    weight: float  # Share of the message that goes this way


@dataclass(frozen=True, slots=True, eq=False)
class PacketRoute:
    """One route as packets take it."""

    links: list[int]  # Link numbers in the order of the route, links side by side one after another
    weights: list[float]  # Share of the message on each
    latencies_ps: list[int]  # What passes after a packet has left each
    steps: list[LinkTransition]  # What follows what
    rate: float  # What a message gets alone, in bytes per picosecond


def find_packet_route(fabric: Fabric, routes: Routes, index: int) -> PacketRoute:
    """Return route number ``index`` as packets take it.

    Raises
    ------
    S2SimError
        Where the links are no way from one rank to another.
    """
    part = slice(routes.offsets[index], routes.offsets[index + 1])
    links, weights = routes.links[part], routes.weights[part]
    return PacketRoute(
        links=links.tolist(),
        weights=weights.tolist(),
        latencies_ps=_latencies_ps(fabric.latency_ps[links], weights, int(routes.latency_ps[index])),
        steps=_find_transitions(fabric, links.tolist(), weights.tolist()),
        rate=float((fabric.rate_Bps[links] / weights).min()) / PS_PER_S,
    )


def _latencies_ps(own_ps: NDArray[np.int64], weights: NDArray[np.float64], route_ps: int) -> list[int]:
    """Return the latency of each hop: its link's own, or in proportion where the route's is not their sum."""
    sum_ps = round(float((own_ps * weights).sum()))
    if sum_ps == route_ps:
        return [int(latency) for latency in own_ps]
    if sum_ps == 0:
        own_ps, sum_ps = np.ones_like(own_ps), round(float(weights.sum()))
    return [int(latency) * route_ps // sum_ps for latency in own_ps]


def _find_transitions(fabric: Fabric, links: list[int], weights: list[float]) -> list[LinkTransition]:
    """Return what follows what: a link takes its share from the links that end where it starts."""
    steps: list[LinkTransition] = []
    # Vertices that have been reached and not left: by which position, where, and with which share.
    reached = [(-1, int(fabric.tail[links[0]]), 1.0)]
    for after, (link, weight) in enumerate(zip(links, weights, strict=True)):
        missing = weight
        left: list[tuple[int, int, float]] = []
        for before, vertex, share in reached:
            taken = min(share, missing) if vertex == fabric.tail[link] else 0.0
            if taken > _SHARE_ROUNDING:
                steps.append(LinkTransition(before, after, taken))
                missing -= taken
            if share - taken > _SHARE_ROUNDING:
                left.append((before, vertex, share - taken))
        if missing > _SHARE_ROUNDING:
            raise S2SimError(
                f"packets cannot follow a route over {fabric.link_names[link]}: it carries {weight:g} of the message "
                f"and {weight - missing:g} gets there; messages that switches combine, or that pass host memory twice, "
                "need the fluid network"
            )
        reached = [*left, (after, int(fabric.head[link]), weight)]
    return steps


# Ethernet's and InfiniBand's common largest payload.
PACKET_BYTES = 4096
# How often whoever watches is told.
HOPS_PER_REPORT = 10_000


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


def pipeline_fill_ps(
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
        way = find_packet_route(fabric, routes, index)
        cut = np.full(count, float(packet_bytes))
        cut[-1] = size_bytes - (count - 1) * packet_bytes
        fills[index] = round(_uncontended_ps(way, rates[way.links], cut) - size_bytes / way.rate)
    return fills


def _uncontended_ps(way: PacketRoute, rates: NDArray[np.float64], cut: NDArray[np.float64]) -> float:
    """Return when the last packet of a message alone has left its last link, in picoseconds without latency.

    Latency moves all packets alike, because links side by side have the same.
    """
    arrivals: dict[int, list[tuple[NDArray[np.int64], NDArray[np.float64]]]] = {at: [] for at in range(len(way.links))}
    _forward_packets(way, -1, np.arange(len(cut)), np.zeros(len(cut)), arrivals)
    last = 0.0
    for at, rate in enumerate(rates.tolist()):
        packet = np.concatenate([packets for packets, _ in arrivals[at]])
        arrival = np.concatenate([times for _, times in arrivals[at]])
        order = np.lexsort((packet, arrival))
        packet, arrival = packet[order], arrival[order]
        sending = cut[packet] / rate
        sent = np.cumsum(sending)
        leaving = sent + np.maximum.accumulate(arrival - sent + sending)
        _forward_packets(way, at, packet, leaving, arrivals)
        last = max(last, float(leaving.max(initial=0.0)))
    return last


def _forward_packets(
    way: PacketRoute,
    at: int,
    packet: NDArray[np.int64],
    leaving: NDArray[np.float64],
    arrivals: dict[int, list[tuple[NDArray[np.int64], NDArray[np.float64]]]],
) -> None:
    """Give the packets that leave a link to the links that follow, in turn."""
    steps = [step for step in way.steps if step.before == at]
    turns = round_robin(np.array([step.weight for step in steps]), len(packet))
    for lane, step in enumerate(steps):
        arrivals[step.after].append((packet[turns == lane], leaving[turns == lane]))


def round_robin(weights: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return which of several lanes each of ``count`` packets takes, in proportion and as evenly as can be.

    The k-th packet of a lane is due at k over its weight, and the lane first in the list goes first where they tie.

    >>> round_robin(np.array([0.5, 0.25, 0.25]), 8)
    array([0, 0, 1, 2, 0, 0, 1, 2])
    """
    if len(weights) <= 1:
        return np.zeros(count, np.int64)
    due = np.arange(1, count + 1) / weights[:, None]
    return np.argsort(due, axis=None, kind="stable")[:count] // max(count, 1)


# Shares are sums of fractions such as 1/3.
_ROUNDING = 1e-9
# Rounding to whole picoseconds must never make a message alone wait for its window.
_ROUNDING_PS = 4


class Link:
    """One link direction."""

    __slots__ = ("carry_ps", "free_ps", "rate", "ready", "room_bytes", "virtual", "waiting", "waking")

    def __init__(self, rate: float, room_bytes: float) -> None:
        self.rate = rate  # bytes per picosecond
        self.ready: list[tuple[float, int, Queue]] = []  # a heap, by tag and then by age
        self.virtual = 0.0  # tag of the last packet that was begun
        self.free_ps = 0
        self.carry_ps = 0.0  # what rounding up has added to the end of the packet that is being sent
        self.waking = False
        self.room_bytes = room_bytes
        self.waiting: deque[Queue] = deque()  # for room in front of this link


class Message:
    """What is still to be sent and to arrive of one message."""

    __slots__ = ("lanes", "last_bytes", "owner", "tag", "undelivered", "unsent")

    def __init__(self, owner: int, tag: int, packets: int, last_bytes: float) -> None:
        self.owner = owner
        self.tag = tag
        self.unsent = packets
        self.undelivered = packets
        self.last_bytes = last_bytes
        self.lanes: list[Lane] = []  # to its first links


class Queue:
    """The packets of one message in front of one link."""

    __slots__ = ("has_room", "lane", "lanes", "latency_ps", "link", "message", "packets", "tag_after", "weight")

    def __init__(self, message: Message, link: Link, weight: float, latency_ps: int) -> None:
        self.message = message
        self.link = link
        self.weight = weight
        self.latency_ps = latency_ps  # of the hop over this link
        self.packets: deque[tuple[float, Lane]] = deque()  # bytes, and which way they came
        self.lanes: list[Lane] = []  # to the next links; none at the last
        self.lane: Lane | None = None  # of the packet at the head
        self.tag_after = 0.0  # where the last packet that was begun ends
        self.has_room = False


class Lane:
    """The way from a queue, or from the source, to the same message's queue in front of a next link."""

    __slots__ = ("after", "before", "blocked", "held", "returning_ps", "sent", "sooner_ps", "weight", "window")

    def __init__(self, before: Queue | None, after: Queue, weight: float, window: int, sooner_ps: int) -> None:
        self.before = before
        self.after = after
        self.weight = weight
        self.window = window
        self.sooner_ps = sooner_ps
        self.sent = 0
        self.held = 0  # packets of the window that are taken
        self.returning_ps: deque[int] = deque()  # when some of them will be free again
        self.blocked = False


def next_lane(lanes: list[Lane]) -> Lane:
    """Return whose turn it is, as `s2sim.network.packet_queues.round_robin` deals."""
    lane = lanes[0] if len(lanes) == 1 else min(lanes, key=lambda one: (one.sent + 1) / one.weight)
    lane.sent += 1
    return lane


def find_window(latency_ps: int, rate: float, weight: float, packet_bytes: int, packets: int) -> tuple[int, int]:
    """Return the window of a message over one hop: whole packets, and how much sooner than sent on they come back.

    The window covers the latency there and back at the rate that the message gets alone, and some packets more: one
    that is being sent on and one that waits to follow it; where the message is sprayed a third, because others' packets
    come between its own in bursts. Of a long message as many as the square root of its packets over 16, so that there
    are ever more of them, and they are an ever smaller part of the message, as packets get smaller. A part of a packet
    is time: the right to send another comes back by so much sooner.

    Parameters
    ----------
    latency_ps : int
        Of the hop.
    rate : float
        What the message gets alone, in bytes per picosecond.
    weight : float
        Share of the message that goes this way.
    packet_bytes, packets : int
        Bytes of a packet, and packets of the message.

    Returns
    -------
    window : int
        Packets on their way over the hop, waiting after it and being sent on.
    sooner_ps : int
        Picoseconds.

    >>> find_window(0, 0.0125, 1.0, 4096, 256), find_window(500_000, 0.0125, 1.0, 4096, 256)
    ((2, 4), (5, 16964))
    """
    fewest = 2 if weight > 1 - _ROUNDING else 3
    packet_ps = packet_bytes / (rate * weight)
    whole, part_ps = divmod(2 * latency_ps, packet_ps)
    return int(whole) + max(fewest, ceil(sqrt(packets) / 16)), ceil(part_ps) + _ROUNDING_PS
