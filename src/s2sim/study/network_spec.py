"""What the specs of traffic say beside the cluster: the network that carries it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from s2sim.network.models import check_network
from s2sim.network.packet.messages import PACKET_BYTES
from s2sim.study.cluster_spec import ClusterSpec


@dataclass(frozen=True, slots=True)
class NetworkSpec(ClusterSpec):
    """Traffic on the cluster of a `ClusterSpec`.

    Attributes
    ----------
    network : {"fluid", "packet"}
        Which network gives the times.
    packet_bytes : int or None
        Bytes of a packet; None for 4096.
    buffer_bytes : int or None
        Bytes that a link's queue of packets holds; None for any number.
    cross_check : bool
        Whether to run the other network too, and compare.
    """

    _: KW_ONLY
    network: str = "fluid"
    packet_bytes: int | None = None
    buffer_bytes: int | None = None
    cross_check: bool = False

    def __post_init__(self) -> None:
        ClusterSpec.__post_init__(self)
        check_network(self.network)
        sent = "packet" if self.as_packets else self.network
        check_network(sent, packet_bytes=self.packet_bytes, buffer_bytes=self.buffer_bytes)

    @property
    def as_packets(self) -> bool:
        """Whether anything goes as packets."""
        return self.cross_check or self.network == "packet"

    @property
    def packet_size_bytes(self) -> int:
        """Bytes of a packet."""
        return PACKET_BYTES if self.packet_bytes is None else self.packet_bytes

    @property
    def other_network(self) -> str:
        """The network that a cross-check adds."""
        return "fluid" if self.network == "packet" else "packet"
