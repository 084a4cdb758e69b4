"""Rail-optimised fabrics: interface i of every node of a group goes to the group's leaf switch i, its rail.

This is the compute fabric of NVIDIA's DGX SuperPOD reference architectures, a scalable unit being a group. Traffic
between rails crosses the spines; NCCL's PXN, which first moves it over NVLink to the target's rail, is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from s2sim.arrays import Ints
from s2sim.topology.kinds.tree import TREE_ROUTINGS, TreeDimensions, TreeLayout, describe_blocking
from s2sim.topology.layout import FabricKind, Partition, ceil_div
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import ClusterShape
from s2sim.units import format_number_of


@dataclass(frozen=True, slots=True)
class RailDimensions(TreeDimensions):
    """Counts of a rail-optimised fabric; ``leaves`` are groups of nodes, with a leaf switch a rail each."""

    @property
    def rails(self) -> int:
        """Leaf switches of a group: as many as any node has interfaces."""
        return self.node_set.most_nics

    @property
    def leaf_switches(self) -> int:
        """Switches of the first level: the rails of all groups."""
        return self.leaves * self.rails


@dataclass(frozen=True, slots=True)
class RailOptimisedLayout(TreeLayout):
    """A tree of two levels in which each interface of a node has a leaf switch of its own."""

    dims: RailDimensions

    @classmethod
    def fit(cls, shape: ClusterShape, nodes: Nodes) -> Self:
        """Return the fabric with as many groups as needed.

        The default of ``hosts_per_leaf`` is the smallest k / 2 with which k leaf switches of k ports reach all nodes.
        """
        nics = nodes.most_nics
        hosts = shape.hosts_per_leaf or 1
        while shape.hosts_per_leaf is None and hosts * max(1, 2 * hosts // nics) < nodes.count:
            hosts += 1
        groups = ceil_div(nodes.count, hosts)
        switches = groups * nics
        uplinks = (shape.uplinks_per_leaf or hosts) if switches > 1 else 0
        return cls(shape, RailDimensions(nodes, hosts, groups, switches, 1, uplinks, 0))

    def host_of_port(self, port: Ints) -> Ints:
        """Return the host number of each interface: rail after rail, inside a rail node after node."""
        dims = self.dims
        place = dims.node_set.node_of_port[port] % dims.hosts_per_leaf
        return self.switch_of_port(port) * dims.hosts_per_leaf + place

    def switch_of_port(self, port: Ints) -> Ints:
        """Return the rail of each interface: the leaf switch of its number in its group."""
        dims = self.dims
        group = dims.node_set.node_of_port[port] // dims.hosts_per_leaf
        return group * dims.rails + dims.node_set.local_port(port)

    def hops(self) -> tuple[int, int]:
        """Return the links from leaf switch to leaf switch: 0 on one rail of one group, else 2."""
        dims = self.dims
        return (0 if dims.hosts_per_leaf > 1 else 2), (2 if dims.leaf_switches > 1 else 0)

    def partitions(self) -> list[Partition]:
        """Return the groups of nodes, each with all of its rails."""
        dims = self.dims
        group_of_node = np.arange(dims.nodes, dtype=np.int64) // dims.hosts_per_leaf
        group_of_switch = np.full(self.switches, -1, np.int64)
        group_of_switch[: dims.leaf_switches] = np.arange(dims.leaf_switches) // dims.rails
        return [Partition("rail group", group_of_node, group_of_switch)]

    def describe(self, oversubscription: float | None) -> list[str]:
        """Return groups, rails, oversubscription and routing."""
        dims = self.dims
        groups = f"{format_number_of(dims.leaves, 'group')} of {format_number_of(dims.hosts_per_leaf, 'node')}"
        rails = f"{format_number_of(dims.rails, 'rail')} each"
        if not dims.uplinks_per_leaf:
            return [groups, rails]
        return [groups, rails, describe_blocking(oversubscription), f"{self.shape.routing} routing"]

    def counts(self) -> dict[str, Any]:
        """Return leaf switches, spines, groups and rails."""
        return {**TreeLayout.counts(self), "groups": self.dims.leaves, "rails": self.dims.rails}


RAIL_OPTIMISED = FabricKind(
    RailOptimisedLayout,
    levels=(2,),
    fields={"fabric.hosts_per_leaf": 2, "fabric.uplinks_per_leaf": 2},
    routings=TREE_ROUTINGS,
)
