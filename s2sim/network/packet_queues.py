"""Messages cut into packets: their number, their queues, and the time that store and forward adds to a message."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from math import ceil, sqrt

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.errors import OptionError, S2SimError
from s2sim.topology.graph import Fabric, Routes
from s2sim.units import PS_PER_S

# Shares are sums of fractions such as 1/3.
_SHARE_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class LinkTransition:
    """From one link of a route to a next one."""

    before: int  # Position of the first link in the route; -1 for the source
    after: int  # Position of the next link
    weight: float  # Share of the message


@dataclass(frozen=True, slots=True, eq=False)
class PacketRoute:
    """One route as packets take it."""

    links: list[int]  # In the order of the route
    weights: list[float]  # Share of the message on each link
    latencies_ps: list[int]  # Of each hop
    steps: list[LinkTransition]
    rate: float  # Of a message alone, in bytes per picosecond


def find_packet_route(fabric: Fabric, routes: Routes, index: int) -> PacketRoute:
    """Return route number ``index`` as packets take it; `S2SimError` if its links are not a path."""
    part = slice(routes.offsets[index], routes.offsets[index + 1])
    in_order = _in_order(fabric, routes.links[part])
    links, weights = routes.links[part][in_order], routes.weights[part][in_order]
    latencies_ps, route_ps = fabric.latency_ps[links].tolist(), int(routes.latency_ps[index])
    sum_ps = round(float((fabric.latency_ps[links] * weights).sum()))
    if sum_ps != route_ps:
        # The latency of each hop in proportion.
        if sum_ps == 0:
            latencies_ps, sum_ps = [1] * len(links), round(float(weights.sum()))
        latencies_ps = [own_ps * route_ps // sum_ps for own_ps in latencies_ps]
    return PacketRoute(
        links=links.tolist(),
        weights=weights.tolist(),
        latencies_ps=latencies_ps,
        steps=_find_transitions(fabric, links.tolist(), weights.tolist()),
        rate=float((fabric.rate_Bps[links] / weights).min()) / PS_PER_S,
    )


def _in_order(fabric: Fabric, links: Ints) -> list[int]:
    """Return the positions of links such that each follows those that lead to it, which joining ways may not do."""
    tail, head = fabric.tail[links].tolist(), fabric.head[links].tolist()
    found, rest, into = list[int](), list(range(len(links))), Counter(head)
    while rest:
        found.append(next((at for at in rest if not into[tail[at]]), rest[0]))
        rest.remove(found[-1])
        into[head[found[-1]]] -= 1
    return found


def _find_transitions(fabric: Fabric, links: list[int], weights: list[float]) -> list[LinkTransition]:
    steps: list[LinkTransition] = []
    # Position, vertex and share of the message that has been reached and not left.
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
HOPS_PER_REPORT = 10_000


def check_packets(packet_bytes: int, buffer_bytes: int | None) -> None:
    """Raise `OptionError` for empty packets, or buffers smaller than a packet."""
    if packet_bytes < 1:
        raise OptionError(f"packets of {packet_bytes} bytes were asked for: at least 1 is needed")
    if buffer_bytes is not None and buffer_bytes < packet_bytes:
        raise OptionError(
            f"a buffer of {buffer_bytes} bytes holds no packet of {packet_bytes}: ask for a larger buffer or "
            "smaller packets"
        )


def count_packet_hops(routes: Routes, sizes_bytes: Floats, packet_bytes: int) -> int:
    """Return the number of crossings of links by packets, the cost of a simulation with packets."""
    if not len(sizes_bytes):
        return 0
    hops = np.add.reduceat(routes.weights, routes.offsets[:-1])
    # Counted as floats: absurd sizes are refused by this number, and must not overflow.
    return round(float((np.maximum(np.ceil(sizes_bytes / packet_bytes), 1) * hops).sum()))


def pipeline_fill_ps(fabric: Fabric, routes: Routes, sizes_bytes: Floats, packet_bytes: int = PACKET_BYTES) -> Ints:
    """Return the extra time of each message alone as packets compared with a fluid, int64 picoseconds of shape (n,).

    With a_k the arrivals at a link, in order, and s_k the sending times there, packet k leaves at
    max over j <= k of a_j + s_j + ... + s_k. There is one route and one size in bytes per message.
    """
    fills = np.zeros(len(sizes_bytes), np.int64)
    # Nothing is one empty packet.
    packets = np.maximum(np.ceil(sizes_bytes / packet_bytes), 1).astype(np.int64)
    rates = fabric.rate_Bps / PS_PER_S
    for index, (size_bytes, count) in enumerate(zip(sizes_bytes.tolist(), packets.tolist(), strict=True)):
        route = find_packet_route(fabric, routes, index)
        cut = np.full(count, float(packet_bytes))
        cut[-1] = size_bytes - (count - 1) * packet_bytes
        fills[index] = round(_uncontended_ps(route, rates[route.links], cut) - size_bytes / route.rate)
    return fills


def _uncontended_ps(route: PacketRoute, rates: Floats, cut: Floats) -> float:
    """Return when the last packet of a message alone leaves its last link, in picoseconds without latency."""
    arrivals: dict[int, list[tuple[Ints, Floats]]] = {}

    def forward(at: int, packet: Ints, leaving: Floats) -> None:
        """Distribute the packets that leave a link over the links that follow, in turn."""
        steps = [step for step in route.steps if step.before == at]
        turns = round_robin(np.array([step.weight for step in steps]), len(packet))
        for lane, step in enumerate(steps):
            arrivals.setdefault(step.after, []).append((packet[turns == lane], leaving[turns == lane]))

    forward(-1, np.arange(len(cut)), np.zeros(len(cut)))
    last = 0.0
    for at, rate in enumerate(rates.tolist()):
        packet = np.concatenate([packets for packets, _ in arrivals[at]])
        arrival = np.concatenate([times for _, times in arrivals[at]])
        order = np.lexsort((packet, arrival))
        packet, arrival = packet[order], arrival[order]
        sending = cut[packet] / rate
        sent = np.cumsum(sending)
        leaving = sent + np.maximum.accumulate(arrival - sent + sending)
        forward(at, packet, leaving)
        last = max(last, float(leaving.max(initial=0.0)))
    return last


def round_robin(weights: Floats, count: int) -> Ints:
    """Return the lane of each of ``count`` packets, in proportion and as evenly as possible, int64 of shape (count,).

    The k-th packet of a lane is due at k over its weight; ties go to the lane first in the list.

    >>> round_robin(np.array([0.5, 0.25, 0.25]), 8)
    array([0, 0, 1, 2, 0, 0, 1, 2])
    """
    if len(weights) <= 1:
        return np.zeros(count, np.int64)
    due = np.arange(1, count + 1) / weights[:, None]
    return np.argsort(due, axis=None, kind="stable")[:count] // max(count, 1)


# Rounding to whole picoseconds must never make a message alone wait for its window.
_ROUNDING_PS = 4


@dataclass(slots=True, eq=False)
class Link:
    """One link direction."""

    rate: float  # Bytes per picosecond
    room_bytes: float
    ready: list[tuple[float, int, Queue]] = field(default_factory=list)  # A heap, by tag and then by age
    virtual: float = 0.0  # Tag of the last packet that was begun
    free_ps: int = 0
    carry_ps: float = 0.0  # What rounding up has added to the end of the packet that is being sent
    waking: bool = False
    waiting: deque[Queue] = field(default_factory=deque)  # For room in front of this link


@dataclass(slots=True, eq=False)
class Message:
    """The packets of one message that are still to be sent and to arrive."""

    owner: int
    tag: int
    unsent: int
    undelivered: int
    last_bytes: float
    lanes: list[Lane] = field(default_factory=list)  # To its first links


@dataclass(slots=True, eq=False)
class Queue:
    """The packets of one message in front of one link."""

    message: Message
    link: Link
    weight: float
    latency_ps: int  # Of the hop over this link
    packets: deque[tuple[float, Lane]] = field(default_factory=deque)  # Bytes, and the lane of arrival
    lanes: list[Lane] = field(default_factory=list)  # To the next links; none at the last
    lane: Lane | None = None  # Of the packet at the head
    tag_after: float = 0.0  # Where the last packet that was begun ends
    has_room: bool = False


@dataclass(slots=True, eq=False)
class Lane:
    """The connection from a queue, or from the source, to the same message's queue in front of a next link."""

    before: Queue | None
    after: Queue
    weight: float
    window: int
    sooner_ps: int
    sent: int = 0
    held: int = 0  # Packets of the window that are taken
    returning_ps: deque[int] = field(default_factory=deque)  # When some of them will be free again
    blocked: bool = False


