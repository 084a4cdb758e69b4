"""A cluster in words and plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.topology.kinds import KINDS
from s2sim.topology.kinds.layout import plural
from s2sim.topology.node import gpu_rates, node_rates
from s2sim.units import PS_PER_S, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from s2sim.topology.cluster import Cluster


def oversubscription(cluster: Cluster) -> float | None:
    """Return the worst ratio, over the levels of switches, of what full hosts can send to what leads upwards.

    1 or less is non-blocking; a tree without uplinks has 1, and a fabric without levels None.
    """
    return cluster.layout.oversubscription()


def bisection_Bps(cluster: Cluster) -> float | None:
    """Return what crosses, one way, the cut that halves the cluster where it is weakest; None for one GPU.

    How nodes are halved is the kind's to say; GPUs are halved where there is one node. With an odd number the smaller
    half counts.
    """
    dims = cluster.dims
    if dims.workers == 1:
        return None
    if dims.nodes == 1:
        return float(gpu_rates(cluster.layout)[: dims.workers // 2].sum())
    return cluster.layout.bisection_Bps(node_rates(cluster.layout))


def _ways(cluster: Cluster) -> list[tuple[int, int]]:
    """Return (links, latency in picoseconds) of the ways that may be shortest and longest, from GPU to GPU."""
    dims, shape = cluster.dims, cluster.shape
    ways = []
    if min(dims.gpus_per_node, dims.workers) > 1:
        inside = shape.nvlink or shape.pcie
        ways.append((2, 2 * inside.latency_ps if inside else 0))
    if dims.nodes > 1:
        ports = [shape.host_link, shape.pcie] if shape.pcie else [shape.host_link]
        ends_ps = 2 * sum(port.latency_ps for port in ports)
        ways += [(2 * len(ports) + hops, ends_ps + hops * shape.link.latency_ps) for hops in cluster.layout.hops()]
    return ways


def describe(cluster: Cluster) -> dict[str, Any]:
    """Return counts, rates and latencies as plain values; rates in bytes a second, latencies in picoseconds.

    Diameter and latencies are those of the longest and shortest of all ways between two GPUs, whatever the placement.
    """
    dims, shape = cluster.dims, cluster.shape
    ways = _ways(cluster)
    names, totals = np.unique(cluster.fabric.link_class, return_counts=True)
    return {
        "name": shape.name,
        "description": shape.description,
        "kind": shape.kind,
        "workers": cluster.workers,
        "placement": cluster.placement,
        "nodes": dims.nodes,
        "gpus_per_node": dims.gpus_per_node,
        "nvlink_rate_Bps": shape.nvlink.rate_Bps if shape.nvlink else None,
        "pcie_rate_Bps": shape.pcie.rate_Bps if shape.pcie else None,
        "nics_per_node": dims.nics_per_node,
        "nic_rate_Bps": shape.nic.rate_Bps,
        "host_link_rate_Bps": shape.host_link.rate_Bps,
        "link_rate_Bps": shape.link.rate_Bps,
        "routing": shape.routing if KINDS[shape.kind].routings else None,
        "levels": shape.levels,
        **dict.fromkeys(("leaves", "nodes_per_leaf", "pods", "spines", "cores"), 0),
        **cluster.layout.counts(),
        "links": len(cluster.fabric),
        "links_by_class": {cluster.fabric.class_names[n]: int(t) for n, t in zip(names, totals, strict=True)},
        "oversubscription": oversubscription(cluster),
        "bisection_Bps": bisection_Bps(cluster),
        "diameter_hops": max((hops for hops, _ in ways), default=0),
        "latency_min_ps": min((latency_ps for _, latency_ps in ways), default=None),
        "latency_max_ps": max((latency_ps for _, latency_ps in ways), default=None),
        "quantities": [
            {"field": q.field, "value": q.value, "kind": q.kind, "source": q.source} for q in shape.quantities
        ],
    }


def _node_text(cluster: Cluster) -> str:
    dims, shape = cluster.dims, cluster.shape
    text = f"{plural(dims.nodes, 'node')} x {plural(dims.gpus_per_node, 'GPU')}"
    if dims.gpus_per_node > 1:
        inside = [("NVLink", shape.nvlink), ("PCIe", shape.pcie)]
        named = [f"{name} {format_bytes(spec.rate_Bps)}/s" for name, spec in inside if spec is not None]
        text += f" ({', '.join(named)})"
    last = dims.workers - (dims.nodes - 1) * dims.gpus_per_node
    if last == dims.gpus_per_node:
        return text
    return f"{text}, {last} in use" + (" on the last" if dims.nodes > 1 else "")


def first_line(cluster: Cluster) -> str:
    """Return one line: GPUs and links of a node, its network interfaces, the fabric, the longest latency."""
    dims = cluster.dims
    nics = f"{plural(dims.nics_per_node, 'NIC')} of {format_rate(cluster.shape.nic.rate_Bps)} a node"
    parts = [_node_text(cluster), nics, *cluster.layout.words()]
    if dims.workers > 1:
        longest_ps = max(latency_ps for _, latency_ps in _ways(cluster))
        parts.append(f"up to {format_seconds(longest_ps / PS_PER_S)} one way" if longest_ps else "no latency given")
    return f"{cluster.shape.name}: {', '.join(parts)}"
