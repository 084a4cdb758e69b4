"""A cluster shape at a number of workers: what every other room takes."""

import os.path
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.errors import TopologyError, unknown_name
from s2sim.files import read_text, user_path
from s2sim.topology.graph import Fabric, Routes, join_stages
from s2sim.topology.kinds import build_layout
from s2sim.topology.layout import Layout, find_capacity, pcie_switch_groups
from s2sim.topology.links import build_link_graph
from s2sim.topology.routing import Router, reroute
from s2sim.topology.shape import ClusterShape
from s2sim.topology.switch_reduction import reduction_over_nodes, reduction_tree


@dataclass(frozen=True, slots=True, eq=False)
class CutFamily:
    """One partition of the ranks: by GPU, by node, or one of the kind of fabric."""

    name: str  # ``"gpu"``, ``"PCIe switch"``, ``"node"``, ``"NVLink domain"``, or that of a `Partition`
    group_of_rank: Ints  # Every group has at least one rank
    egress_Bps: Floats  # The total rate of the links out of each group, never too low
    ingress_Bps: Floats

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.egress_Bps)


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Families of cuts with at least two groups each, inner ones first.

    The ranks are those of ``concurrent`` equal collectives, concatenated.
    """

    families: tuple[CutFamily, ...]
    concurrent: int = 1

    def __getitem__(self, name: str) -> CutFamily:
        """Return the family called ``name``; `KeyError` if the cluster has none."""
        return {family.name: family for family in self.families}[name]

    def within(self, ranks: Sequence[int]) -> "Cuts":
        """Return the same partitions of a group of ranks, in this order; the same positions of each collective."""
        members = np.asarray(ranks, np.int64)
        families = (
            replace(family, group_of_rank=family.group_of_rank.reshape(self.concurrent, -1)[:, members].reshape(-1))
            for family in self.families
        )
        return Cuts(tuple(families), self.concurrent)


PLACEMENTS = ("linear", "round-robin", "random")

# A GPU number, or a node and the number of a GPU on it; more digits than this name no GPU of any cluster.
_LINE = re.compile(r"([0-9]{1,12})(?:(?:\s*,\s*|\s+)([0-9]{1,12}))?")


def place_ranks(layout: Layout, placement: str, *, seed: int = 0) -> Ints:
    """Return the GPU of each rank, a permutation of the GPUs in use as an int64 array of shape (workers,).

    ``linear``: rank r on GPU r, so nodes fill in order. ``round-robin``: the same GPUs, dealt to the leaves in turn,
    inside a leaf to its nodes in turn, inside a node in order; whatever is full drops out. ``random``: the same GPUs,
    shuffled. A text with a slash, or one that ends in ``.txt``, ``.csv`` or ``.json``, is the path of a text file with
    a line a rank: ``node gpu``, ``node,gpu`` or the number of the GPU in the cluster.

    `UnknownNameError` for a placement that does not exist, `TopologyError` for a file that does not name every GPU in
    use once.
    """
    gpus = np.arange(layout.workers, dtype=np.int64)
    if placement == "linear":
        return gpus
    if placement == "round-robin":
        node, local = layout.node_set.node_of_gpu, layout.node_set.local_gpu(gpus)
        leaf = layout.leaf_of_node[node]
        # The GPUs of each leaf in the order of dealing, and the turn of each.
        dealt = np.lexsort((node, local, leaf))
        turn = np.empty_like(gpus)
        turn[dealt] = gpus - np.searchsorted(leaf[dealt], leaf[dealt])
        return np.lexsort((leaf, turn)).astype(np.int64)
    if placement == "random":
        # Sorting raw draws, not Generator.permutation: NumPy promises that the raw stream stays what it is.
        draws = np.random.PCG64(np.random.SeedSequence([seed, *b"placement"])).random_raw(layout.workers)
        return np.argsort(draws, kind="stable").astype(np.int64)
    if "/" in placement or placement.endswith((".txt", ".csv", ".json")):
        return _read_placement(user_path(placement, TopologyError), layout)
    # A name wins over a file in the working directory.
    if placement and os.path.lexists(placement):
        raise TopologyError(f"{placement} is a path and not a placement: give a text file as ./FILE")
    raise unknown_name("placement", placement, [*PLACEMENTS, "./FILE"])


def _read_placement(path: Path, layout: Layout) -> Ints:
    """Return the GPU that each line of a placement file names; ``#`` starts a comment, empty lines do not count."""
    line_of_gpu: dict[int, int] = {}
    first_gpu = layout.node_set.first_gpu
    for number, line in enumerate(read_text(path, error=TopologyError).splitlines(), start=1):
        if not (asked := line.partition("#")[0].strip()):
            continue
        where = f"{path}, line {number}"
        if (match := _LINE.fullmatch(asked)) is None:
            raise TopologyError(
                f"{where}: {asked[:40]!r} is no place: write 'node gpu' or a GPU number, for example '3 0'"
            )
        # A number alone counts from the first GPU of the first node.
        first, place = map(int, match.groups() if match[2] else ("0", match[1]))
        node = min(first, layout.nodes)
        gpu = int(first_gpu[node]) + place
        if gpu >= (first_gpu[min(node + 1, layout.nodes)] if match[2] else layout.workers):
            raise TopologyError(
                f"{where}: {asked!r} is not in use: {layout.workers} workers fill nodes in order, GPUs 0 to "
                f"{layout.workers - 1}, that is node 0 gpu 0 to node {layout.nodes - 1} gpu "
                f"{layout.workers - first_gpu[-2] - 1}"
            )
        if gpu in line_of_gpu:
            raise TopologyError(f"{where}: {asked!r} is the GPU of line {line_of_gpu[gpu]}: a GPU runs one rank")
        line_of_gpu[gpu] = number
    if len(line_of_gpu) != layout.workers:
        raise TopologyError(
            f"{path} places {len(line_of_gpu)} ranks, there are {layout.workers}: write {layout.workers} lines, one a "
            "rank"
        )
    return np.array(list(line_of_gpu), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Cluster:
    """Nodes, links and the place of every rank: which GPU and which node it runs on, int64 of shape (workers,).

    ``node_of_rank`` counts nodes as collectives do, who take those that NVSwitches join, one domain, for one.
    ``seed`` is that of the hash by which some routings choose a way, and of random placement. Cuts leave out what has
    failed: links that fail never make a lower bound too high.
    """

    shape: ClusterShape
    workers: int
    fabric: Fabric
    gpu_of_rank: Ints
    node_of_rank: Ints
    layout: Layout
    placement: str
    seed: int
    dead: Mask | None = None  # Links that have failed, bool of shape (links,), around which routes lead
    why: str = ""  # What has failed

    @cached_property
    def nodes_used(self) -> int:
        """Number of nodes with ranks, as ``node_of_rank`` counts them."""
        return len(np.unique(self.node_of_rank))

    @property
    def assumed_fields(self) -> tuple[str, ...]:
        """Fields of interfaces and the fabric that are assumed, where ranks of several nodes use them."""
        return self.shape.assumed_fields if self.nodes_used > 1 else ()

    @property
    def host_of_rank(self) -> Ints:
        """The node that each rank runs on, int64 of shape (workers,), where others of its domain are others."""
        return self.layout.node_set.node_of_gpu[self.gpu_of_rank]

    @property
    def least_ranks_per_node(self) -> int:
        """Ranks on the node in use, or domain of nodes, that has the fewest."""
        ranks = np.bincount(self.node_of_rank)
        return int(ranks[ranks > 0].min())

    def within(self, ranks: Sequence[int]) -> "Cluster":
        """Return the same cluster as a group of some ranks sees it, who are numbered from 0 in this order."""
        members = self._checked(ranks)
        return replace(
            self, workers=len(members), gpu_of_rank=self.gpu_of_rank[members], node_of_rank=self.node_of_rank[members]
        )

    @property
    def router(self) -> Router:
        """The router, which finds the stages between GPUs."""
        return Router(self.layout, self.fabric, self.seed)

    def routes(self, src_rank: Ints, dst_rank: Ints) -> Routes:
        """Return the routes from ``src_rank[i]`` to ``dst_rank[i]``, both int64 arrays of shape (m,)."""
        source, target = self._checked(src_rank), self._checked(dst_rank)
        if source.shape != target.shape:
            raise TopologyError(f"routes need as many sources as targets, found {len(source)} and {len(target)}")
        if np.any(source == target):
            rank = source[np.argmax(source == target)]
            raise TopologyError(f"a route from rank {rank} to itself was asked for: leave such transfers out")
        healthy = join_stages(self.router.stages(self.gpu_of_rank[source], self.gpu_of_rank[target]), len(source))
        if self.layout.node_set.ports_per_gpu > 1 or self.shape.routing == "explicit":
            healthy = healthy.with_each_link_once()
        if self.dead is None:
            return healthy
        return reroute(self.router, healthy, self.dead, pairs=(source, target), why=self.why)

    def over_nvlink(self, src_rank: Ints, dst_rank: Ints) -> Mask:
        """Return a mask of the routes, as of `routes`, that cross NVLink alone."""
        return self.router.over_nvlink(self.gpu_of_rank[src_rank], self.gpu_of_rank[dst_rank])

    def cuts(self) -> Cuts:
        """Return the capacities into and out of every GPU, every node, and every larger set that may bind."""
        layout, gpu = self.layout, self.gpu_of_rank
        nodes, node = layout.node_set, self.host_of_rank
        out, into = (find_capacity(layout, self.fabric, way) for way in ("out", "in"))
        families = [CutFamily("gpu", gpu, out.gpu_Bps, into.gpu_Bps)]
        if nodes.pcie_switches:
            families.append(CutFamily("PCIe switch", pcie_switch_groups(nodes)[gpu], out.switch_Bps, into.switch_Bps))
        families.append(CutFamily("node", node, out.node_Bps, into.node_Bps))
        if nodes.domains < nodes.count:
            families.append(CutFamily("NVLink domain", nodes.domain_of_gpu[gpu], out.domain_Bps, into.domain_Bps))
        for partition, out_Bps, in_Bps in zip(layout.partitions(), out.families, into.families, strict=True):
            families.append(CutFamily(partition.name, partition.group_of_node[node], out_Bps, in_Bps))
        return Cuts(tuple(family for family in families if family.groups > 1))

    def reduction_tree(self) -> Routes:
        """Return a transfer up from all ranks to the switch that reduces, and down; see `switch_reduction`.

        `TopologyError` where the tree has lost a link.
        """
        tree = reduction_tree(self.router, self.gpu_of_rank)
        if self.dead is not None and self.dead[tree.links].any():
            raise TopologyError(
                f"switches cannot reduce after {self.why}: their tree has no other way; ask for an "
                "algorithm that leaves switches out"
            )
        return tree

    def reduction_over_nodes(self, legs: Routes, share: float, depth: int) -> Routes:
        """Return a transfer that NVSwitches reduce inside nodes; see `s2sim.topology.switch_reduction`."""
        return reduction_over_nodes(self.router, self.gpu_of_rank, legs, share, depth)

    def to_networkx(self) -> Any:
        """Return GPUs, interfaces, hosts and switches (``kind``) and directed links, as a `networkx.MultiDiGraph`.

        Links have ``rate_Bps`` and ``latency_ps``. Attributes of the graph are the other fields of the description:
        `load_shape` reads it as a fabric.
        """
        from s2sim.topology.graph_file import to_networkx

        return to_networkx(self)

    def _checked(self, ranks: Any) -> Ints:
        array = np.atleast_1d(np.asarray(ranks))
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TopologyError(f"ranks must be a row of whole numbers, found {array.dtype} of shape {array.shape}")
        array = array.astype(np.int64, copy=False)
        if array.size and (array.min() < 0 or array.max() >= self.workers):
            wrong = array.min() if array.min() < 0 else array.max()
            raise TopologyError(f"rank {wrong} does not exist: there are {self.workers}, from 0 on")
        return array


def build_cluster(shape: ClusterShape, workers: int, *, placement: str = "linear", seed: int = 0) -> Cluster:
    """Return the smallest cluster of ``shape`` that holds ``workers`` ranks, placed by `place_ranks`.

    ``seed`` is that of the hash by which some routings choose a way, and of random placement.
    """
    layout = build_layout(shape, workers)
    gpu_of_rank = place_ranks(layout, placement, seed=seed)
    return Cluster(
        shape=shape,
        workers=workers,
        fabric=build_link_graph(layout),
        gpu_of_rank=gpu_of_rank,
        node_of_rank=layout.node_set.domain_of_gpu[gpu_of_rank],
        layout=layout,
        placement=placement,
        seed=seed,
    )


def fail_links(cluster: Cluster, dead: Mask, why: str) -> Cluster:
    """Return the cluster without its dead links, bool of shape (links,)."""
    return replace(cluster, dead=dead, why=why)


def scale_rates(cluster: Cluster, factors: Floats) -> Cluster:
    """Return the cluster with every link's rate times its factor, float64 of shape (links,)."""
    return replace(cluster, fabric=replace(cluster.fabric, rate_Bps=cluster.fabric.rate_Bps * factors))


def failed_links(cluster: Cluster) -> tuple[Mask, tuple[str, ...]]:
    """Return which links of a cluster are dead, bool of shape (links,), and what has failed, for messages."""
    if cluster.dead is None:
        return np.zeros(len(cluster.fabric), np.bool_), ()
    return cluster.dead, (cluster.why,)
