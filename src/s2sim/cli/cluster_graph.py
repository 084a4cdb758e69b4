"""From a cluster to the plain values that its picture is drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.report.figures.cluster.graph import ClusterGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.cluster import Cluster

# What the switches of each level are called, by the number of levels.
_SWITCH_NAMES = {1: ("switch",), 2: ("leaf", "spine"), 3: ("leaf", "aggregation", "core")}
# Grids of so many dimensions can be drawn; stops of others stand on a circle.
_ARRANGEMENTS = {1: "ring", 2: "grid", 3: "grid"}


def _hints(cluster: Cluster, described: dict[str, Any]) -> dict[str, Any]:
    """Return what the graph alone does not tell: names of switches, and how those without levels stand."""
    kind = cluster.shape.kind
    if kind == "ring":
        return {"switch_names": ("",), "arrangement": "ring"}
    if kind == "torus":
        size = tuple(described["size"])
        return {"switch_names": ("",), "arrangement": _ARRANGEMENTS.get(len(size), "circle"), "grid": size}
    if kind == "dragonfly":
        return {"switch_names": ("router",), "arrangement": "circle", "between_groups": ("global",)}
    return {"switch_names": _SWITCH_NAMES.get(cluster.shape.levels, ())}


def _outer_ends(cluster: Cluster) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return where the links that a picture shows start and end, and which of all links these are.

    PCIe switches and host bridges are drawn as their node, so what lies between them is left out, and so are links
    from GPU to GPU.
    """
    fabric, vertex = cluster.fabric, cluster.layout.drawn_vertices()
    tail, head = vertex[fabric.tail], vertex[fabric.head]
    # NVSwitches of several nodes are no box of their own: their links end at the nodes.
    gpu_of_link = np.minimum(fabric.tail, fabric.head)
    for end in (tail, head):
        above = end >= cluster.layout.first_domain
        end[above] = fabric.gpus + cluster.layout.dims.node_set.node_of_gpu[gpu_of_link[above]]
    drawn = (tail != head) & (np.maximum(tail, head) >= fabric.gpus)
    return tail[drawn], head[drawn], drawn


def graph_of(cluster: Cluster, described: dict[str, Any]) -> ClusterGraph:
    """Return the graph of a cluster, and what `s2sim.topology.describe.describe` says of it, as a picture takes it."""
    fabric = cluster.fabric
    tail, head, drawn = _outer_ends(cluster)
    used, codes = np.unique(fabric.link_class[drawn], return_inverse=True)
    node_of_gpu, rank_of_gpu = np.empty((2, cluster.workers), np.int64)
    node_of_gpu[cluster.gpu_of_rank] = cluster.host_of_rank
    rank_of_gpu[cluster.gpu_of_rank] = np.arange(cluster.workers)
    return ClusterGraph(
        tail=tail,
        head=head,
        link_class=codes,
        class_names=tuple(fabric.class_names[code] for code in used),
        rate_Bps=fabric.rate_Bps[drawn],
        latency_ps=fabric.latency_ps[drawn],
        node_of_gpu=node_of_gpu,
        rank_of_gpu=rank_of_gpu,
        nodes=fabric.nodes,
        **_hints(cluster, described),
    )
