"""The one interface between a kind of fabric and everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.errors import TopologyError
from s2sim.topology.graph import Fabric, LinkPart, RouteStage
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import ClusterShape


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A partition of the nodes, and of the switches that belong to their groups."""

    name: str
    group_of_node: Ints  # Numbered without gaps
    group_of_switch: Ints  # That of all of its nodes; -1 for a switch without a group
    nested: bool = False  # Whether each group of the partition before lies in one group of this one


def sum_by_group(rate_Bps: Floats, group: Ints, groups: int) -> Floats:
    """Return the sum of rates by group, float64 of shape (groups,); those of group -1 are left out."""
    chosen = group >= 0
    if len(rate_Bps) and (rate_Bps == rate_Bps[0]).all():
        # A product, which unlike a long sum is rounded once.
        product: Floats = np.bincount(group[chosen], minlength=groups) * np.float64(rate_Bps[0])
        return product
    return accumulate_by_group(group[chosen], rate_Bps[chosen], groups)


def accumulate_by_group(group: Ints, rate_Bps: Floats, groups: int) -> Floats:
    """Return the sum of rates by group, one after the other, float64 of shape (groups,)."""
    return np.bincount(group, rate_Bps, groups).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class InterSwitchLinks:
    """The links between switches in one direction, in bytes per second."""

    tail: Ints
    head: Ints
    rate_Bps: Floats

    def leaving(self, group_of_switch: Ints, groups: int) -> Floats:
        """Return the total rate of the links out of each group; switches of group -1 belong to none."""
        tail, head = group_of_switch[self.tail], group_of_switch[self.head]
        return sum_by_group(self.rate_Bps, np.where(tail == head, -1, tail), groups)


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """The most that links transmit in one direction, out of sets of ranks or into them: never too low; float64."""

    gpu_Bps: Floats  # (GPUs,): to the others of its node, and its network interface in full
    switch_Bps: Floats  # (sets,): of the GPUs below each PCIe switch, and of all GPUs of each node without one
    port_Bps: Floats  # (ports,)
    # (nodes,): the interfaces of the GPUs in use, limited by the links to them, and NVLink to other nodes of the domain
    node_Bps: Floats
    domain_Bps: Floats  # (NVLink domains,): without traffic inside
    families: tuple[Floats, ...]  # (groups,) for each partition
    between: InterSwitchLinks


