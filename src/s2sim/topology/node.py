"""What is inside every node, whatever joins them: GPUs, their ports, and network interfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.topology.fabric import LinkPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.topology.kinds.layout import Dimensions, Indices, Layout, Rates
    from s2sim.topology.shape import LinkSpec

    Ends = Callable[[Indices], tuple[Indices, Indices]]


def port_of_gpu(dims: Dimensions, gpu: Indices) -> Indices:
    """Return the network interface of each GPU, numbered node after node: local GPU g has g * interfaces // GPUs."""
    node, local = np.divmod(gpu, dims.gpus_per_node)
    port: Indices = node * dims.nics_per_node + local * dims.nics_per_node // dims.gpus_per_node
    return port


def node_parts(layout: Layout) -> list[LinkPart]:
    """Return the links between GPUs, nodes and the switches that their interfaces join, each kind out and in."""
    shape, dims = layout.shape, layout.dims

    def to_node(gpu: Indices) -> tuple[Indices, Indices]:
        return gpu, dims.workers + gpu // dims.gpus_per_node

    def to_switch(port: Indices) -> tuple[Indices, Indices]:
        return dims.workers + port // dims.nics_per_node, layout.first_switch + layout.switch_of_port(port)

    parts = []
    if shape.nvlink is not None and shape.gpus_per_node > 1:
        parts += _both_ways("nvlink", "gpu", shape.nvlink, dims.gpus_per_node, dims.workers, to_node)
    if shape.pcie is not None:
        parts += _both_ways("pcie", "gpu", shape.pcie, dims.gpus_per_node, dims.workers, to_node)
    return [*parts, *_both_ways("nic", "", shape.host_link, dims.nics_per_node, dims.ports, to_switch)]


def _both_ways(name: str, owner: str, spec: LinkSpec, radix: int, count: int, ends: Ends) -> list[LinkPart]:
    """Return links out of nodes (or their GPUs) and the same links back in."""
    template = f"node{{}}.{owner}{{}}.{name}" if owner else f"node{{}}.{name}{{}}"
    return [
        LinkPart(f"{name}.out", name, spec, f"{template}.out", (radix,), count, ends),
        LinkPart(f"{name}.in", name, spec, f"{template}.in", (radix,), count, ends).turned(),
    ]


def gpus_in_nodes(dims: Dimensions) -> Indices:
    """Return how many GPUs of each node are in use, shape (nodes,)."""
    counts = np.full(dims.nodes, dims.gpus_per_node, np.int64)
    counts[-1] = dims.workers - (dims.nodes - 1) * dims.gpus_per_node
    return counts


def gpu_rates(layout: Layout) -> Rates:
    """Return what leaves each GPU: to the others of its node, and its network interface in full."""
    shape, dims = layout.shape, layout.dims
    has_peer = (gpus_in_nodes(dims) > 1)[np.arange(dims.workers) // dims.gpus_per_node]
    network_Bps = shape.host_link.rate_Bps if dims.nodes > 1 else 0.0
    if shape.pcie is None:
        inside_Bps = shape.nvlink.rate_Bps if shape.nvlink is not None else 0.0
        return np.where(has_peer, inside_Bps, 0.0) + network_Bps
    network_Bps = min(network_Bps, shape.pcie.rate_Bps)
    if shape.nvlink is not None:
        return np.where(has_peer, shape.nvlink.rate_Bps, 0.0) + network_Bps
    return np.where(has_peer, shape.pcie.rate_Bps, network_Bps)


def node_rates(layout: Layout) -> Rates:
    """Return what leaves each node: its interfaces, unless its GPUs' ports or the links of its stop carry less.

    A partial node uses the interfaces of the GPUs that it has.
    """
    shape, dims = layout.shape, layout.dims
    gpus_in_node = gpus_in_nodes(dims)
    nics_in_use = (gpus_in_node - 1) * dims.nics_per_node // dims.gpus_per_node + 1
    rates: Rates = nics_in_use * np.float64(shape.host_link.rate_Bps)
    if shape.pcie is not None:
        rates = np.minimum(rates, gpus_in_node * shape.pcie.rate_Bps)
    return np.minimum(rates, layout.node_limit_Bps)
