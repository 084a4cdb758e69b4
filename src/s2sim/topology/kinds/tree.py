"""Trees of switches: fat trees of two and three levels, leaf-spine, and a single switch.

Trees are extended generalised fat trees (Öhring, Ibel, Das and Kumar, "On generalized fat trees", IPPS 1995): a host
has one way up, a leaf ``uplinks_per_leaf``, an aggregation switch ``uplinks_per_aggregation``. A tree of two levels is
one pod, whose aggregation switches are called spines.

d-mod-k is their deterministic routing, under which shift patterns between the hosts of a non-blocking tree share no
link (Zahavi, "D-Mod-K routing providing non-blocking traffic for shift permutations on real life fat trees", CCIT
report 776, 2010). ECMP hashes the pair of hosts at each level, so collisions happen as they do on Ethernet. Spraying
splits every transfer evenly over all ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from s2sim.topology.fabric import LinkPart
from s2sim.topology.kinds.layout import Dimensions, Kind, Layout, ceil_div, half_Bps, plural
from s2sim.topology.stages import draw, fan, single

if TYPE_CHECKING:
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.kinds.layout import Indices, Mask, Rates
    from s2sim.topology.routes import Stage
    from s2sim.topology.shape import ClusterShape


@dataclass(frozen=True, slots=True)
class TreeDimensions(Dimensions):
    """Counts of a tree; the last pod may be partial.

    Attributes
    ----------
    leaves_per_pod, pods : int
        Leaf switches below a full pod, and pods.
    uplinks_per_leaf, uplinks_per_aggregation : int
        0 where there is nothing above.
    """

    leaves_per_pod: int
    pods: int
    uplinks_per_leaf: int
    uplinks_per_aggregation: int

    @property
    def leaf_switches(self) -> int:
        """Switches of the first level."""
        return self.leaves

    @property
    def ports_per_leaf(self) -> int:
        """Network interfaces below a full leaf switch."""
        return self.hosts_per_leaf * self.nics_per_node

    @property
    def aggregations(self) -> int:
        """Switches of the second level: the spines of a tree of two levels."""
        return self.pods * self.uplinks_per_leaf

    @property
    def cores(self) -> int:
        """Switches of the third level."""
        return self.uplinks_per_leaf * self.uplinks_per_aggregation


def _smallest_leaf(shape: ClusterShape, nodes: int) -> int:
    """Return the nodes a leaf of the smallest k-ary fat tree that holds ``nodes``.

    A switch of k ports has half of them down and half up, so two levels reach k leaves and three levels k pods of
    k / 2 leaves (Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture",
    SIGCOMM 2008, section 3.1).
    """
    hosts = 1
    while True:
        half = hosts * shape.nics_per_node
        leaves = 2 * half if shape.levels == 2 else (shape.leaves_per_pod or half) * 2 * half
        if hosts * leaves >= nodes:
            return hosts
        hosts += 1


@dataclass(frozen=True, slots=True)
class Tree(Layout):
    """Hosts below leaves, leaves below spines or pods, pods below cores."""

    dims: TreeDimensions

    @classmethod
    def fit(cls, shape: ClusterShape, workers: int, nodes: int) -> Self:
        """Return the tree with as many leaves and pods as needed."""
        gpus, nics = shape.gpus_per_node, shape.nics_per_node
        if shape.levels < 2:
            return cls(shape, TreeDimensions(workers, nodes, gpus, nics, nodes, 1, 1, 1, 0, 0))
        hosts = shape.hosts_per_leaf or _smallest_leaf(shape, nodes)
        leaves = ceil_div(nodes, hosts)
        leaves_per_pod = (shape.leaves_per_pod or hosts * nics) if shape.levels == 3 else leaves
        pods = ceil_div(leaves, leaves_per_pod)
        uplinks = (shape.uplinks_per_leaf or hosts * nics) if leaves > 1 else 0
        core_uplinks = (shape.uplinks_per_aggregation or leaves_per_pod) if pods > 1 else 0
        dims = TreeDimensions(workers, nodes, gpus, nics, hosts, leaves, leaves_per_pod, pods, uplinks, core_uplinks)
        return cls(shape, dims)

    @property
    def draws(self) -> bool:
        """Whether ECMP has more than one up-port to choose from."""
        dims = self.dims
        return self.shape.routing == "ecmp" and max(dims.uplinks_per_leaf, dims.uplinks_per_aggregation) > 1

    def host_of_port(self, port: Indices) -> Indices:
        """Return the host number of each interface: hosts of one leaf switch follow each other."""
        return port

    def switch_of_port(self, port: Indices) -> Indices:
        """Return the leaf switch of each interface."""
        return self.host_of_port(port) // self.dims.ports_per_leaf

    def parts(self) -> list[LinkPart]:
        """Return the links from leaves to aggregation switches and from those to cores, each up and down."""
        dims, link = self.dims, self.shape.link
        leaf, pod = (dims.uplinks_per_leaf,), (dims.uplinks_per_leaf, dims.uplinks_per_aggregation)
        leaf_links, pod_links = dims.leaf_switches * dims.uplinks_per_leaf, dims.pods * dims.cores
        above_leaf, above_pod = self._above_leaf, self._above_aggregation
        return [
            LinkPart("leaf.up", "leaf-up", link, "leaf{}.up{}", leaf, leaf_links, above_leaf),
            LinkPart("leaf.down", "leaf-down", link, "leaf{}.down{}", leaf, leaf_links, above_leaf).turned(),
            LinkPart("aggregation.up", "aggregation-up", link, "pod{}.aggregation{}.up{}", pod, pod_links, above_pod),
            LinkPart(
                "aggregation.down", "aggregation-down", link, "pod{}.aggregation{}.down{}", pod, pod_links, above_pod
            ).turned(),
        ]

    def _above_leaf(self, index: Indices) -> tuple[Indices, Indices]:
        dims = self.dims
        leaf, port = np.divmod(index, dims.uplinks_per_leaf)
        first_aggregation = self.first_switch + dims.leaf_switches
        return self.first_switch + leaf, first_aggregation + leaf // dims.leaves_per_pod * dims.uplinks_per_leaf + port

    def _above_aggregation(self, index: Indices) -> tuple[Indices, Indices]:
        dims = self.dims
        first_aggregation = self.first_switch + dims.leaf_switches
        first_core = first_aggregation + dims.aggregations
        return first_aggregation + index // dims.uplinks_per_aggregation, first_core + index % dims.cores

    def stages(self, fabric: Fabric, source: Indices, target: Indices, outside: Mask, seed: int) -> list[Stage]:
        """Return the links up to the lowest level that both ends share, and down again."""
        dims = self.dims
        uplinks, core_uplinks, cores = dims.uplinks_per_leaf, dims.uplinks_per_aggregation, dims.cores
        if not uplinks:
            return []
        source, target = self.host_of_port(source), self.host_of_port(target)
        source_leaf, target_leaf = source // dims.ports_per_leaf, target // dims.ports_per_leaf
        source_pod, target_pod = source_leaf // dims.leaves_per_pod, target_leaf // dims.leaves_per_pod
        between_leaves = outside & (source_leaf != target_leaf)
        between_pods = source_pod != target_pod
        if self.shape.routing == "spray":
            up = [fan(fabric, "leaf.up", source_leaf * uplinks, uplinks, between_leaves)]
            down = [fan(fabric, "leaf.down", target_leaf * uplinks, uplinks, between_leaves)]
            if core_uplinks:
                up.append(fan(fabric, "aggregation.up", source_pod * cores, cores, between_pods))
                down.append(fan(fabric, "aggregation.down", target_pod * cores, cores, between_pods))
            return [*up, *reversed(down)]
        port = self._port(source, target, seed, level=1, width=uplinks)
        up = [single(fabric, "leaf.up", source_leaf * uplinks + port, between_leaves)]
        down = [single(fabric, "leaf.down", target_leaf * uplinks + port, between_leaves)]
        if core_uplinks:
            core = port * core_uplinks + self._port(source, target, seed, level=2, width=core_uplinks)
            up.append(single(fabric, "aggregation.up", source_pod * cores + core, between_pods))
            down.append(single(fabric, "aggregation.down", target_pod * cores + core, between_pods))
        return [*up, *reversed(down)]

    def _port(self, source: Indices, target: Indices, seed: int, *, level: int, width: int) -> Indices:
        """Return the up-port that each transfer takes at a level of the tree (1: leaf, 2: aggregation)."""
        if self.shape.routing == "ecmp":
            return draw(source, target, seed, level, width)
        below = self.dims.uplinks_per_leaf if level == 2 else 1
        return target // below % width

    def hops(self) -> tuple[int, int]:
        """Return the links from leaf to leaf: 0, 2 or 4."""
        dims = self.dims
        most = 4 if dims.pods > 1 else 2 if dims.leaf_switches > 1 else 0
        if dims.hosts_per_leaf > 1:
            return 0, most
        return (2 if dims.leaves_per_pod > 1 else most), most

    def families(self, node_Bps: Rates) -> list[tuple[str, Indices, Rates]]:
        """Return the leaves and the pods."""
        dims = self.dims
        leaf_Bps = self.leaf_Bps(node_Bps)
        leaf_of_node = np.arange(dims.nodes, dtype=np.int64) // dims.hosts_per_leaf
        pod_of_leaf = np.arange(dims.leaves, dtype=np.int64) // dims.leaves_per_pod
        pod_Bps = np.minimum(
            np.bincount(pod_of_leaf, weights=leaf_Bps, minlength=dims.pods), dims.cores * self.shape.link.rate_Bps
        )
        return [("leaf", leaf_of_node, leaf_Bps), ("pod", pod_of_leaf[leaf_of_node], pod_Bps)]

    def leaf_Bps(self, node_Bps: Rates) -> Rates:
        """Return what leaves each leaf: what its nodes send, unless its uplinks carry less."""
        dims = self.dims
        leaf_of_node = np.arange(dims.nodes, dtype=np.int64) // dims.hosts_per_leaf
        sent_Bps = np.bincount(leaf_of_node, weights=node_Bps, minlength=dims.leaves)
        return np.minimum(sent_Bps, dims.uplinks_per_leaf * self.shape.link.rate_Bps)

    def bisection_Bps(self, node_Bps: Rates) -> float:
        """Return what leaves the weaker half of the leaves in order; nodes are halved where there is one leaf.

        Whole pods stay together where there are several; with an odd number the smaller half counts.
        """
        dims = self.dims
        if dims.leaves == 1:
            return half_Bps(node_Bps)
        leaf_Bps = self.leaf_Bps(node_Bps)
        half = dims.leaves // 2
        # A partial leaf or pod is the last, so the weaker half may lie at either end.
        return min(
            self._leaves_Bps(np.arange(half), leaf_Bps),
            self._leaves_Bps(np.arange(dims.leaves - half, dims.leaves), leaf_Bps),
        )

    def _leaves_Bps(self, chosen: Indices, leaf_Bps: Rates) -> float:
        """Return what leaves a set of leaves: whole pods through their cores, the others through their uplinks."""
        dims = self.dims
        pod = chosen // dims.leaves_per_pod
        total_Bps = 0.0
        for number in np.unique(pod):
            of_pod = chosen[pod == number]
            up_Bps = float(leaf_Bps[of_pod].sum())
            size = min(dims.leaves_per_pod, dims.leaves - number * dims.leaves_per_pod)
            whole = len(of_pod) == size and dims.pods > 1
            total_Bps += min(up_Bps, dims.cores * self.shape.link.rate_Bps) if whole else up_Bps
        return total_Bps

    def oversubscription(self) -> float:
        """Return the worst ratio over the levels; 1 or less is non-blocking, and so is a tree without uplinks."""
        dims, shape = self.dims, self.shape
        if not dims.uplinks_per_leaf:
            return 1.0
        hosts_Bps = dims.ports_per_leaf * shape.host_link.rate_Bps
        ratio = hosts_Bps / (dims.uplinks_per_leaf * shape.link.rate_Bps)
        if not dims.uplinks_per_aggregation:
            return ratio
        return max(ratio, dims.leaves_per_pod * hosts_Bps / (dims.cores * shape.link.rate_Bps))

    def words(self) -> list[str]:
        """Return levels, leaves, pods, oversubscription and routing."""
        dims, shape = self.dims, self.shape
        if shape.levels < 2:
            return ["1 switch"]
        if dims.leaves == 1:
            return [f"all on 1 leaf of {plural(dims.hosts_per_leaf, 'node')}"]
        parts = [f"{shape.levels} levels", f"{dims.leaves} leaves x {plural(dims.hosts_per_leaf, 'node')}"]
        if shape.levels == 3:
            parts.append(f"{plural(dims.pods, 'pod')} x {plural(dims.leaves_per_pod, 'leaf', 'leaves')}")
        return [*parts, self.blocking(), f"{shape.routing} routing"]

    def blocking(self) -> str:
        """Return the oversubscription in words."""
        ratio = self.oversubscription()
        return "non-blocking" if ratio <= 1 else f"{ratio:.3g}:1 oversubscribed"

    def counts(self) -> dict[str, Any]:
        """Return leaves, pods, spines and cores."""
        dims = self.dims
        return {
            "leaves": dims.leaf_switches,
            "nodes_per_leaf": min(dims.hosts_per_leaf, dims.nodes),
            "pods": dims.pods if self.shape.levels == 3 else 0,
            "spines": dims.aggregations,
            "cores": dims.cores,
        }

    def reduction(self, port: Indices) -> list[tuple[str, str, Indices]]:
        """Return the links up to the first switch of the lowest level that is above all ports."""
        dims = self.dims
        leaf = np.unique(self.switch_of_port(port))
        if len(leaf) == 1:
            return []
        levels = [("leaf.up", "leaf.down", leaf * dims.uplinks_per_leaf)]
        pod = np.unique(leaf // dims.leaves_per_pod)
        if len(pod) > 1:
            levels.append(("aggregation.up", "aggregation.down", pod * dims.cores))
        return levels


_FIELDS = {
    "fabric.hosts_per_leaf": 2,
    "fabric.uplinks_per_leaf": 2,
    "fabric.leaves_per_pod": 3,
    "fabric.uplinks_per_aggregation": 3,
}
TREE_ROUTINGS = ("d-mod-k", "ecmp", "spray")

FAT_TREE = Kind(Tree, levels=(2, 3), fields=_FIELDS, routings=TREE_ROUTINGS)
LEAF_SPINE = Kind(Tree, levels=(2,), fields=_FIELDS, routings=TREE_ROUTINGS)
SINGLE_SWITCH = Kind(Tree, levels=(1,), fields=_FIELDS)
