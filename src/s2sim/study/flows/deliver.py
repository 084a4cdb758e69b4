"""Transfers through either network, with a watcher, and a limit to what packets may cost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.network.models import make_network
from s2sim.network.packet.messages import HOPS_A_REPORT, count_packet_hops
from s2sim.network.transfers import deliver_ps
from s2sim.study.progress import Silent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from s2sim.study.progress import Progress
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routes import Routes

# Half a minute or so.
MOST_PACKET_HOPS = 5_000_000


def check_packet_hops(hops: int, packet_bytes: int) -> None:
    """Raise the error for what would take too long as packets."""
    if hops > MOST_PACKET_HOPS:
        raise S2SimError(
            f"packets of {packet_bytes} bytes would cross links {hops:,} times, more than {MOST_PACKET_HOPS:,}: ask "
            "for larger packets (--packet-bytes), send less, or use the fluid network"
        )


def deliver_fluid(
    fabric: Fabric,
    routes: Routes,
    start_ps: NDArray[np.int64],
    sizes_bytes: NDArray[np.float64],
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """Return when each transfer is delivered in the fluid network, int64 picoseconds; see `deliver_ps`."""
    watcher = progress or Silent()
    watcher.start(len(start_ps), "delivering")

    def on_delivered(count: int) -> None:
        for _ in range(count):
            watcher.advance()

    finish_ps = deliver_ps(fabric, routes, start_ps, sizes_bytes, on_delivered)
    watcher.stop()
    return finish_ps


def deliver_packets(
    fabric: Fabric,
    routes: Routes,
    start_ps: NDArray[np.int64],
    sizes_bytes: NDArray[np.float64],
    *,
    packet_bytes: int,
    buffer_bytes: int | None = None,
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """Return when each transfer is delivered in the packet network, int64 picoseconds; see `deliver_ps`."""
    watcher = progress or Silent()
    hops = count_packet_hops(routes, sizes_bytes, packet_bytes)
    check_packet_hops(hops, packet_bytes)
    watcher.start(hops // HOPS_A_REPORT, f"sending packets ({HOPS_A_REPORT:,} hops each)")
    network = partial(
        make_network, "packet", packet_bytes=packet_bytes, buffer_bytes=buffer_bytes, on_hops=watcher.advance
    )
    finish_ps = deliver_ps(fabric, routes, start_ps, sizes_bytes, network=network)
    watcher.stop()
    return finish_ps