def half_Bps(node_Bps: Floats) -> float:
    """Return the total rate of the slower half of the nodes, the smaller half of an odd number."""
    return float(np.sort(node_Bps)[: len(node_Bps) // 2].sum())


@dataclass(frozen=True, slots=True)
class Layout(ABC):
    """One kind of fabric at one size: what joins the network interfaces of the nodes; the last of these may be partial.

    Interfaces ("ports") are numbered node by node, switches from 0. In the graph the switches follow the GPUs and the
    nodes, and are followed by the PCIe switches.
    """

    shape: ClusterShape
    node_set: Nodes
    # Nodes that share their first switch (of a rail-optimised fabric: their first switches), and how many such sets
    # there are; a ring or torus, which has no switches, counts as one
    hosts_per_leaf: int
    leaves: int

    @classmethod
    def most_nodes(cls, shape: ClusterShape) -> tuple[int, str] | None:
        """Return the most nodes by the kind's own fields, and the field to raise; None for any number."""
        return None

    @classmethod
    @abstractmethod
    def fit(cls, shape: ClusterShape, nodes: Nodes) -> Self:
        """Return the smallest fabric of this shape that holds ``nodes``, not more than `most_nodes`."""

    @property
    def workers(self) -> int:
        """GPUs that work."""
        return self.node_set.gpus

    @property
    def nodes(self) -> int:
        """Nodes that hold them."""
        return self.node_set.count

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a full node, of the largest kind where nodes differ."""
        return max(spec.gpus for spec in self.node_set.specs)

    @property
    def first_node(self) -> int:
        """Vertex of node 0."""
        return self.workers

    @property
    def first_switch(self) -> int:
        """Vertex of switch 0."""
        return self.workers + self.nodes

    @property
    @abstractmethod
    def switches(self) -> int:
        """How many switches there are, or stops."""

    @property
    def first_pcie(self) -> int:
        """Vertex of the first PCIe switch."""
        return self.first_switch + self.switches

    @property
    def first_domain(self) -> int:
        """Vertex of the NVSwitches of the first domain of several nodes, which follow the host bridges."""
        return self.first_pcie + self.node_set.pcie_switches + len(self.node_set.bridge_nodes)

    def drawn_vertices(self) -> Ints:
        """Return, for each vertex of the graph, itself, or its node where it is a PCIe switch or host bridge."""
        nodes = self.node_set
        inside = np.concatenate([nodes.node_of_switch, nodes.bridge_nodes])
        domains = self.first_domain + np.arange(nodes.domains)
        return np.concatenate([np.arange(self.first_pcie), self.first_node + inside, domains])

    def switch_links(self, fabric: Fabric) -> Mask:
        """Return a mask of the links between two switches, shape (links,)."""
        low, high = np.minimum(fabric.tail, fabric.head), np.maximum(fabric.tail, fabric.head)
        joins: Mask = (low >= self.first_switch) & (high < self.first_pcie)
        return joins

    @property
    def draws(self) -> bool:
        """Whether any route is drawn by a hash, so that the seed matters."""
        return False

    @abstractmethod
    def switch_of_port(self, port: Ints) -> Ints:
        """Return the switch that each network interface joins."""

    @abstractmethod
    def parts(self) -> list[LinkPart]:
        """Return the links between switches."""

    @abstractmethod
    def stages(self, fabric: Fabric, source: Ints, target: Ints, outside: Mask, seed: int) -> list[RouteStage]:
        """Return the stages between the switches of two ports, int64 (m,); ``outside``: transfers between nodes."""

    @abstractmethod
    def hops(self) -> tuple[int, int]:
        """Return the fewest and the most links between switches on any possible route between two nodes."""

    @abstractmethod
    def partitions(self) -> list[Partition]:
        """Return the partitions of the nodes whose cuts may bind, inner ones first."""

    def halves(self) -> list[Mask]:
        """Return the sets of switches, bool of shape (switches,), on one side of cuts that halve the nodes."""
        return []

    def bisection_Bps(self, capacity: Capacity) -> float:
        """Return the rate, in one direction, across the cut that halves the nodes; there are at least two."""
        crossing = [capacity.between.leaving(np.where(half, 0, -1), 1)[0] for half in self.halves()]
        return float(min([half_Bps(capacity.node_Bps), *crossing]))

    def oversubscription(self, capacity: Capacity) -> float | None:
        """Return the rate of full hosts over that of the uplinks, at the worst level; None without uplinks."""
        return None

    @abstractmethod
    def describe(self, oversubscription: float | None) -> list[str]:
        """Return the fabric's description, a few words per item."""

    @abstractmethod
    def counts(self) -> dict[str, Any]:
        """Return the counts of what only some kinds have, as plain values."""

    def reduction(self, port: Ints) -> list[tuple[str, str, Ints]]:
        """Return, per level, the blocks up and down (keys) and their links (int64) between ports and a common root."""
        raise TopologyError(
            f"an in-network reduction was asked for on {self.shape.name}, a {self.shape.kind}, where no switch is "
            "above all ranks: use a fat-tree, leaf-spine, single-switch or rail-optimised fabric"
        )


@dataclass(frozen=True, slots=True)
class FabricKind:
    """A kind of fabric as a reader of description files knows it."""

    layout: type[Layout]
    levels: tuple[int, ...] = ()  # Possible numbers of switch levels, the default first
    # Fields of ``[fabric]`` that it has, and the least number of switch levels with which they have an effect
    fields: Mapping[str, int] = field(default_factory=dict)
    routings: tuple[str, ...] = ()  # The default first; empty if there is one route only
    host_cable: bool = True  # Whether a cable joins each interface to a switch, and not to its node's own stop
