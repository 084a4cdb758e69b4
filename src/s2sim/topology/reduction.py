"""The tree over which switches reduce and multicast (NVIDIA SHARP, NVLink SHARP)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import TopologyError
from s2sim.topology.routes import Routes

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints
    from s2sim.topology.routes import Stage
    from s2sim.topology.routing import Router


def reduction_tree(router: Router, gpu_of_rank: Ints) -> Routes:
    """Return one transfer that crosses every link from a rank up to the root, and every link down again.

    Each link carries the whole buffer once, because whatever meets is summed on the way up and copied on the way down
    (Graham et al., "Scalable Hierarchical Aggregation Protocol (SHArP)", COM-HPC 2016). The root is the first switch
    of the lowest level that is above all ranks, whatever the routing; inside one node it is the NVSwitch. GPUs that
    share a network interface are summed before it, over an NVSwitch where they have one. Latency is that of the slowest
    link of each level on the way up and down.

    An NVSwitch does not sum what GPUs push up to it: one of n GPUs reads the sum of a part, for which the switch reads
    that part of all n, and writes it to all. So (n+1)/n of the buffer leaves every GPU, and as much arrives.

    `TopologyError` for one rank, for one node without NVSwitch, for GPUs of an NVLink mesh that share an interface, and
    where no switch is above all ranks.
    """
    layout, fabric = router.layout, router.fabric
    nodes, name, gpus = layout.dims.node_set, layout.shape.name, np.sort(gpu_of_rank)
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
        up, down = [_ports(router, "nvlink.out", switched)], [_ports(router, "nvlink.in", switched)]
        links = np.concatenate([*up, *down])
        return _one(links, np.full(len(links), (len(gpus) + 1) / len(gpus)), _slowest_ps(router, [*up, *down]))
    if nodes.ports_per_gpu > 1:
        raise TopologyError(
            f"an in-network reduction was asked for on {name}, where a GPU spreads messages over {nodes.ports_per_gpu} "
            "interfaces, of which no switch joins the parts: write as many nic.count as GPUs, with the rates together"
        )
    ports = np.unique(nodes.port_of_gpu[gpus])
    if "nvlink.mesh" in fabric.blocks and len(ports) < len(gpus):
        raise TopologyError(
            f"an in-network reduction was asked for on {name}, where GPUs of an NVLink mesh share an interface and "
            "no switch sums them: write as many nic.count as GPUs"
        )
    fabric_levels = layout.reduction(ports)
    up = [*_crossed(router.to_ports(gpus)), *(fabric.blocks[key].start + index for key, _, index in fabric_levels)]
    down = [
        *(fabric.blocks[key].start + index for _, key, index in reversed(fabric_levels)),
        *_crossed(router.from_ports(gpus)),
    ]
    if len(switched) and len(ports) < len(gpus):
        up.insert(0, _ports(router, "nvlink.out", switched))
        down.append(_ports(router, "nvlink.in", switched))
    links = np.concatenate([*up, *down])
    return _one(links, np.ones(len(links)), _slowest_ps(router, [*up, *down]))


def reduction_over_nodes(router: Router, gpu_of_rank: Ints, legs: Routes, share: float, depth: int) -> Routes:
    """Return one transfer that NVSwitches sum and copy inside nodes, and GPUs pass on between them.

    The NVSwitch of each node sums as in `reduction_tree`; ``legs`` are the routes of what GPUs of unlike nodes send
    each other, each a ``share`` of the buffer, and ``depth`` how many of them follow each other. All of it is in flight
    at once, piece by piece. `TopologyError` where a node has several of the GPUs and no NVSwitch.
    """
    nodes, fabric, gpus = router.layout.dims.node_set, router.fabric, np.sort(gpu_of_rank)
    held = np.bincount(nodes.domain_of_gpu[gpus])
    members = np.repeat(held, held)
    inside, members = gpus[members > 1], members[members > 1]
    if (nodes.nvlink_of_gpu[inside] < 0).any():
        raise TopologyError(
            f"a reduction inside nodes was asked for on {router.layout.shape.name}, where no NVSwitch can sum"
        )
    ports = [_ports(router, key, inside) for key in ("nvlink.out", "nvlink.in")] if len(inside) else []
    weights = np.zeros(len(fabric))
    for links in ports:
        weights[links] = (members + 1) / members
    np.add.at(weights, legs.links, legs.weights * share)
    crossed = np.flatnonzero(weights)
    latency_ps = _slowest_ps(router, ports) + depth * int(legs.latency_ps.max(initial=0))
    return _one(crossed, weights[crossed], latency_ps)


def _one(links: Ints, weights: Floats, latency_ps: int) -> Routes:
    """Return a single transfer over some links."""
    return Routes(np.array([0, len(links)], np.int64), links, weights, np.array([latency_ps], np.int64))


def _slowest_ps(router: Router, levels: list[Ints]) -> int:
    """Return the latencies of the slowest link of each level together."""
    return sum(int(router.fabric.latency_ps[level].max()) for level in levels)


def _ports(router: Router, key: str, gpus: Ints) -> Ints:
    """Return the links of GPUs to their NVSwitch."""
    links: Ints = router.fabric.blocks[key].start + router.layout.dims.node_set.nvlink_of_gpu[gpus]
    return links


def _crossed(stages: list[Stage]) -> list[Ints]:
    """Return the links of each stage once, but for empty stages."""
    return [np.unique(stage.links) for stage in stages if len(stage.links)]
