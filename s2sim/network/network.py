"""The networks by name, and the delivery times of transfers on them."""

from collections.abc import Callable, Generator

import numpy as np
import simpy

from s2sim.arrays import Floats, Ints
from s2sim.errors import OptionError, S2SimError, unknown_name
from s2sim.network.base import Network
from s2sim.network.fluid import FluidNetwork, solve_batch_ps
from s2sim.network.max_min import MAX_PS, ROUNDING_PS, TOO_LONG
from s2sim.network.packet_queues import PACKET_BYTES, check_packets
from s2sim.topology.graph import Fabric, Routes
from s2sim.units import PS_PER_S


def round_up_ps(durations_ps: Floats) -> Ints:
    """Return durations rounded up to whole picoseconds, so that no time falls under its bandwidth lower bound."""
    if len(durations_ps) and not durations_ps.max() < MAX_PS:
        raise S2SimError(TOO_LONG)
    return np.ceil(durations_ps - ROUNDING_PS).astype(np.int64)


NETWORKS = ("fluid", "packet")


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
    """Return a network by its name, ``"fluid"`` or ``"packet"``.

    Packets have ``packet_bytes`` (default: 4096); at most ``buffer_bytes`` wait in front of one link (default: limited
    by windows alone); ``on_hops`` is called as the packet network makes progress.
    """
    check_network(name, packet_bytes=packet_bytes, buffer_bytes=buffer_bytes)
    if name == "fluid":
        return FluidNetwork(env, fabric)
    from s2sim.network.packet import PacketNetwork

    return PacketNetwork(
        env, fabric, packet_bytes=packet_bytes or PACKET_BYTES, buffer_bytes=buffer_bytes, on_hops=on_hops
    )


def deliver_ps(
    fabric: Fabric,
    routes: Routes,
    start_ps: Ints,
    sizes_bytes: Floats,
    on_delivered: Callable[[int], None] = lambda _: None,
    network: Callable[[simpy.Environment, Fabric], Network] | None = None,
) -> Ints:
    """Return the delivery time of each transfer, int64 picoseconds of shape (n,).

    There is one route, start time and size in bytes per transfer. ``on_delivered`` is called with the number of
    transfers delivered since its last call. ``network`` makes the network that transmits them; without it they are
    alone on the fluid network, which needs no simulation.
    """
    if network is None:
        return solve_batch_ps(routes, start_ps, sizes_bytes, fabric.rate_Bps / PS_PER_S, on_delivered)
    import simpy

    env = simpy.Environment(initial_time=0)
    carrier = network(env, fabric)
    numbers = carrier.add_routes(routes)
    finish = np.zeros(len(start_ps), np.int64)
    # Other traffic on the network may never end.
    left, over = len(start_ps), env.event()

    def delivered(tags: Ints) -> None:
        nonlocal left
        finish[tags] = env.now
        on_delivered(len(tags))
        left -= len(tags)
        if left == 0:
            over.succeed()

    owner = carrier.add_owner(delivered)

    def sender() -> Generator[simpy.Event, None, None]:
        order = np.argsort(start_ps, kind="stable")
        times_ps, first = np.unique(start_ps[order], return_index=True)
        for time_ps, members in zip(times_ps.tolist(), np.split(order, first[1:]), strict=True):
            yield env.timeout(time_ps - env.now)
            carrier.send(numbers[members], sizes_bytes[members], owner, members)

    if len(start_ps):
        env.process(sender())
        env.run(until=over)
    return finish


def uncontended_ps(fabric: Fabric, routes: Routes, sizes_bytes: Floats) -> Ints:
    """Return the duration of each transfer with nothing else in flight, int64 picoseconds of shape (n,)."""
    return routes.latency_ps + round_up_ps(sizes_bytes / routes.narrowest(fabric.rate_Bps / PS_PER_S))
