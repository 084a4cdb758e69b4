"""A cluster in words and plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.topology.cuts import find_cuts
from s2sim.topology.routes import count_hops, join_stages
from s2sim.units import PS_PER_S, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.cluster import Cluster


def oversubscription(cluster: Cluster) -> float:
    """Return the worst ratio, over the levels of a tree, of what full hosts can send to what leads upwards.

    1 or less is non-blocking; a fabric without uplinks has 1.
    """
    dims, shape = cluster.dims, cluster.shape
    if not dims.uplinks_per_leaf:
        return 1.0
    hosts_Bps = dims.ports_per_leaf * shape.host_link.rate_Bps
    ratio = hosts_Bps / (dims.uplinks_per_leaf * shape.link.rate_Bps)
    if not dims.uplinks_per_aggregation:
        return ratio
    return max(ratio, dims.leaves_per_pod * hosts_Bps / (dims.cores * shape.link.rate_Bps))


def bisection_Bps(cluster: Cluster) -> float | None:
    """Return what crosses, one way, the cut that halves the cluster where it is weakest; None for one GPU.

    Leaves are halved in order (whole pods stay together where there are several), nodes where there is one leaf, GPUs
    where there is one node; with an odd number the smaller half counts.
    """
    dims, shape = cluster.dims, cluster.shape
    cuts = {family.name: family.egress_Bps for family in find_cuts(shape, dims, cluster.gpu_of_rank).families}
    if "leaf" in cuts:
        leaf_Bps = cuts["leaf"]
        half = dims.leaves // 2
        # A partial leaf or pod is the last, so the weaker half may lie at either end.
        return min(_leaves_Bps(cluster, range(half), leaf_Bps), _leaves_Bps(cluster, range(-half, 0), leaf_Bps))
    if "node" in cuts:
        half_Bps = float(np.sort(cuts["node"])[: dims.nodes // 2].sum())
        return min(half_Bps, 2 * shape.link.rate_Bps) if shape.kind == "ring" else half_Bps
    if "gpu" in cuts:
        return float(cuts["gpu"][: dims.workers // 2].sum())
    return None


def _leaves_Bps(cluster: Cluster, leaves: range, leaf_Bps: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Return what leaves a set of leaves: whole pods through their cores, the others through their uplinks."""
    dims = cluster.dims
    chosen = np.arange(dims.leaves)[list(leaves)]
    pod = chosen // dims.leaves_per_pod
    total_Bps = 0.0
    for number in np.unique(pod):
        of_pod = chosen[pod == number]
        up_Bps = float(leaf_Bps[of_pod].sum())
        size = min(dims.leaves_per_pod, dims.leaves - number * dims.leaves_per_pod)
        whole = len(of_pod) == size and dims.pods > 1
        total_Bps += min(up_Bps, dims.cores * cluster.shape.link.rate_Bps) if whole else up_Bps
    return total_Bps


def _latencies_ps(cluster: Cluster) -> NDArray[np.int64]:
    """Return the latencies from the first GPU to all others, int64 of shape (workers - 1,).

    Trees and rings look alike from the first GPU as from any other full place: the nearest and the farthest show.
    """
    others = np.arange(1, cluster.workers, dtype=np.int64)
    return join_stages(cluster.router.stages(np.zeros_like(others), others), len(others)).latency_ps


def describe(cluster: Cluster) -> dict[str, Any]:
    """Return counts, rates and latencies as plain values; rates in bytes a second, latencies in picoseconds."""
    dims, shape = cluster.dims, cluster.shape
    others = np.arange(1, dims.workers, dtype=np.int64)
    hops = count_hops(cluster.router.stages(np.zeros_like(others), others), len(others))
    latency_ps = _latencies_ps(cluster)
    names, totals = np.unique(cluster.fabric.link_class, return_counts=True)
    tree = shape.levels > 0
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
        "routing": shape.routing if shape.levels > 1 else None,
        "levels": shape.levels,
        "leaves": dims.leaves if tree else 0,
        "nodes_per_leaf": min(dims.hosts_per_leaf, dims.nodes) if tree else 0,
        "pods": dims.pods if shape.levels == 3 else 0,
        "spines": dims.aggregations,
        "cores": dims.cores,
        "links": len(cluster.fabric),
        "links_by_class": {cluster.fabric.class_names[n]: int(t) for n, t in zip(names, totals, strict=True)},
        "oversubscription": oversubscription(cluster) if tree else None,
        "bisection_Bps": bisection_Bps(cluster),
        "diameter_hops": int(hops.max(initial=0)),
        "latency_min_ps": int(latency_ps.min()) if len(others) else None,
        "latency_max_ps": int(latency_ps.max()) if len(others) else None,
        "quantities": [
            {"field": q.field, "value": q.value, "kind": q.kind, "source": q.source} for q in shape.quantities
        ],
    }


def _plural(number: int, word: str, many: str = "") -> str:
    return f"{number} {word}" if number == 1 else f"{number} {many or word + 's'}"


def _node_text(cluster: Cluster) -> str:
    dims, shape = cluster.dims, cluster.shape
    text = f"{_plural(dims.nodes, 'node')} x {_plural(dims.gpus_per_node, 'GPU')}"
    if dims.gpus_per_node > 1:
        inside = [("NVLink", shape.nvlink), ("PCIe", shape.pcie)]
        named = [f"{name} {format_bytes(spec.rate_Bps)}/s" for name, spec in inside if spec is not None]
        text += f" ({', '.join(named)})"
    last = dims.workers - (dims.nodes - 1) * dims.gpus_per_node
    if last == dims.gpus_per_node:
        return text
    return f"{text}, {last} in use" + (" on the last" if dims.nodes > 1 else "")


def _fabric_text(cluster: Cluster) -> list[str]:
    dims, shape = cluster.dims, cluster.shape
    if shape.kind == "ring":
        return [f"ring links of {format_rate(shape.link.rate_Bps)}"]
    if shape.kind == "single-switch":
        return ["1 switch"]
    if dims.leaves == 1:
        return [f"all on 1 leaf of {_plural(dims.hosts_per_leaf, 'node')}"]
    parts = [f"{shape.levels} levels", f"{dims.leaves} leaves x {_plural(dims.hosts_per_leaf, 'node')}"]
    if shape.levels == 3:
        parts.append(f"{_plural(dims.pods, 'pod')} x {_plural(dims.leaves_per_pod, 'leaf', 'leaves')}")
    ratio = oversubscription(cluster)
    blocking = "non-blocking" if ratio <= 1 else f"{ratio:.3g}:1 oversubscribed"
    return [*parts, blocking, f"{shape.routing} routing"]


def first_line(cluster: Cluster) -> str:
    """Return one line: GPUs and links of a node, its network interfaces, the fabric, the longest latency."""
    dims = cluster.dims
    nics = f"{_plural(dims.nics_per_node, 'NIC')} of {format_rate(cluster.shape.nic.rate_Bps)} a node"
    parts = [_node_text(cluster), nics, *_fabric_text(cluster)]
    if dims.workers > 1:
        longest_ps = int(_latencies_ps(cluster).max())
        parts.append(f"up to {format_seconds(longest_ps / PS_PER_S)} one way" if longest_ps else "no latency given")
    return f"{cluster.shape.name}: {', '.join(parts)}"
