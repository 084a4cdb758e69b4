"""What a reduction in switches takes beside the wire, by a library's constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.fill import in_flight_bytes
from s2sim.collectives.libraries.hops import between_nodes, latencies_of, one_of
from s2sim.collectives.schedules.overheads import overheads_of
from s2sim.collectives.schedules.per_message import PerMessage
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.libraries.constants import Constants, Generation, Protocol
    from s2sim.collectives.schedules.overheads import Overheads
    from s2sim.collectives.schedules.per_message import Powers
    from s2sim.collectives.schedules.schedule import Round
    from s2sim.topology.cluster import Cluster


def in_switches(
    constants: Constants, protocol: Protocol, sent: Round, cluster: Cluster, min_channels: int
) -> Overheads:
    """Return what a reduction in switches takes, and the hops of the trees that pass it on between nodes.

    Each stage that a chunk goes through waits for the first of what is in flight at once, at the rate of what is
    busiest: in a node those of the constants, over nodes each leg of a tree and the switches.
    """
    legs, fabric = sent.pattern.legs, cluster.fabric
    generation, once = constants.generation_of(cluster.shape.gpu), np.zeros(1, np.int64)
    latencies = [one_of("in-network", [("in-network.latency", constants.in_network_ps)], once)]
    stages, limit_Bps = constants.in_network_stages, np.inf
    powers: Powers = (("in-network.stages", 1),)
    name, share = _share(generation, sent, cluster)
    own = one_of("share", [(name, share)], once)
    limited_by: Powers = ()
    if legs is None:
        routes = cluster.reduction_tree()
    else:
        ways = [between_nodes(constants, spec) for spec in cluster.dims.node_set.specs]
        between = [(f"protocol.{protocol.name}.network", protocol.between_ps)]
        between += latencies_of(max(ways, key=lambda way: way.latency_ps), announced=True)
        latencies += [one_of("hop", [each], once, legs.depth) for each in between if each[1]]
        stages, powers = legs.depth + 1, ()
        passed = cluster.routes(legs.src, legs.dst)
        load = np.bincount(passed.links, passed.weights, len(fabric)) * legs.share
        routes = cluster.reduction_over_nodes(passed, legs.share, legs.depth)
        narrowest = min(ways, key=lambda way: way.network.share)
        limit_Bps = float((fabric.rate_Bps[load > 0] / load[load > 0]).min()) * narrowest.network.share
        limited_by = ((f"network.{narrowest.transport}.share", -1),)
    lanes = max(constants.in_network_channels, min_channels) * int(np.bincount(cluster.node_of_rank).max())
    size_bytes = float(sent.bytes[0])
    own_Bps = float(routes.narrowest(fabric.rate_Bps)[0]) * share
    flight_bytes = in_flight_bytes(size_bytes, lanes, over_nodes=legs is not None)
    fill_ps = round(stages * flight_bytes / min(limit_Bps, own_Bps) * PS_PER_S)
    powers += limited_by if limit_Bps < own_Bps else own.powers[0]
    latencies.append(PerMessage("fill", (powers,), np.array([float(fill_ps)]), once))
    # A limit is of what goes over the network, of which only a share is data.
    limited_by += tuple((each, 1) for each, _ in own.powers[0])
    limit = PerMessage("limit", (limited_by,), np.array([limit_Bps / share]), once)
    return overheads_of(latencies, [own], [limit])


def _share(generation: Generation | None, sent: Round, cluster: Cluster) -> tuple[str, float]:
    """Return the constant that says what share of the rate switches reach, and that share; all of it without one."""
    if generation is None or generation.switched is None:
        return "", 1.0
    name, reached = f"in-network.{generation.name}.share", generation.switched
    if sent.pattern.legs is not None:
        return f"{name}-over-nodes", reached.share_over_nodes
    if len(np.unique(cluster.host_of_rank)) > 1:
        return f"{name}-over-hosts", reached.share_over_hosts
    return name, reached.share
