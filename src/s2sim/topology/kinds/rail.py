"""Rail-optimised fabrics: interface i of every node of a group goes to the group's leaf switch i, its rail.

GPUs with the same number in their nodes, and so on the same rail, are two links apart within a group. Traffic between
different rails, of one group or of two, crosses the spines: it does not first move over NVLink to a GPU on the
target's rail, as NCCL does with PXN (PCI x NVLink), so all-to-all traffic between rails is slower here than with it.

The shape is that of the compute fabric of NVIDIA's DGX SuperPOD reference architectures: a scalable unit is a group
with as many leaf switches as a node has interfaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from s2sim.topology.kinds.layout import Kind, ceil_div, plural
from s2sim.topology.kinds.tree import TREE_ROUTINGS, Tree, TreeDimensions
from s2sim.topology.node import port_of_gpu

if TYPE_CHECKING:
    from s2sim.topology.kinds.layout import Indices, Rates
    from s2sim.topology.shape import ClusterShape


@dataclass(frozen=True, slots=True)
class RailDimensions(TreeDimensions):
    """Counts of a rail-optimised fabric; ``leaves`` are groups of nodes, with a leaf switch a rail each."""

    @property
    def leaf_switches(self) -> int:
        """Switches of the first level: the rails of all groups."""
        return self.leaves * self.nics_per_node

    @property
    def ports_per_leaf(self) -> int:
        """Network interfaces below a full leaf switch: one a node."""
        return self.hosts_per_leaf


@dataclass(frozen=True, slots=True)
class RailOptimised(Tree):
    """A tree of two levels in which each interface of a node has a leaf switch of its own."""

    dims: RailDimensions

    @classmethod
    def fit(cls, shape: ClusterShape, workers: int, nodes: int) -> Self:
        """Return the fabric with as many groups as needed.

        Without ``hosts_per_leaf`` it is the smallest in which switches of k ports, half of them up, reach all: k leaf
        switches, so k over the number of rails groups of k / 2 nodes.
        """
        gpus, nics = shape.gpus_per_node, shape.nics_per_node
        hosts = shape.hosts_per_leaf or 1
        while shape.hosts_per_leaf is None and hosts * max(1, 2 * hosts // nics) < nodes:
            hosts += 1
        groups = ceil_div(nodes, hosts)
        switches = groups * nics
        uplinks = (shape.uplinks_per_leaf or hosts) if switches > 1 else 0
        return cls(shape, RailDimensions(workers, nodes, gpus, nics, hosts, groups, switches, 1, uplinks, 0))

    def host_of_port(self, port: Indices) -> Indices:
        """Return the host number of each interface: rail after rail, inside a rail node after node."""
        dims = self.dims
        node, rail = np.divmod(port, dims.nics_per_node)
        group, place = np.divmod(node, dims.hosts_per_leaf)
        return (group * dims.nics_per_node + rail) * dims.hosts_per_leaf + place

    def hops(self) -> tuple[int, int]:
        """Return the links from leaf switch to leaf switch: 0 on one rail of one group, else 2."""
        dims = self.dims
        return (0 if dims.hosts_per_leaf > 1 else 2), (2 if dims.leaf_switches > 1 else 0)

    def families(self, node_Bps: Rates) -> list[tuple[str, Indices, Rates]]:
        """Return the groups of nodes."""
        group_of_node = np.arange(self.dims.nodes, dtype=np.int64) // self.dims.hosts_per_leaf
        return [("rail group", group_of_node, self.leaf_Bps(node_Bps))]

    def leaf_Bps(self, node_Bps: Rates) -> Rates:
        """Return what leaves each group: what its nodes send, unless the uplinks of its rails carry less."""
        dims, shape = self.dims, self.shape
        group_of_node = np.arange(dims.nodes, dtype=np.int64) // dims.hosts_per_leaf
        sent_Bps = np.bincount(group_of_node, weights=node_Bps, minlength=dims.leaves)
        # A rail carries what the interfaces of the GPUs in use send into it: a partial node leaves the last rails out.
        used = np.unique(port_of_gpu(dims, np.arange(dims.workers, dtype=np.int64)))
        interfaces = np.bincount(self.switch_of_port(used), minlength=dims.leaf_switches)
        rail_Bps = np.minimum(interfaces * shape.host_link.rate_Bps, dims.uplinks_per_leaf * shape.link.rate_Bps)
        carried_Bps: Rates = rail_Bps.reshape(dims.leaves, dims.nics_per_node).sum(axis=1)
        return np.minimum(sent_Bps, carried_Bps)

    def words(self) -> list[str]:
        """Return groups, rails, oversubscription and routing."""
        dims = self.dims
        groups = f"{plural(dims.leaves, 'group')} of {plural(dims.hosts_per_leaf, 'node')}"
        rails = f"{plural(dims.nics_per_node, 'rail')} each"
        if not dims.uplinks_per_leaf:
            return [groups, rails]
        return [groups, rails, self.blocking(), f"{self.shape.routing} routing"]

    def counts(self) -> dict[str, Any]:
        """Return leaf switches, spines, groups and rails."""
        return {**Tree.counts(self), "groups": self.dims.leaves, "rails": self.dims.nics_per_node}


RAIL_OPTIMISED = Kind(
    RailOptimised,
    levels=(2,),
    fields={"fabric.hosts_per_leaf": 2, "fabric.uplinks_per_leaf": 2},
    routings=TREE_ROUTINGS,
)
