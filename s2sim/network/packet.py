"""The packet network: the reference for the fluid network, for tens of ranks.

A link sends one packet at a time at its rate; after the hop's latency the whole packet waits in front of the next link
(store and forward). Finish times converge to those of `s2sim.network.fluid` as packets get smaller, because of

- start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) of the messages at every link: a packet's tag is the
  later of the link's virtual time and the end of the message's previous packet, its tag plus bytes over weight;
- a window per hop, with credits that return with the hop's latency (Hahne, IEEE JSAC 9(7), 1991). Packets that pile up
  grow with it, and too small ones miss turns in bursts; see `s2sim.network.packet_queues.find_window`;
- turns: a message that is sprayed over parallel links gives each its packets in turn, and a packet that waits for its
  window delays those behind it.

With `buffer_bytes` packets wait for room in order of arrival. On cyclic routes that may deadlock, which is an error.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import Any

import numpy as np
import simpy

from s2sim.arrays import Floats, Ints
from s2sim.errors import S2SimError
from s2sim.network import packet_queues
from s2sim.network.base import Network, call_after
from s2sim.topology.graph import Fabric, Routes
from s2sim.units import PS_PER_S

# Last packets may hold fractions of a byte, whose sums are not exact.
_ROUNDING_BYTES = 1e-3


class PacketNetwork(Network):
    """Messages as packets on a fabric, in simulated time.

    Packets have ``packet_bytes``; the last of a message may be shorter. At most ``buffer_bytes`` of all messages are on
    their way to one link or wait there (default: limited by windows alone); packets at their source do not count.
    ``on_hops`` is called every `HOPS_PER_REPORT` packet-hops, of which ``packet_hops`` have been simulated.
    """

    def __init__(
        self,
        env: simpy.Environment,
        fabric: Fabric,
        *,
        packet_bytes: int = packet_queues.PACKET_BYTES,
        buffer_bytes: int | None = None,
        on_hops: Callable[[], None] | None = None,
    ) -> None:
        packet_queues.check_packets(packet_bytes, buffer_bytes)
        super().__init__(env)
        self._fabric = fabric
        self._packet_bytes = packet_bytes
        self._buffer_bytes = buffer_bytes
        self._on_hops = on_hops
        self._links: dict[int, packet_queues.Link] = {}
        self._routes: list[tuple[Routes, int]] = []
        self._packet_routes: dict[int, packet_queues.PacketRoute] = {}
        # Future events, by time and then by age; the network's own clock may be ahead of the environment's.
        self._events: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._age = count()
        self._now = 0
        self._wake_ps = -1
        self._sent = 0
        self._in_flight = 0
        self._finished: list[packet_queues.Message] = []
        self.packet_hops = 0

    def add_routes(self, routes: Routes) -> Ints:
        if routes.limit_Bps is not None:
            raise S2SimError("packets know no limit of a route but its links: ask for the fluid network")
        first = len(self._routes)
        self._routes.extend((routes, index) for index in range(len(routes.latency_ps)))
        return np.arange(first, len(self._routes))

    def send(self, routes: Ints, sizes_bytes: Floats, owner: int, tags: Ints) -> None:
        self._now = int(self.env.now)
        for route, size_bytes, tag in zip(routes.tolist(), sizes_bytes.tolist(), tags.tolist(), strict=True):
            packets = max(ceil(size_bytes / self._packet_bytes), 1)
            last_bytes = size_bytes - (packets - 1) * self._packet_bytes
            message = packet_queues.Message(owner, tag, packets, packets, last_bytes)
            self._lay_out(message, route)
            self._in_flight += 1
            self._release(message)
        self._wake()

    def _lay_out(self, message: packet_queues.Message, route: int) -> None:
        """Give a message its queues along its route, and the lanes between them."""
        if route not in self._packet_routes:
            self._packet_routes[route] = packet_queues.find_packet_route(self._fabric, *self._routes[route])
        taken = self._packet_routes[route]
        queues = []
        for link, weight, latency_ps in zip(taken.links, taken.weights, taken.latencies_ps, strict=True):
            if link not in self._links:
                room_bytes = float("inf") if self._buffer_bytes is None else self._buffer_bytes + _ROUNDING_BYTES
                self._links[link] = packet_queues.Link(float(self._fabric.rate_Bps[link]) / PS_PER_S, room_bytes)
            queues.append(packet_queues.Queue(message, self._links[link], weight, latency_ps))
        for step in taken.steps:
            before = queues[step.before] if step.before >= 0 else None
            latency_ps = 0 if before is None else before.latency_ps
            window = packet_queues.find_window(latency_ps, taken.rate, step.weight, self._packet_bytes, message.unsent)
            lane = packet_queues.Lane(before, queues[step.after], step.weight, *window)
            (message.lanes if before is None else before.lanes).append(lane)
        # Messages that start together begin with different ones of parallel links.
        for lanes in (message.lanes, *(queue.lanes for queue in queues)):
            turn = self._sent % len(lanes) if lanes else 0
            lanes[:] = lanes[turn:] + lanes[:turn]
        self._sent += 1

    def _at(self, time_ps: int, action: Callable[[Any], None], subject: object) -> None:
        heappush(self._events, (time_ps, next(self._age), action, subject))

    def _release(self, message: packet_queues.Message) -> None:
        if message.unsent:
            message.unsent -= 1
            size_bytes = float(self._packet_bytes) if message.unsent else message.last_bytes
            self._queue_up((packet_queues.next_lane(message.lanes), size_bytes))

    def _queue_up(self, arrival: tuple[packet_queues.Lane, float]) -> None:
        lane, size_bytes = arrival
        queue = lane.after
        queue.packets.append((size_bytes, lane))
        if len(queue.packets) == 1:
            self._come_forward(queue)

    def _come_forward(self, queue: packet_queues.Queue) -> None:
        if queue.lanes:
            queue.lane = packet_queues.next_lane(queue.lanes)
        self._offer(queue)

    def _offer(self, queue: packet_queues.Queue) -> None:
        """Let the packet at the head compete for its link, unless its window is taken."""
        lane = queue.lane
        if lane is not None:
            returning_ps = lane.returning_ps
            while returning_ps and returning_ps[0] <= self._now:
                returning_ps.popleft()
                lane.held -= 1
            if lane.held >= lane.window:
                lane.blocked = True
                if returning_ps:
                    self._at(returning_ps[0], self._unblock, lane)
                return
        self._compete(queue)

    def _unblock(self, lane: packet_queues.Lane) -> None:
        lane.blocked = False
        assert lane.before is not None
        self._offer(lane.before)

    def _compete(self, queue: packet_queues.Queue) -> None:
        link = queue.link
        heappush(link.ready, (max(link.virtual, queue.tag_after), next(self._age), queue))
        if link.waking:
            return
        if self._now >= link.free_ps:
            self._serve(link, 0.0)
        else:
            link.waking = True
            self._at(link.free_ps, self._free, link)

    def _free(self, link: packet_queues.Link) -> None:
        """Serve the next packet, which starts when the previous one ended, before rounding."""
        link.waking = False
        self._serve(link, link.carry_ps)

    def _serve(self, link: packet_queues.Link, carry_ps: float) -> None:
        while link.ready:
            tag, _, queue = heappop(link.ready)
            if self._has_room(queue):
                self._begin(queue, tag, carry_ps)
                break
        if link.ready and not link.waking:
            link.waking = True
            self._at(link.free_ps, self._free, link)

    def _has_room(self, queue: packet_queues.Queue) -> bool:
        """Take room at the next link for the packet at the head, or let it wait for some."""
        if queue.lane is None or queue.has_room:
            return True
        target, size_bytes = queue.lane.after.link, queue.packets[0][0]
        if target.waiting or target.room_bytes < size_bytes:
            target.waiting.append(queue)
            return False
        target.room_bytes -= size_bytes
        return True

    def _give_room(self, link: packet_queues.Link) -> None:
        while link.waiting and link.room_bytes >= link.waiting[0].packets[0][0]:
            queue = link.waiting.popleft()
            link.room_bytes -= queue.packets[0][0]
            queue.has_room = True
            self._compete(queue)

    def _begin(self, queue: packet_queues.Queue, tag: float, carry_ps: float) -> None:
        size_bytes, came_by = queue.packets.popleft()
        link, lane, message = queue.link, queue.lane, queue.message
        link.virtual = tag
        queue.tag_after = tag + size_bytes / queue.weight
        queue.has_room = False
        duration_ps = size_bytes / link.rate - carry_ps
        whole_ps = ceil(duration_ps - 1e-6)
        link.carry_ps = whole_ps - duration_ps
        link.free_ps = self._now + whole_ps
        self.packet_hops += 1
        if self._on_hops is not None and self.packet_hops % packet_queues.HOPS_PER_REPORT == 0:
            self._on_hops()
        if lane is None:
            self._at(link.free_ps + queue.latency_ps, self._deliver, message)
        else:
            lane.held += 1
            self._at(link.free_ps + queue.latency_ps, self._queue_up, (lane, size_bytes))
        if came_by.before is None:
            self._release(message)
        else:
            back_ps = max(link.free_ps - came_by.sooner_ps, self._now) + came_by.before.latency_ps
            if came_by.blocked and not came_by.returning_ps:
                self._at(back_ps, self._unblock, came_by)
            came_by.returning_ps.append(back_ps)
            link.room_bytes += size_bytes
            if link.waiting:
                self._at(self._now, self._give_room, link)
        if queue.packets and came_by.before is not None:
            self._come_forward(queue)

    def _deliver(self, message: packet_queues.Message) -> None:
        message.undelivered -= 1
        if not message.undelivered:
            self._in_flight -= 1
            self._finished.append(message)

    def _wake(self) -> None:
        at_ps = self._now if self._finished else self._events[0][0] if self._events else None
        if at_ps is None or self._wake_ps == at_ps:
            return
        self._wake_ps = at_ps

        def wake() -> None:
            if self._wake_ps == at_ps:
                self._wake_ps = -1
                self._advance()

        call_after(self.env, at_ps - int(self.env.now), wake)

    def _advance(self) -> None:
        """Process the events that are due, report to owners, and run ahead until the environment's next event."""
        events, now = self._events, int(self.env.now)
        while events and events[0][0] <= now:
            self._now, _, action, subject = heappop(events)
            action(subject)
        finished, self._finished = self._finished, []
        for owner in sorted({message.owner for message in finished}):
            self.owners[owner](np.array([message.tag for message in finished if message.owner == owner]))
        undisturbed_ps = self.env.peek()
        while events and events[0][0] < undisturbed_ps and not self._finished:
            self._now, _, action, subject = heappop(events)
            action(subject)
        if self._in_flight and not events:
            raise S2SimError(
                f"{self._in_flight} messages wait for each other's room for ever: buffers of {self._buffer_bytes} "
                "bytes are too small for routes that go round in a circle; ask for larger ones, or none"
            )
        self._wake()
