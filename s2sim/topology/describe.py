"""Description of a cluster, as text and as plain values."""

from dataclasses import asdict
from typing import Any

import numpy as np

from s2sim.arrays import Ints
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import join_stages
from s2sim.topology.kinds import KINDS
from s2sim.topology.layout import find_capacity, half_Bps, node_bisection_Bps
from s2sim.topology.shape import MAX_MESHED, NodeSpec
from s2sim.units import PS_PER_S, format_bytes, format_number_of, format_rate, format_seconds


def oversubscription(cluster: Cluster) -> float | None:
    """Return the worst ratio over the switch levels of full hosts' rate to uplinks' rate; None without levels."""
    return cluster.layout.oversubscription(find_capacity(cluster.layout, cluster.fabric, "out"))


def bisection_Bps(cluster: Cluster) -> float | None:
    """Return the rate, in the weaker direction, across the cut that halves the cluster; None for one GPU.

    Nodes are halved by the kind's rule, GPUs if there is one node; with an odd number the smaller half counts.
    """
    layout = cluster.layout
    if layout.workers == 1:
        return None
    if layout.node_set.domains == 1:
        return min(node_bisection_Bps(layout, cluster.fabric, way) for way in ("out", "in"))
    capacities = [find_capacity(layout, cluster.fabric, way) for way in ("out", "in")]
    if layout.node_set.domains < layout.nodes:
        return min(min(layout.bisection_Bps(each), half_Bps(each.domain_Bps)) for each in capacities)
    return min(map(layout.bisection_Bps, capacities))


def _gpu_pairs(gpus: int) -> Ints:
    """Return ordered pairs of GPUs of a node, shape (2, pairs); of many GPUs only those with the first and last."""
    if gpus <= MAX_MESHED:
        return np.stack(np.nonzero(~np.eye(gpus, dtype=np.bool_)))
    number = np.arange(gpus)
    others = [np.stack([number, np.full(gpus, end)])[:, number != end] for end in (0, gpus - 1)]
    return np.concatenate([*others, *(pair[::-1] for pair in others)], axis=1)


def _extreme_routes(cluster: Cluster) -> list[tuple[int, int]]:
    """Return (links, latency in picoseconds) of routes between GPUs that include the shortest and the longest."""
    nodes = cluster.layout.node_set
    if cluster.shape.routing == "explicit":
        routes = cluster.routes(*np.nonzero(~np.eye(cluster.workers, dtype=np.bool_)))
        return list(zip(np.diff(routes.offsets).tolist(), routes.latency_ps.tolist(), strict=True))
    # Inside NVLink domains: of one of each kind and fill, or of all if the file names links.
    in_use = np.bincount(nodes.domain_of_gpu)
    first_node = np.searchsorted(nodes.domain_of_node, np.arange(nodes.domains))
    _, chosen = np.unique(np.stack([nodes.spec[first_node], in_use]), axis=1, return_index=True)
    if cluster.shape.named_links:
        chosen = np.arange(nodes.domains)
    first_gpu = nodes.first_gpu[first_node]
    pairs = [first_gpu[domain] + _gpu_pairs(int(in_use[domain])) for domain in np.sort(chosen)]
    source, target = np.concatenate(pairs, axis=1)
    inside = join_stages(cluster.router.stages(source, target), len(source))
    ways = list(zip(np.diff(inside.offsets).tolist(), inside.latency_ps.tolist(), strict=True))
    if nodes.domains > 1:
        gpu = np.arange(cluster.workers)
        ends = [join_stages(cluster.router.to_ports(gpu, back=back), len(gpu)) for back in (False, True)]
        link_ps = cluster.fabric.latency_ps[cluster.layout.switch_links(cluster.fabric)]
        for hops, pick in zip(cluster.layout.hops(), (np.min, np.max), strict=True):
            ends_ps = sum(int(pick(way.latency_ps)) for way in ends)
            links = sum(int(pick(np.diff(way.offsets))) for way in ends)
            ways.append((links + hops, ends_ps + hops * (int(pick(link_ps)) if len(link_ps) else 0)))
    return ways