def next_lane(lanes: list[Lane]) -> Lane:
    """Return the lane of the next packet, in the order of `round_robin`."""
    lane = lanes[0] if len(lanes) == 1 else min(lanes, key=lambda lane: (lane.sent + 1) / lane.weight)
    lane.sent += 1
    return lane


def find_window(latency_ps: int, rate: float, weight: float, packet_bytes: int, packets: int) -> tuple[int, int]:
    """Return the window of a message over one hop in packets, and the picoseconds by which credits return early.

    The window covers twice the latency of the hop at the ``rate`` of the message alone (bytes per picosecond, of which
    the hop has the share ``weight``) and some packets more: one that is being sent on and one that waits to follow it;
    a third if the message is sprayed, because others' packets come between its own in bursts. For a long message it is
    the square root of its packets over 16: an ever smaller part of the message as packets get smaller. The fraction of
    a packet is expressed as time.

    >>> find_window(0, 0.0125, 1.0, 4096, 256), find_window(500_000, 0.0125, 1.0, 4096, 256)
    ((2, 4), (5, 16964))
    """
    fewest = 2 if weight > 1 - _SHARE_ROUNDING else 3
    packet_ps = packet_bytes / (rate * weight)
    whole, part_ps = divmod(2 * latency_ps, packet_ps)
    return int(whole) + max(fewest, ceil(sqrt(packets) / 16)), ceil(part_ps) + _ROUNDING_PS
