"""What a testbed looks like: its workers, nodes and rates, and the names and addresses that follow from them."""

import math
import re
from dataclasses import dataclass

from s2sim.errors import OptionError
from s2sim.pytorch.launch import ProcessPlace

# Of every namespace that a testbed has, so that all are found without a file that says so.
PREFIX = "s2sim"
SWITCH = "switch"
INTERFACE = "eth0"
NETWORK = "10.77.0.0/24"
# Its host numbers.
MAX_WORKERS = 254

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_SPACE = re.compile(rf"{PREFIX}-({_NAME.pattern})-({SWITCH}|w\d+)")


@dataclass(frozen=True, slots=True)
class NetworkLayout:
    """Workers on a switch, or dealt to nodes, each with a switch of its own and an uplink to one that joins them."""

    name: str  # Lower-case letters, digits and hyphens
    workers: int  # Network namespaces, each with an interface
    nodes: int  # As many as workers where one switch joins all; else fewer, each with as many workers as the others
    # Of every worker's interface, each way, in bytes per second; infinite where nothing shapes it.
    rate_Bps: float = math.inf
    uplink_Bps: float = math.inf  # Of every node's uplink, each way; infinite where there is none, or nothing shapes it

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise OptionError(
                f"--name {self.name[:40]!r}: a testbed's name has up to 32 lower-case letters, digits and hyphens, "
                "e.g. mine-2"
            )
        if not 1 <= self.workers <= MAX_WORKERS:
            raise OptionError(f"{self.workers} workers: a testbed has addresses for 1 to {MAX_WORKERS}")
        if not 1 <= self.nodes <= self.workers or self.workers % self.nodes:
            raise OptionError(f"{self.workers} workers cannot be dealt evenly to {self.nodes} nodes")
        if self.nodes == 1 < self.workers:
            raise OptionError("one node has no uplink: say how many workers there are, and nothing of nodes")
        if not self.joined and math.isfinite(self.uplink_Bps):
            raise OptionError(
                "an uplink is what several workers of a node share: give several nodes of several workers"
            )
        if not (self.rate_Bps >= 1 and self.uplink_Bps >= 1):
            raise OptionError("a testbed's rates are at least 1 B/s")

    @property
    def joined(self) -> bool:
        """Whether nodes have switches of their own, which another joins."""
        return self.nodes < self.workers

    @property
    def shaping(self) -> "TrafficShaping":
        """How it keeps its rates."""
        return choose_shaping(self.workers, min(self.rate_Bps, self.uplink_Bps))

    def node_of(self, worker: int) -> int:
        """Return the node of a worker: nodes fill in order."""
        return worker // (self.workers // self.nodes)

    @property
    def switch(self) -> str:
        """Name of the namespace that holds the switches."""
        return switch_of(self.name)

    def namespace(self, worker: int) -> str:
        """Return the name of a worker's namespace."""
        return f"{PREFIX}-{self.name}-w{worker}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of all namespaces."""
        return (self.switch, *map(self.namespace, range(self.workers)))


def switch_of(name: str) -> str:
    """Return the name of the namespace that holds the switches of a testbed.

    >>> switch_of("mine")
    's2sim-mine-switch'
    """
    return f"{PREFIX}-{name}-{SWITCH}"


def testbed_of(namespace: str) -> str | None:
    """Return the name of the testbed that a namespace belongs to, by its own name.

    >>> testbed_of("s2sim-mine-w3"), testbed_of("s2sim-mine-2-switch"), testbed_of("docker")
    ('mine', 'mine-2', None)
    """
    found = _SPACE.fullmatch(namespace)
    return found[1] if found else None


def address(worker: int) -> str:
    """Return the IPv4 address of a worker; testbeds have the same ones, each in namespaces of its own.

    >>> address(0), address(253)
    ('10.77.0.1', '10.77.0.254')
    """
    return f"10.77.0.{worker + 1}"


def hardware_address(worker: int) -> str:
    """Return the Ethernet address of a worker's interface, from those that are administered locally.

    >>> hardware_address(0)
    '02:00:0a:4d:00:01'
    """
    return ":".join(f"{part:02x}" for part in (2, 0, *map(int, address(worker).split("."))))


def places(layout: NetworkLayout) -> tuple[ProcessPlace, ...]:
    """Return where the processes of the workers run, in order of workers."""
    commands = (("ip", "netns", "exec", layout.namespace(worker)) for worker in range(layout.workers))
    return tuple(ProcessPlace(command, INTERFACE) for command in commands)


# An Ethernet frame as the kernel's shapers count it: 14 bytes of its header, 20 of IPv4's, 32 of TCP's with time
# stamps, and what it carries. Preamble, check sequence and gap between frames are not counted.
MTU_BYTES = 1500
FRAME_BYTES = 14 + MTU_BYTES
SEGMENT_BYTES = MTU_BYTES - 20 - 32

# What TCP hands over at once passes a shaper as one, for which others wait so long; shorter, and every frame would cost
# an interruption.
_AT_ONCE_S = 250e-6
_MAX_SEGMENTS = 44
# A timer is late by less than that nearly always; a bucket keeps what would be lost meanwhile.
_LATE_S = 100e-6
# Acknowledgements are back by then, where nothing queues, also if processes keep processors busy.
_RETURN_S = 4e-3
# A window without scaling, which scales by powers of two; these are limits that no kernel goes beyond.
_WINDOW_BYTES, _MAX_SCALE = 65535, 5
# What a receiver that waits for a processor leaves unread; the kernel counts the memory that packets take.
_ROOM_BYTES = 4 * 2**20
# Connections from one worker to another that queues have room for.
_CONNECTIONS, _MAX_QUEUE_BYTES = 8, 2**31 - 1


@dataclass(frozen=True, slots=True)
class TrafficShaping:
    """How a testbed keeps its rates."""

    segments: int  # Most that TCP hands over at once, in segments of 1448 bytes
    window_bytes: int  # Most that a connection has under way, in bytes
    # Room of a connection at either end, in memory: for a window, and what a late receiver leaves unread.
    room_bytes: int
    # Room of every queue: for all that connections may have under way together, so that nothing is ever lost.
    queue_bytes: int

    @property
    def window_segments(self) -> int:
        """Segments that make a window."""
        return math.ceil(self.window_bytes / SEGMENT_BYTES)

    def burst_bytes(self, rate_Bps: float) -> int:
        """Return what a token bucket of a rate holds: all that TCP hands over at once, and what a late timer costs."""
        return math.ceil(self.segments * FRAME_BYTES + rate_Bps * _LATE_S)


def choose_shaping(workers: int, rate_Bps: float) -> TrafficShaping:
    """Return how a testbed keeps its rates, of which this is the least, in bytes per second.

    >>> choose_shaping(8, 125e6)
    TrafficShaping(segments=20, window_bytes=524280, room_bytes=4194304, queue_bytes=67107840)
    """
    segments = min(max(rate_Bps * _AT_ONCE_S / FRAME_BYTES, 1), _MAX_SEGMENTS)
    windows = min(max(rate_Bps * _RETURN_S / _WINDOW_BYTES, 1), 2**_MAX_SCALE)
    window_bytes = _WINDOW_BYTES << math.ceil(math.log2(windows))
    return TrafficShaping(
        segments=int(segments),
        window_bytes=window_bytes,
        room_bytes=max(_ROOM_BYTES, 2 * window_bytes),
        queue_bytes=min(2 * _CONNECTIONS * workers * window_bytes, _MAX_QUEUE_BYTES),
    )
