"""What a library adds to the wire, as constants, every number with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from s2sim.collectives.libraries.version import Version
    from s2sim.topology.files.quantity import Quantity

LINKS = ("nvlink", "pcie")
"""What joins GPUs inside a node, as hops go."""

SHARES = (*LINKS, "host-memory", "host-memory-both-ways")
"""What a share of the rate inside a node is told of: PCIe with peer-to-peer, and without for GPUs that send or receive
at a time, or both."""

Own: TypeAlias = tuple[tuple[str, "str | float"], ...]
"""Constants by their dotted names, with values as a file has them: ``"5us"``, or 0.9."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """One protocol.

    Attributes
    ----------
    share : float
        Data in a byte that is sent.
    limit_Bps, network_limit_Bps : float
        Most that one rank sends, data and flags, and between nodes; infinite where nothing limits it.
    inside_ps, between_ps : tuple of (str, int), int
        Picoseconds of a hop over each kind of link inside a node, and between nodes beside those of the network.
    direct : bool
        Whether it needs NVLink inside nodes, and between nodes a path from GPU to interface without a processor.
    messages_bytes : float
        Largest message that is sent so where collectives are made of sends and receives; infinite for any.
    part_bytes : float
        Least part of a buffer that gets a channel of its own; infinite where it has one.
    """

    name: str
    share: float
    limit_Bps: float
    network_limit_Bps: float
    inside_ps: tuple[tuple[str, int], ...]
    between_ps: int
    direct: bool
    messages_bytes: float
    part_bytes: float


@dataclass(frozen=True, slots=True)
class Way:
    """A network, or the way to it: the share of the rate that it leaves, and the picoseconds that it adds to a hop.

    ``rendezvous_ps`` are added to messages of ``eager_bytes`` and more, which are announced before they are sent.
    ``stream_Bps`` is the most that a message gets through one interface, infinite where nothing limits it. The way to a
    network past a host has a share of the rate of the GPU's PCIe.
    """

    share: float
    latency_ps: int
    stream_Bps: float
    eager_bytes: float
    rendezvous_ps: int


@dataclass(frozen=True, slots=True)
class Switched:
    """The shares of the rate that an NVSwitch which reduces reaches.

    ``share_over_hosts`` is that of one domain over several hosts, ``share_over_nodes`` that beside trees between nodes.
    """

    share: float
    share_over_hosts: float
    share_over_nodes: float


@dataclass(frozen=True, slots=True)
class Generation:
    """GPUs that a library treats alike, by their names in the catalogue.

    Attributes
    ----------
    switched : Switched or None
        What NVSwitches between them reach; None where none reduces.
    channel_Bps : tuple of (str, float)
        Most data a second that one channel over several nodes reduces, as bus bandwidth, by algorithm and protocol
        (``tree-Simple``), with ``-two-nodes`` where that differs.
    channels : int
        How many channels a large buffer has between GPUs that NVLink joins.
    """

    name: str
    gpus: tuple[str, ...]
    switched: Switched | None
    channel_Bps: tuple[tuple[str, float], ...]
    channels: int


@dataclass(frozen=True, slots=True)
class Constants:
    """All of one library, times in picoseconds.

    Attributes
    ----------
    launch_gpu_ps, launch_channel_ps : int
        Of a process that launches on several GPUs, for each of them and for each channel on one.
    peer_inside_ps, peer_between_ps : int
        Of each peer of a rank where collectives are made of sends and receives, in its node and in another.
    shares : tuple of (str, float)
        Share of the rate of a link inside a node that data reaches.
    in_network_ps, in_network_channels, in_network_stages : int
        Latency of a reduction in a switch, how many run at once, and how many stages each chunk passes inside a
        node.
    networks, paths : tuple of (str, Way)
        Transports, and ways between GPU and network interface.
    since : tuple of (str, tuple of int)
        First version with an algorithm or protocol; ``messages``: small messages have another protocol than large
        ones.
    """

    name: str
    source: str
    launch_ps: int
    launch_gpu_ps: int
    launch_channel_ps: int
    peer_inside_ps: int
    peer_between_ps: int
    protocols: tuple[Protocol, ...]
    shares: tuple[tuple[str, float], ...]
    generations: tuple[Generation, ...]
    in_network_ps: int
    in_network_channels: int
    in_network_stages: int
    networks: tuple[tuple[str, Way], ...]
    paths: tuple[tuple[str, Way], ...]
    since: tuple[tuple[str, Version], ...]
    quantities: tuple[Quantity, ...]

    def generation_of(self, gpu: str | None) -> Generation | None:
        """Return what depends on the GPUs of a name; None where the constants do not tell these."""
        return next((each for each in self.generations if gpu in each.gpus), None)

    def has(self, what: str, version: Version) -> bool:
        """Return whether a version of the library has something; no version stands for the newest.

        >>> from s2sim.collectives.libraries.constants_file import load_constants
        >>> load_constants("nccl").has("LL128", (2, 4)), load_constants("nccl").has("LL128", ())
        (False, True)
        """
        return not version or version >= dict(self.since).get(what, ())
