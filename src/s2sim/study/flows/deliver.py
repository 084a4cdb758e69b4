"""Transfers through either network, with a progress."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s2sim.network.models import make_network
from s2sim.network.packet.messages import HOPS_A_REPORT, count_packet_hops
from s2sim.network.transfers import deliver_ps
from s2sim.study.collective.both_networks import check_packet_hops
from s2sim.study.progress import SILENT

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.study.flows.transfers import Transfers
    from s2sim.study.network_spec import NetworkSpec
    from s2sim.study.progress import Progress
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes


def deliver_fluid(cluster: Cluster, routes: Routes, transfers: Transfers, progress: Progress = SILENT) -> Ints:
    """Return when each transfer is delivered in the fluid network, int64 picoseconds; see `deliver_ps`."""
    progress.start(len(transfers.start_ps), "delivering")
    finish_ps = deliver_ps(cluster.fabric, routes, transfers.start_ps, transfers.sizes_bytes, progress.advance)
    progress.stop()
    return finish_ps


def deliver_packets(
    cluster: Cluster, routes: Routes, transfers: Transfers, spec: NetworkSpec, progress: Progress = SILENT
) -> Ints:
    """Return when each transfer is delivered in the packet network, int64 picoseconds; see `deliver_ps`."""
    hops = count_packet_hops(routes, transfers.sizes_bytes, spec.packet_size_bytes)
    check_packet_hops(hops, spec.packet_size_bytes)
    progress.start(hops // HOPS_A_REPORT, f"sending packets ({HOPS_A_REPORT:,} hops each)")
    network = partial(
        make_network, "packet", packet_bytes=spec.packet_bytes, buffer_bytes=spec.buffer_bytes, on_hops=progress.advance
    )
    finish_ps = deliver_ps(cluster.fabric, routes, transfers.start_ps, transfers.sizes_bytes, network=network)
    progress.stop()
    return finish_ps
