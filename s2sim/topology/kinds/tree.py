"""Trees of switches: fat trees of two and three levels, leaf-spine, rail-optimised, and a single switch.

Extended generalised fat trees (Öhring, Ibel, Das and Kumar, "On generalized fat trees", IPPS 1995). Routing is d-mod-k
(Zahavi, "D-Mod-K routing providing non-blocking traffic for shift permutations on real life fat trees", CCIT report
776, 2010), ECMP by a hash of both hosts at each level, or spraying evenly over all up-ports.

In rail-optimised fabrics interface i of every node of a group goes to the group's leaf switch i, its rail. This is the
compute fabric of NVIDIA's DGX SuperPOD reference architectures, a scalable unit being a group. Traffic between rails
crosses the spines; NCCL's PXN, which first moves it over NVLink to the target's rail, is not modelled.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.topology.graph import Fabric, LinkPart, RouteStage, hash_choice, index_splitter, parallel_stage
from s2sim.topology.layout import Capacity, Layout, Partition, half_Bps, sum_by_group
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import ClusterShape
from s2sim.units import format_number_of


def _smallest_leaf(shape: ClusterShape, nodes: Nodes) -> int:
    """Return the nodes a leaf of the smallest k-ary fat tree that holds ``nodes``, with as many interfaces as any has.

    A switch of k ports has half of them down and half up, so two levels reach k leaves and three levels k pods of
    k / 2 leaves (Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture",
    SIGCOMM 2008, section 3.1).
    """
    hosts = 1
    while True:
        half = hosts * nodes.most_nics
        leaves = 2 * half if shape.levels == 2 else (shape.leaves_per_pod or half) * 2 * half
        if hosts * leaves >= nodes.count:
            return hosts
        hosts += 1


def describe_blocking(oversubscription: float | None) -> str:
    """Return an oversubscription as text."""
    ratio = oversubscription or 1.0
    return "non-blocking" if ratio <= 1 else f"{ratio:.3g}:1 oversubscribed"


@dataclass(frozen=True, slots=True)
class TreeLayout(Layout):
    """Hosts below leaves, leaves below spines or pods, pods below cores; the last leaf and pod may be partial.

    A single leaf or pod has no uplinks. Of a rail-optimised fabric, ``leaves`` are groups of nodes, with ``rails`` leaf
    switches each.
    """

    leaves_per_pod: int
    pods: int
    uplinks_per_leaf: int
    uplinks_per_aggregation: int
    rails: int = 1

    @classmethod
    def fit(cls, shape: ClusterShape, nodes: Nodes) -> Self:
        if shape.levels < 2:
            return cls(shape, nodes, nodes.count, 1, 1, 1, 0, 0)
        nics = nodes.most_nics
        hosts = shape.hosts_per_leaf or _smallest_leaf(shape, nodes)
        leaves = -(-nodes.count // hosts)
        leaves_per_pod = (shape.leaves_per_pod or hosts * nics) if shape.levels == 3 else leaves
        pods = -(-leaves // leaves_per_pod)
        uplinks = (shape.uplinks_per_leaf or hosts * nics) if leaves > 1 else 0
        core_uplinks = (shape.uplinks_per_aggregation or leaves_per_pod) if pods > 1 else 0
        return cls(shape, nodes, hosts, leaves, leaves_per_pod, pods, uplinks, core_uplinks)

    @property
    def leaf_switches(self) -> int:
        """Switches of the first level."""
        return self.leaves * self.rails

    @property
    def aggregations(self) -> int:
        """Switches of the second level: the spines of a tree of two levels."""
        return self.pods * self.uplinks_per_leaf

    @property
    def cores(self) -> int:
        """Switches of the third level."""
        return self.uplinks_per_leaf * self.uplinks_per_aggregation

    @property
    def switches(self) -> int:
        return self.leaf_switches + self.aggregations + self.cores

    @property
    def draws(self) -> bool:
        """Whether ECMP has more than one up-port to choose from."""
        return self.shape.routing == "ecmp" and max(self.uplinks_per_leaf, self.uplinks_per_aggregation) > 1

    def host_of_port(self, port: Ints) -> Ints:
        """Return the host number of each interface: hosts of one leaf switch follow each other."""
        return port

    def parts(self) -> list[LinkPart]:
        """Return the links from leaves to aggregation switches and from those to cores, each up and down."""
        link = self.shape.link
        uplinks, core_uplinks = self.uplinks_per_leaf, self.uplinks_per_aggregation
        spec, pod_links = (link.rate_Bps, link.latency_ps), self.pods * self.cores
        levels = (
            ("leaf", "leaf{}", index_splitter(uplinks), self.leaf_switches * uplinks, self._above_leaf),
            ("aggregation", "pod{}.aggregation{}", index_splitter(uplinks, core_uplinks), pod_links, self._above_pod),
        )
        parts = []
        for name, template, indices, count, ends in levels:
            up, down = (
                LinkPart(f"{name}.{end}", f"{name}-{end}", *spec, f"{template}.{end}{{}}", indices, count, ends)
                for end in ("up", "down")
            )
            parts += [up, down.turned()]
        return parts

    def _above_leaf(self, index: Ints) -> tuple[Ints, Ints]:
        leaf, port = np.divmod(index, self.uplinks_per_leaf)
        first_aggregation = self.first_switch + self.leaf_switches
        return self.first_switch + leaf, first_aggregation + leaf // self.leaves_per_pod * self.uplinks_per_leaf + port

    def _above_pod(self, index: Ints) -> tuple[Ints, Ints]:
        first_aggregation = self.first_switch + self.leaf_switches
        first_core = first_aggregation + self.aggregations
        return first_aggregation + index // self.uplinks_per_aggregation, first_core + index % self.cores

    def stages(self, fabric: Fabric, source: Ints, target: Ints, outside: Mask, seed: int) -> list[RouteStage]:
        """Return the links up to the lowest level that both ends share, and down again."""
        uplinks, core_uplinks, cores = self.uplinks_per_leaf, self.uplinks_per_aggregation, self.cores
        if not uplinks:
            return []
        source_leaf, target_leaf = self.switch_of_port(source), self.switch_of_port(target)
        source, target = self.host_of_port(source), self.host_of_port(target)
        source_pod, target_pod = source_leaf // self.leaves_per_pod, target_leaf // self.leaves_per_pod
        between_leaves = outside & (source_leaf != target_leaf)
        between_pods = source_pod != target_pod
        levels = [("leaf", source_leaf, target_leaf, uplinks, between_leaves)]
        ports = [self._port(source, target, seed, level=1, width=uplinks)]
        if core_uplinks:
            levels.append(("aggregation", source_pod, target_pod, cores, between_pods))
            ports.append(ports[0] * core_uplinks + self._port(source, target, seed, level=2, width=core_uplinks))
        stages: list[RouteStage] = []
        for (name, first, last, width, mask), port in reversed(list(zip(levels, ports, strict=True))):
            chosen, wide = (0, width) if self.shape.routing == "spray" else (port, 1)
            up, down = (
                parallel_stage(fabric, f"{name}.{way}", switch * width + chosen, mask, wide)
                for way, switch in (("up", first), ("down", last))
            )
            stages = [up, *stages, down]
        return stages

    def _port(self, source: Ints, target: Ints, seed: int, *, level: int, width: int) -> Ints:
        """Return the up-port that each transfer takes at a level of the tree (1: leaf, 2: aggregation)."""
        if self.shape.routing == "ecmp":
            return hash_choice(source, target, seed, level, width)
        return target // (self.uplinks_per_leaf if level == 2 else 1) % width

    def hops(self) -> tuple[int, int]:
        """Return the links from leaf to leaf: 0, 2 or 4."""
        most = 4 if self.pods > 1 else 2 if self.leaf_switches > 1 else 0
        return (0 if self.hosts_per_leaf > 1 else 2 if self.leaves_per_pod > 1 else most), most

    def partitions(self) -> list[Partition]:
        leaf = np.arange(self.leaves, dtype=np.int64)
        above = np.full(self.aggregations + self.cores, -1, np.int64)
        pod = leaf // self.leaves_per_pod
        pod_of_above = above.copy()
        if self.pods > 1:
            pod_of_above[: self.aggregations] = np.repeat(np.arange(self.pods), self.uplinks_per_leaf)
        return [
            Partition("leaf", self.leaf_of_node, np.concatenate([leaf, above])),
            Partition("pod", pod[self.leaf_of_node], np.concatenate([pod, pod_of_above]), nested=True),
        ]

    def bisection_Bps(self, capacity: Capacity) -> float:
        """Return the capacity out of the weaker and smaller half of the leaves in order; of the nodes on one leaf."""
        if self.leaves == 1:
            return half_Bps(capacity.node_Bps)
        half = self.leaves // 2
        # A partial leaf or pod is the last, so the weaker half may be at either end.
        return min(
            self._leaves_Bps(np.arange(half), capacity),
            self._leaves_Bps(np.arange(self.leaves - half, self.leaves), capacity),
        )

    def _leaves_Bps(self, chosen: Ints, capacity: Capacity) -> float:
        """Return the capacity out of a set of leaves: full pods through their cores, others through their uplinks."""
        pod = chosen // self.leaves_per_pod
        total_Bps = 0.0
        for number in np.unique(pod):
            of_pod = chosen[pod == number]
            size = min(self.leaves_per_pod, self.leaves - number * self.leaves_per_pod)
            whole = len(of_pod) == size and self.pods > 1
            total_Bps += float(capacity.families[1][number] if whole else capacity.families[0][of_pod].sum())
        return total_Bps

    def oversubscription(self, capacity: Capacity) -> float:
        """Return the worst ratio over the levels of full leaves, 1 without uplinks; 1 or less is non-blocking."""
        if not self.uplinks_per_leaf:
            return 1.0
        switch = self.switch_of_port(np.arange(len(capacity.port_Bps)))
        node = self.node_set.node_of_port
        hosts = np.bincount(np.unique(np.stack([switch, node]), axis=1)[0], minlength=self.leaf_switches)
        used = hosts > 0
        sent_Bps = sum_by_group(capacity.port_Bps, switch, self.leaf_switches)[used] / hosts[used] * self.hosts_per_leaf
        single = np.full(self.switches, -1, np.int64)
        single[: self.leaf_switches] = np.arange(self.leaf_switches)
        worst = float((sent_Bps / capacity.leaving(single, self.leaf_switches)[used]).max())
        if not self.uplinks_per_aggregation:
            return worst
        pods = self.partitions()[1]
        pod = pods.group_of_switch[: self.leaf_switches]
        pod_Bps = np.bincount(pod, sent_Bps, self.pods) / np.bincount(pod) * self.leaves_per_pod
        return max(worst, float((pod_Bps / capacity.leaving(pods.group_of_switch, self.pods)).max()))

    def describe(self, oversubscription: float | None) -> list[str]:
        shape = self.shape
        if shape.levels < 2:
            return ["1 switch"]
        if self.leaves == 1:
            return [f"all on 1 leaf of {format_number_of(self.hosts_per_leaf, 'node')}"]
        parts = [f"{shape.levels} levels", f"{self.leaves} leaves x {format_number_of(self.hosts_per_leaf, 'node')}"]
        if shape.levels == 3:
            parts.append(f"{format_number_of(self.pods, 'pod')} x {format_number_of(self.leaves_per_pod, 'leaf')}")
        return [*parts, describe_blocking(oversubscription), f"{shape.routing} routing"]

    def counts(self) -> dict[str, Any]:
        return {
            "leaves": self.leaf_switches,
            "nodes_per_leaf": min(self.hosts_per_leaf, self.nodes),
            "pods": self.pods if self.shape.levels == 3 else 0,
            "spines": self.aggregations,
            "cores": self.cores,
        }

    def reduction(self, port: Ints) -> list[tuple[str, str, Ints]]:
        """Return the links up to the first switch of the lowest level that is above all ports."""
        leaf = np.unique(self.switch_of_port(port))
        if len(leaf) == 1:
            return []
        levels = [("leaf.up", "leaf.down", leaf * self.uplinks_per_leaf)]
        if len(pod := np.unique(leaf // self.leaves_per_pod)) > 1:
            levels.append(("aggregation.up", "aggregation.down", pod * self.cores))
        return levels


@dataclass(frozen=True, slots=True)
class RailOptimisedLayout(TreeLayout):
    """A tree of two levels in which each interface of a node has a leaf switch of its own."""

    @classmethod
    def fit(cls, shape: ClusterShape, nodes: Nodes) -> Self:
        """Return the fabric with as many groups as needed.

        The default of ``hosts_per_leaf`` is the smallest k / 2 with which k leaf switches of k ports reach all nodes.
        """
        nics = nodes.most_nics
        hosts = shape.hosts_per_leaf or 1
        while shape.hosts_per_leaf is None and hosts * max(1, 2 * hosts // nics) < nodes.count:
            hosts += 1
        groups = -(-nodes.count // hosts)
        switches = groups * nics
        uplinks = (shape.uplinks_per_leaf or hosts) if switches > 1 else 0
        return cls(shape, nodes, hosts, groups, switches, 1, uplinks, 0, rails=nics)

    def host_of_port(self, port: Ints) -> Ints:
        """Return the host number of each interface: rail after rail, inside a rail node after node."""
        return self.switch_of_port(port) * self.hosts_per_leaf + self.node_set.node_of_port[port] % self.hosts_per_leaf

    def switch_of_port(self, port: Ints) -> Ints:
        """Return the rail of each interface: the leaf switch of its number in its group."""
        return self.node_set.node_of_port[port] // self.hosts_per_leaf * self.rails + self.node_set.local_port(port)

    def hops(self) -> tuple[int, int]:
        """Return the links from leaf switch to leaf switch: 0 on one rail of one group, else 2."""
        return (0 if self.hosts_per_leaf > 1 else 2), (2 if self.leaf_switches > 1 else 0)

    def partitions(self) -> list[Partition]:
        group_of_switch = np.full(self.switches, -1, np.int64)
        group_of_switch[: self.leaf_switches] = np.arange(self.leaf_switches) // self.rails
        return [Partition("rail group", self.leaf_of_node, group_of_switch)]

    def describe(self, oversubscription: float | None) -> list[str]:
        groups = f"{format_number_of(self.leaves, 'group')} of {format_number_of(self.hosts_per_leaf, 'node')}"
        rails = f"{format_number_of(self.rails, 'rail')} each"
        if not self.uplinks_per_leaf:
            return [groups, rails]
        return [groups, rails, describe_blocking(oversubscription), f"{self.shape.routing} routing"]

    def counts(self) -> dict[str, Any]:
        return {**TreeLayout.counts(self), "groups": self.leaves, "rails": self.rails}
