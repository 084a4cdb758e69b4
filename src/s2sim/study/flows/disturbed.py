"""Transfers while faults happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.network.transfers import deliver_ps
from s2sim.replay.faults.disturbance import Disturbance
from s2sim.replay.faults.held_back import arrivals_ps
from s2sim.study.collective.disturbed import Disturbed
from s2sim.study.collective.link_loads import Sent
from s2sim.study.progress import SILENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import simpy

    from s2sim.network.changing import ChangingNetwork
    from s2sim.replay.faults.fault import Fault
    from s2sim.study.flows.transfers import Transfers
    from s2sim.study.progress import Progress
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.fabric import Fabric


def disturb_flows(
    cluster: Cluster, faults: Sequence[Fault], transfers: Transfers, progress: Progress = SILENT
) -> Disturbed:
    """Send transfers through the fluid network while faults happen; those of a rank that comes late start later.

    The cluster has those faults that last from the start on.
    """
    pairs, start_ps = (transfers.src, transfers.dst), transfers.start_ps
    late_ps = arrivals_ps(faults, cluster.workers, "a transfer")[transfers.src]
    made: list[Disturbance] = []
    progress.start(len(start_ps), "delivering")

    def network(env: simpy.Environment, _: Fabric) -> ChangingNetwork:
        made.append(Disturbance(env, cluster, faults, cluster.seed))
        # The transfers' routes are the first that the network is given.
        made[0].network.join(np.arange(len(start_ps)), *pairs)
        return made[0].network

    routes = cluster.routes(*pairs)
    ends_ps = deliver_ps(cluster.fabric, routes, start_ps + late_ps, transfers.sizes_bytes, progress.advance, network)
    progress.stop()
    ends_ps = ends_ps + made[0].late_ps(0, 0, 0, len(ends_ps))
    slow = [fault.effect_on_transfers(transfers.src) for fault in faults]
    effects = [*made[0].effects(), *(effect for effect in slow if effect is not None)]
    return Disturbed(ends_ps, effects, Sent(*made[0].network.sent()))
