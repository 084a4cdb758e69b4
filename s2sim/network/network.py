"""The networks by name, and what each of them offers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from s2sim.errors import OptionError, S2SimError, unknown_name
from s2sim.network.fluid import FluidNetwork, solve_batch_ps
from s2sim.network.max_min import MAX_PS, ROUNDING_PS, TOO_LONG
from s2sim.network.packet_queues import PACKET_BYTES, check_packets
from s2sim.topology.graph import Fabric, Routes
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    import simpy


def round_up_ps(durations_ps: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return durations rounded up to whole picoseconds, so that no time falls under its bandwidth lower bound."""
    if len(durations_ps) and not durations_ps.max() < MAX_PS:
        raise S2SimError(TOO_LONG)
    whole: NDArray[np.int64] = np.ceil(durations_ps - ROUNDING_PS).astype(np.int64)
    return whole


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


class SkippableNetwork(Network, Protocol):
    """A network on which time may pass without messages as long as nothing else is sent."""

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight or on its way into it."""

    def reserve(self, owner: int, land: Callable[[], None]) -> None:
        """Let ``owner`` pass time on the idle network without sending: whoever else sends first calls ``land``."""

    def end_reservation(self) -> None:
        """End what `reserve` began."""

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
    from s2sim.network.packet import PacketNetwork

    size_bytes = PACKET_BYTES if packet_bytes is None else packet_bytes
    return PacketNetwork(env, fabric, packet_bytes=size_bytes, buffer_bytes=buffer_bytes, on_hops=on_hops)


def deliver_ps(
    fabric: Fabric,
    routes: Routes,
    start_ps: NDArray[np.int64],
    sizes_bytes: NDArray[np.float64],
    on_delivered: Callable[[int], None] = lambda _: None,
    network: Callable[[simpy.Environment, Fabric], Network] | None = None,
) -> NDArray[np.int64]:
    """Return when each transfer is delivered, int64 picoseconds of shape (n,).

    Parameters
    ----------
    fabric : Fabric
        Links.
    routes : Routes
        One a transfer.
    start_ps : int64 array, shape (n,)
        When each starts.
    sizes_bytes : float64 array, shape (n,)
        Bytes of each.
    on_delivered : callable
        Told how many have been delivered each time some are.
    network : callable
        Makes the network that carries them; without it they are alone on the fluid network, which needs no simulation.
    """
    if network is None:
        return solve_batch_ps(routes, start_ps, sizes_bytes, fabric.rate_Bps / PS_PER_S, on_delivered)
    import simpy

    env = simpy.Environment(initial_time=0)
    carrier = network(env, fabric)
    numbers = carrier.add_routes(routes)
    finish = np.zeros(len(start_ps), np.int64)
    # A network may carry other things, which go on for ever.
    left, over = len(start_ps), env.event()

    def delivered(tags: NDArray[np.int64]) -> None:
        nonlocal left
        finish[tags] = env.now
        on_delivered(len(tags))
        left -= len(tags)
        if left == 0:
            over.succeed()

    owner = carrier.add_owner(delivered)

    def sender() -> Generator[simpy.Event, None, None]:
        order = np.argsort(start_ps, kind="stable")
        moments, first = np.unique(start_ps[order], return_index=True)
        for moment, members in zip(moments.tolist(), np.split(order, first[1:]), strict=True):
            yield env.timeout(moment - env.now)
            carrier.send(numbers[members], sizes_bytes[members], owner, members)

    if len(start_ps):
        env.process(sender())
        env.run(until=over)
    return finish


def uncontended_ps(fabric: Fabric, routes: Routes, sizes_bytes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how long each transfer takes with nothing else in flight, int64 picoseconds of shape (n,)."""
    return routes.latency_ps + round_up_ps(sizes_bytes / routes.narrowest(fabric.rate_Bps / PS_PER_S))
