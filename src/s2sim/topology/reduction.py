"""The tree over which switches reduce and multicast (NVIDIA SHARP, NVLink SHARP)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import TopologyError
from s2sim.topology.node import port_of_gpu
from s2sim.topology.routes import Routes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.fabric import Fabric
    from s2sim.topology.kinds.layout import Layout


def reduction_tree(layout: Layout, fabric: Fabric, gpu_of_rank: NDArray[np.int64]) -> Routes:
    """Return one transfer that crosses every link from a rank up to the root, and every link down again.

    Each link carries the whole buffer once, because whatever meets is summed on the way up and copied on the way down
    (Graham et al., "Scalable Hierarchical Aggregation Protocol (SHArP)", COM-HPC 2016). The root is the first switch
    of the lowest level that is above all ranks, whatever the routing; inside one node it is the NVSwitch. GPUs that
    share a network interface are summed before it, over NVLink where they have it. Latency is that of the way up and
    down; all ranks are equally deep.

    Parameters
    ----------
    layout : Layout
        What joins the nodes.
    fabric : Fabric
        The links.
    gpu_of_rank : int64 array, shape (workers,)
        Where the ranks are; nodes without ranks have no part.

    Raises
    ------
    TopologyError
        For one rank, for one node without NVLink, and where no switch is above all ranks.
    """
    name, gpus = layout.shape.name, np.sort(gpu_of_rank)
    if len(gpus) < 2:
        raise TopologyError(f"an in-network reduction of {len(gpus)} rank on {name} was asked for: at least 2 can sum")
    nvlink = ("nvlink.out", "nvlink.in", gpus)
    if len(np.unique(gpus // layout.dims.gpus_per_node)) == 1:
        if "nvlink.out" not in fabric.blocks:
            raise TopologyError(
                f"an in-network reduction was asked for on {name} inside one node without [nvlink], where no switch "
                "can sum: ask for more workers"
            )
        levels = [nvlink]
    else:
        port = port_of_gpu(layout.dims, gpus)
        ports = np.unique(port)
        levels = [("nic.out", "nic.in", ports), *layout.reduction(ports)]
        if "pcie.out" in fabric.blocks:
            levels.insert(0, ("pcie.out", "pcie.in", gpus))
        if "nvlink.out" in fabric.blocks and len(ports) < len(gpus):
            levels.insert(0, nvlink)
    crossed = [(fabric.blocks[up], index) for up, _, index in levels]
    crossed += [(fabric.blocks[down], index) for _, down, index in reversed(levels)]
    links = np.concatenate([block.start + index for block, index in crossed])
    return Routes(
        offsets=np.array([0, len(links)], np.int64),
        links=links,
        weights=np.ones(len(links)),
        latency_ps=np.array([sum(block.spec.latency_ps for block, _ in crossed)], np.int64),
    )
