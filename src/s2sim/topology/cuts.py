"""How fast bytes can leave and enter groups of ranks: what bandwidth lower bounds are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.dimensions import Dimensions
    from s2sim.topology.shape import ClusterShape


@dataclass(frozen=True, slots=True, eq=False)
class CutFamily:
    """One partition of the ranks, by GPU, node, leaf or pod.

    Attributes
    ----------
    name : str
        ``"gpu"``, ``"node"``, ``"leaf"`` or ``"pod"``.
    group_of_rank : int64 array, shape (workers,)
        Which group each rank belongs to; every group has at least one.
    egress_Bps, ingress_Bps : float64 array, shape (groups,)
        The most that all links out of, or into, a group carry together: never too low, so that a bound made of it
        is never too high.
    """

    name: str
    group_of_rank: NDArray[np.int64]
    egress_Bps: NDArray[np.float64]
    ingress_Bps: NDArray[np.float64]

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.egress_Bps)


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """The families of a cluster, those with at least two groups, inner ones first."""

    families: tuple[CutFamily, ...]

    def __getitem__(self, name: str) -> CutFamily:
        """Return the family called ``name``; `KeyError` where the cluster has none."""
        for family in self.families:
            if family.name == name:
                return family
        raise KeyError(name)


def _members(owner: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    return np.bincount(owner, minlength=groups)


def _gpu_rates(shape: ClusterShape, dims: Dimensions, gpus_in_node: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what leaves each GPU: to the others of its node, and its network interface in full."""
    has_peer = (gpus_in_node > 1)[np.arange(dims.workers) // dims.gpus_per_node]
    network_Bps = shape.host_link.rate_Bps if dims.nodes > 1 else 0.0
    if shape.pcie is None:
        inside_Bps = shape.nvlink.rate_Bps if shape.nvlink is not None else 0.0
        return np.where(has_peer, inside_Bps, 0.0) + network_Bps
    network_Bps = min(network_Bps, shape.pcie.rate_Bps)
    if shape.nvlink is not None:
        return np.where(has_peer, shape.nvlink.rate_Bps, 0.0) + network_Bps
    return np.where(has_peer, shape.pcie.rate_Bps, network_Bps)


def _node_rates(shape: ClusterShape, dims: Dimensions, gpus_in_node: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what leaves each node: its interfaces, unless its GPUs' ports or the ring's two links carry less.

    A partial node uses the interfaces of the GPUs that it has.
    """
    nics_in_use = (gpus_in_node - 1) * dims.nics_per_node // dims.gpus_per_node + 1
    rates: NDArray[np.float64] = nics_in_use * np.float64(shape.host_link.rate_Bps)
    if shape.pcie is not None:
        rates = np.minimum(rates, gpus_in_node * shape.pcie.rate_Bps)
    return np.minimum(rates, 2 * shape.link.rate_Bps) if shape.kind == "ring" else rates


def find_cuts(shape: ClusterShape, dims: Dimensions, gpu_of_rank: NDArray[np.int64]) -> Cuts:
    """Return every family of the cluster, with the capacities of full-duplex links: as much in as out."""
    node_of_gpu = np.arange(dims.workers, dtype=np.int64) // dims.gpus_per_node
    leaf_of_node = np.arange(dims.nodes, dtype=np.int64) // dims.hosts_per_leaf
    pod_of_leaf = np.arange(dims.leaves, dtype=np.int64) // dims.leaves_per_pod
    gpus_in_node = _members(node_of_gpu, dims.nodes)
    node_Bps = _node_rates(shape, dims, gpus_in_node)
    leaf_Bps = np.minimum(
        np.bincount(leaf_of_node, weights=node_Bps, minlength=dims.leaves), dims.uplinks_per_leaf * shape.link.rate_Bps
    )
    pod_Bps = np.minimum(
        np.bincount(pod_of_leaf, weights=leaf_Bps, minlength=dims.pods), dims.cores * shape.link.rate_Bps
    )
    gpu_Bps = _gpu_rates(shape, dims, gpus_in_node)
    node_of_rank = node_of_gpu[gpu_of_rank]
    leaf_of_rank = leaf_of_node[node_of_rank]
    families = (
        CutFamily("gpu", gpu_of_rank, gpu_Bps, gpu_Bps),
        CutFamily("node", node_of_rank, node_Bps, node_Bps),
        CutFamily("leaf", leaf_of_rank, leaf_Bps, leaf_Bps),
        CutFamily("pod", pod_of_leaf[leaf_of_rank], pod_Bps, pod_Bps),
    )
    return Cuts(tuple(family for family in families if family.groups > 1))
