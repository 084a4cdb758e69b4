"""The networks by name, and what each of them offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from s2sim.errors import OptionError, unknown_name
from s2sim.network.fluid import FluidNetwork
from s2sim.network.packet.messages import PACKET_BYTES, check_packets

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import simpy
    from numpy.typing import NDArray

    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routes import Routes

NETWORKS = ("fluid", "packet")


class Network(Protocol):
    """What carries transfers in simulated time.

    Attributes
    ----------
    env : simpy.Environment
        Its time is integer picoseconds.
    """

    env: simpy.Environment

    def add_routes(self, routes: Routes) -> NDArray[np.int64]:
        """Make routes known and return their numbers."""

    def add_owner(self, on_delivered: Callable[[NDArray[np.int64]], None]) -> int:
        """Return the number under which transfers report their delivery."""

    def send(
        self, routes: NDArray[np.int64], sizes_bytes: NDArray[np.float64], owner: int, tags: NDArray[np.int64]
    ) -> None:
        """Start transfers now."""


class PassableNetwork(Network, Protocol):
    """A network on which time may pass without messages as long as nothing else is sent."""

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight or on its way into it."""

    def occupy(self, owner: int, land: Callable[[], None]) -> None:
        """Let ``owner`` pass time on the idle network without sending: whoever else sends first calls ``land``."""

    def vacate(self) -> None:
        """End what `occupy` began."""

    def send_at(
        self,
        start_ps: int,
        routes: NDArray[np.int64],
        sizes_bytes: NDArray[np.float64],
        owner: int,
        tags: NDArray[np.int64],
    ) -> None:
        """Send on the idle network as if it had been done at a time that has passed."""


def check_network(name: str, *, packet_bytes: int | None = None, buffer_bytes: int | None = None) -> None:
    """Raise the error for a network that does not exist, or for options that do nothing or cannot be."""
    if name not in NETWORKS:
        raise unknown_name("network", name, NETWORKS)
    if name == "fluid":
        for option, value in (("packet", packet_bytes), ("buffer", buffer_bytes)):
            if value is not None:
                raise OptionError(
                    f"a {option} size of {value} bytes changes nothing in the fluid network: leave it out, or ask for "
                    "the packet network"
                )
        return
    check_packets(PACKET_BYTES if packet_bytes is None else packet_bytes, buffer_bytes)


def make_network(
    name: str,
    env: simpy.Environment,
    fabric: Fabric,
    *,
    packet_bytes: int | None = None,
    buffer_bytes: int | None = None,
    on_hops: Callable[[], None] | None = None,
) -> Network:
    """Return a network of that name.

    Parameters
    ----------
    name : str
        ``"fluid"`` or ``"packet"``.
    env : simpy.Environment
        Its time is integer picoseconds.
    fabric : Fabric
        Links.
    packet_bytes : int, optional
        Bytes of a packet; without it 4096.
    buffer_bytes : int, optional
        Most bytes in front of one link; without it there is no limit but the windows.
    on_hops : callable, optional
        Told of the packet network's progress.
    """
    check_network(name, packet_bytes=packet_bytes, buffer_bytes=buffer_bytes)
    if name == "fluid":
        return FluidNetwork(env, fabric)
    from s2sim.network.packet.network import PacketNetwork

    size_bytes = PACKET_BYTES if packet_bytes is None else packet_bytes
    return PacketNetwork(env, fabric, packet_bytes=size_bytes, buffer_bytes=buffer_bytes, on_hops=on_hops)
