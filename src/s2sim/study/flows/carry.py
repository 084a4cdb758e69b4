"""Transfers through the networks that were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.network.packet.messages import fill_ps
from s2sim.network.transfers import idle_ps
from s2sim.replay.faults.permanent import permanent_effects
from s2sim.study.collective.link_loads import Sent
from s2sim.study.flows.deliver import deliver_fluid, deliver_packets
from s2sim.study.flows.disturbed import disturb_flows
from s2sim.study.progress import SILENT
from s2sim.study.scenario.faults import in_order

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.replay.faults.fault import Effect
    from s2sim.study.flows.spec import FlowsSpec
    from s2sim.study.flows.transfers import Transfers
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.cluster import Scenario


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """How transfers went: when each was delivered, by network, and how long each would take alone.

    ``fills_ps`` is what store and forward adds to each; 0 without packets.
    """

    finish_ps: dict[str, Ints]
    fills_ps: Ints
    alone_ps: Ints
    sent: Sent
    effects: tuple[Effect, ...]


def carry(
    spec: FlowsSpec, scenario: Scenario, workers: int, transfers: Transfers, progress: Progress = SILENT
) -> Carried:
    """Send transfers through the network that was asked for, and through the other one for a cross-check."""
    healthy, cluster, faults = scenario.healthy(workers), scenario.cluster(workers), scenario.faults
    src, dst, sizes_bytes = transfers.src, transfers.dst, transfers.sizes_bytes
    routes, alone = cluster.routes(src, dst), healthy.routes(src, dst)
    finish_ps, fills_ps = {}, np.zeros(len(src), np.int64)
    if spec.as_packets:
        finish_ps["packet"] = deliver_packets(cluster, routes, transfers, spec, progress)
        fills_ps = fill_ps(cluster.fabric, routes, sizes_bytes, spec.packet_size_bytes)
    sent = Sent(routes, src, dst, sizes_bytes)
    effects = permanent_effects(faults, healthy, [(alone, routes, 1)])
    if scenario.disturbed:
        disturbed = disturb_flows(cluster, faults, transfers, progress)
        finish_ps["fluid"], sent = disturbed.ends_ps, disturbed.sent
        effects += disturbed.effects
    elif spec.cross_check or spec.network == "fluid":
        finish_ps["fluid"] = deliver_fluid(cluster, routes, transfers, progress)
    alone_ps = idle_ps(healthy.fabric, alone, sizes_bytes) + (fills_ps if spec.network == "packet" else 0)
    return Carried(finish_ps, fills_ps, alone_ps, sent, in_order(effects, faults))
