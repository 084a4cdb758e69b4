"""What a testbed looks like: its workers, nodes and rates, and the names and addresses that follow from them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from s2sim.bridge.processes.launch import Place
from s2sim.errors import OptionError

# Of every namespace that a testbed has, so that all are found without a file that says so.
PREFIX = "s2sim"
SWITCH = "switch"
# Interface of a worker in its namespace.
INTERFACE = "eth0"
NETWORK = "10.77.0.0/24"
# Its host numbers.
MOST_WORKERS = 254

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_SPACE = re.compile(rf"{PREFIX}-({_NAME.pattern})-({SWITCH}|w\d+)")


@dataclass(frozen=True, slots=True)
class Layout:
    """Workers on a switch, or dealt to nodes, each with a switch of its own and an uplink to one that joins them.

    Raises
    ------
    OptionError
        If these fit no testbed.
    """

    name: str  # Lower-case letters, digits and hyphens
    workers: int  # Network namespaces, each with an interface
    nodes: int  # As many as workers where one switch joins all; else fewer, each with as many workers as the others
    # Of every worker's interface, each way, in bytes per second; infinite where nothing shapes it.
    rate_Bps: float = math.inf
    uplink_Bps: float = math.inf  # Of every node's uplink, each way; infinite where there is none, or nothing shapes it

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 1 <= self.workers <= MOST_WORKERS:
            raise OptionError(f"{self.workers} workers: a testbed has addresses for 1 to {MOST_WORKERS}")
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
    def slowest_Bps(self) -> float:
        """Return the least rate of all links."""
        return min(self.rate_Bps, self.uplink_Bps)

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


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a testbed."""
    if _NAME.fullmatch(name) is None:
        raise OptionError(
            f"--name {name[:40]!r}: a testbed's name has up to 32 lower-case letters, digits and hyphens, e.g. mine-2"
        )


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


def places(layout: Layout) -> tuple[Place, ...]:
    """Return where the processes of the workers run, in order of workers."""
    return tuple(
        Place(("ip", "netns", "exec", layout.namespace(worker)), INTERFACE) for worker in range(layout.workers)
    )
