"""The tree over which switches reduce and multicast (NVIDIA SHARP, NVLink SHARP)."""

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.errors import TopologyError
from s2sim.topology.graph import Routes
from s2sim.topology.routing import Router


def reduction_tree(router: Router, gpu_of_rank: Ints) -> Routes:
    """Return one transfer that crosses every link from a rank up to the root, and every link down again.

    Each link carries the whole buffer once, summed on the way up and copied on the way down (Graham et al., "Scalable
    Hierarchical Aggregation Protocol (SHArP)", COM-HPC 2016). The root is the first switch of the lowest level that is
    above all ranks, or the NVSwitch of one node. GPUs with an NVSwitch are summed by it first; each of their interfaces
    then has its own tree with an even part of the buffer. Others that share an interface are summed before it. Latency
    is that of the slowest link of each level up and down.

    With an NVSwitch one of n GPUs reads the sum of a part, for which the switch reads that part of all n, and writes it
    to all: (n+1)/n of the buffer leaves every GPU, and arrives at it.

    `TopologyError` for one rank, one node without NVSwitch, GPUs of an NVLink mesh that share an interface, and ranks
    without a common switch.
    """
    layout, fabric = router.layout, router.fabric
    nodes, name, gpus = layout.node_set, layout.shape.name, np.sort(gpu_of_rank)
    if len(gpus) < 2:
        raise TopologyError(f"an in-network reduction of {len(gpus)} rank on {name} was asked for: at least 2 can sum")
    switched = gpus[nodes.nvlink_of_gpu[gpus] >= 0]
    if len(np.unique(nodes.domain_of_gpu[gpus])) == 1:
        if not len(switched):
            missing = "[nvlink]" if layout.shape.nvlink is None else "NVSwitch"
            raise TopologyError(
                f"an in-network reduction was asked for on {name} inside one node without {missing}, where no switch "
                "can sum: ask for more workers"
            )
        return _with_nvswitches(router, gpus, np.zeros(len(fabric)), 0)
    if nodes.ports_per_gpu > 1:
        raise TopologyError(
            f"an in-network reduction was asked for on {name}, where a GPU spreads messages over {nodes.ports_per_gpu} "
            "interfaces, of which no switch joins the parts: write as many nic.count as GPUs, with the rates together"
        )
    if len(switched) == len(gpus):
        return _tree_per_interface(router, gpus)
    ports = np.unique(nodes.port_of_gpu[gpus])
    if "nvlink.mesh" in fabric.blocks and len(ports) < len(gpus):
        raise TopologyError(
            f"an in-network reduction was asked for on {name}, where GPUs of an NVLink mesh share an interface and "
            "no switch sums them: write as many nic.count as GPUs"
        )
    up, down = _fabric_levels(router, gpus)
    if len(switched) and len(ports) < len(gpus):
        up.insert(0, _nvswitch_links(router, "nvlink.out", switched))
        down.append(_nvswitch_links(router, "nvlink.in", switched))
    links = np.concatenate([*up, *down])
    return _single_transfer(links, np.ones(len(links)), _slowest_latency_ps(router, [*up, *down]))


def _tree_per_interface(router: Router, gpus: Ints) -> Routes:
    """Return the transfer of GPUs that NVSwitches sum, and a tree over nodes for each interface with an even part."""
    nodes = router.layout.node_set
    # One GPU for each interface, and the number of that interface in its node.
    places = np.stack([nodes.domain_of_gpu[gpus], nodes.port_of_gpu[gpus]])
    (domain, _), first = np.unique(places, axis=1, return_index=True)
    _, begin, interfaces = np.unique(domain, return_index=True, return_counts=True)
    number, trees = np.arange(len(first)) - np.repeat(begin, interfaces), int(interfaces.min())
    weights = np.zeros(len(router.fabric))
    over_fabric_ps = 0
    for tree in range(trees):
        up, down = _fabric_levels(router, gpus[first[number == tree]])
        for level in (*up, *down):
            weights[level] += 1 / trees
        over_fabric_ps = max(over_fabric_ps, _slowest_latency_ps(router, [*up, *down]))
    return _with_nvswitches(router, gpus, weights, over_fabric_ps)


def _fabric_levels(router: Router, gpus: Ints) -> tuple[list[Ints], list[Ints]]:
    """Return the links of each level from GPUs through their interfaces up to the root, and down again."""
    blocks, ports = router.fabric.blocks, np.unique(router.layout.node_set.port_of_gpu[gpus])
    levels = router.layout.reduction(ports)
    to_ports, from_ports = (
        [np.unique(stage.links) for stage in stages if len(stage.links)]
        for stages in (router.to_ports(gpus), router.to_ports(gpus, back=True))
    )
    up = [blocks[key].start + index for key, _, index in levels]
    return [*to_ports, *up], [*(blocks[key].start + index for _, key, index in reversed(levels)), *from_ports]


def reduction_over_nodes(router: Router, gpu_of_rank: Ints, legs: Routes, share: float, depth: int) -> Routes:
    """Return one transfer that NVSwitches sum and copy inside nodes, and GPUs pass on between them, all concurrently.

    ``legs`` are the routes between GPUs of different nodes, each with a ``share`` of the buffer, and ``depth`` the
    number of legs in series. `TopologyError` if a node has several of the GPUs and no NVSwitch.
    """
    weights = np.zeros(len(router.fabric))
    np.add.at(weights, legs.links, legs.weights * share)
    return _with_nvswitches(router, np.sort(gpu_of_rank), weights, depth * int(legs.latency_ps.max(initial=0)))


def _with_nvswitches(router: Router, gpus: Ints, weights: Floats, latency_ps: int) -> Routes:
    """Return one transfer over the links of the graph with these weights, and NVSwitches that sum GPUs of a domain."""
    nodes = router.layout.node_set
    domain = nodes.domain_of_gpu[gpus]
    members = np.bincount(domain)[domain]
    inside, members = gpus[members > 1], members[members > 1]
    if (nodes.nvlink_of_gpu[inside] < 0).any():
        raise TopologyError(
            f"a reduction inside nodes was asked for on {router.layout.shape.name}, where no NVSwitch can sum"
        )
    ports = [_nvswitch_links(router, key, inside) for key in ("nvlink.out", "nvlink.in")] if len(inside) else []
    for links in ports:
        weights[links] = (members + 1) / members
    links = np.flatnonzero(weights)
    return _single_transfer(links, weights[links], latency_ps + _slowest_latency_ps(router, ports))


def _single_transfer(links: Ints, weights: Floats, latency_ps: int) -> Routes:
    return Routes(np.array([0, len(links)], np.int64), links, weights, np.array([latency_ps], np.int64))


def _slowest_latency_ps(router: Router, levels: list[Ints]) -> int:
    return sum(int(router.fabric.latency_ps[level].max()) for level in levels)


def _nvswitch_links(router: Router, key: str, gpus: Ints) -> Ints:
    return router.fabric.blocks[key].start + router.layout.node_set.nvlink_of_gpu[gpus]
