"""What the specs of traffic say beside the cluster: the network that carries it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from s2sim.study.cluster_spec import ClusterSpec
from s2sim.study.spec_options import option, size_parser


@dataclass(frozen=True, slots=True)
class NetworkSpec(ClusterSpec):
    """Traffic on the cluster of a `ClusterSpec`."""

    _: KW_ONLY
    network: str = option(
        "fluid",
        "NAME",
        "fluid, or packet for store and forward with fair queueing: the reference for tens of ranks.",
    )
    packet_bytes: int | None = option(
        None,
        "SIZE",
        "Size of a packet with its unit, for example 16KiB.",
        none="4KiB with packets",
        parse=size_parser("--packet-bytes"),
    )
    buffer_bytes: int | None = option(
        None,
        "SIZE",
        "Most that waits in front of a link, of all packets; who finds no room waits, nothing is lost.",
        flag="--buffer",
        none="no limit",
        parse=size_parser("--buffer"),
    )
    cross_check: bool = option(False, None, "Run the other network too, and say how far apart they are.")
    seed: int = option(0, "N", "Seed of what is drawn: ECMP's hash, Valiant's detours, a random placement.", at_least=0)

    def __post_init__(self) -> None:
        from s2sim.network.models import check_network

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
        from s2sim.network.packet.messages import PACKET_BYTES

        return PACKET_BYTES if self.packet_bytes is None else self.packet_bytes

    @property
    def other_network(self) -> str:
        """The network that a cross-check adds."""
        return "fluid" if self.network == "packet" else "packet"
