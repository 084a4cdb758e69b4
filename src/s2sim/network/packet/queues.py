"""What the packet network keeps: links, messages, their queues at links, and the lanes between these."""

from __future__ import annotations

from collections import deque
from math import ceil, sqrt

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
    """Return whose turn it is, as `s2sim.network.packet.messages.take_turns` deals."""
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