def describe_cluster(cluster: Cluster) -> dict[str, Any]:
    """Return counts, rates (bytes per second) and latencies (picoseconds) of all routes, as plain values."""
    layout, shape = cluster.layout, cluster.shape
    ways = _extreme_routes(cluster)
    names, totals = np.unique(cluster.fabric.link_class, return_counts=True)
    return {
        **{name: getattr(shape, name) for name in ("name", "description", "gpu", "library", "kind")},
        "workers": cluster.workers,
        "placement": cluster.placement,
        "nodes": layout.nodes,
        "gpus_per_node": shape.gpus_per_node,
        "nvlink_rate_Bps": next(filter(None, map(_nvlink_Bps, shape.nodes)), None),
        "pcie_rate_Bps": shape.pcie.rate_Bps if shape.pcie else None,
        "nics_per_node": layout.node_set.most_nics,
        "nic_rate_Bps": shape.nic.rate_Bps,
        "host_link_rate_Bps": float(cluster.fabric.rate_Bps[cluster.fabric.blocks["nic.out"].start]),
        "link_rate_Bps": shape.link.rate_Bps,
        "routing": shape.routing if KINDS[shape.kind].routings else None,
        "levels": shape.levels,
        **dict.fromkeys(("leaves", "nodes_per_leaf", "pods", "spines", "cores"), 0),
        **layout.counts(),
        "links": len(cluster.fabric),
        "links_by_class": {cluster.fabric.class_names[n]: int(t) for n, t in zip(names, totals, strict=True)},
        "oversubscription": oversubscription(cluster),
        "bisection_Bps": bisection_Bps(cluster),
        "diameter_hops": max((hops for hops, _ in ways), default=0),
        "latency_min_ps": min((latency_ps for _, latency_ps in ways), default=None),
        "latency_max_ps": max((latency_ps for _, latency_ps in ways), default=None),
        "price": None if shape.price is None else asdict(shape.price.cost(cluster.workers, layout.nodes)),
        "quantities": list(map(asdict, shape.quantities)),
    }


def _nvlink_Bps(node: NodeSpec) -> float | None:
    """Return the rate of NVLink out of a GPU, bytes per second; without a switch of the GPU with most links."""
    if node.nvlink is None:
        return None
    links = [sum(count for *ends, count in node.mesh or () if gpu in ends) for gpu in range(node.gpus)]
    return node.nvlink.rate_Bps * max(1, *links)


def _node_text(count: int, node: NodeSpec) -> str:
    text = f"{format_number_of(count, 'node')} x {format_number_of(node.gpus, 'GPU')}"
    if node.gpus * node.domain_nodes == 1:
        return text
    inside = []
    if node.nvlink is not None:
        inside.append(
            f"NVLink {format_bytes(node.nvlink.rate_Bps)}/s"
            + (" a link, no switch" if node.mesh is not None else "")
            + (f" over {format_number_of(node.domain_nodes, 'node')}" if node.domain_nodes > 1 else "")
        )
    if node.pcie is not None:
        below = f", {node.gpus_per_switch} a switch" if node.gpus_per_switch else ""
        below += f", {node.sockets} sockets" if node.sockets > 1 else ""
        below += ", through host memory" if not node.peer_to_peer else ""
        inside.append(f"PCIe {format_bytes(node.pcie.rate_Bps)}/s{below}")
    return f"{text} ({', '.join(inside)})"


def summary_line(cluster: Cluster) -> str:
    """Return one line: GPUs and links of a node, its interfaces, the fabric, the longest latency, what is assumed."""
    nodes = cluster.layout.node_set
    used = [(nodes.specs[kind], count) for kind, count in zip(*np.unique(nodes.spec, return_counts=True), strict=True)]
    parts = [" + ".join(_node_text(count, node) for node, count in used)]
    if (last := int(nodes.gpus_in_use[-1])) < nodes.specs[nodes.spec[-1]].gpus:
        parts.append(f"{last} in use{' on the last' if nodes.count > 1 else ''}")
    nics = (f"{format_number_of(node.nics, 'NIC')} of {format_rate(node.nic.rate_Bps)}" for node, _ in used)
    parts += [f"{' or '.join(dict.fromkeys(nics))} a node", *cluster.layout.describe(oversubscription(cluster))]
    if cluster.shape.named_links:
        parts.append(f"{format_number_of(len(cluster.shape.named_links), 'exception')} among the links")
    if cluster.workers > 1:
        longest_ps = max(latency_ps for _, latency_ps in _extreme_routes(cluster))
        parts.append(f"up to {format_seconds(longest_ps / PS_PER_S)} one way" if longest_ps else "no latency given")
    assumed = cluster.assumed_fields
    note = f"; assumed: {', '.join(assumed)}" if assumed else ""
    return f"{cluster.shape.name}: {', '.join(parts)}{note}"
