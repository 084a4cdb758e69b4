"""A cluster shape at a number of workers: what every other room takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import TopologyError
from s2sim.topology.cuts import find_cuts
from s2sim.topology.kinds import lay_out
from s2sim.topology.named_links import link_graph
from s2sim.topology.placement import place
from s2sim.topology.reduction import reduction_over_nodes, reduction_tree
from s2sim.topology.routes import Routes, join_stages
from s2sim.topology.routing import Router

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints, Mask
    from s2sim.topology.cuts import Cuts
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.kinds.layout import Dimensions, Layout
    from s2sim.topology.shape import ClusterShape


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Nodes, links and the place of every rank: which GPU and which node it runs on, int64 of shape (workers,).

    ``node_of_rank`` counts nodes as collectives do, who take those that NVSwitches join, one domain, for one.
    ``seed`` is that of the hash by which some routings choose a way, and of random placement.
    """

    shape: ClusterShape
    workers: int
    fabric: Fabric
    gpu_of_rank: Ints
    node_of_rank: Ints
    layout: Layout
    placement: str
    seed: int

    @property
    def host_of_rank(self) -> Ints:
        """The node that each rank runs on, int64 of shape (workers,), where others of its domain are others."""
        return self.dims.node_set.node_of_gpu[self.gpu_of_rank]

    def within(self, ranks: Sequence[int]) -> Cluster:
        """Return the same cluster as a group of some ranks sees it, who are numbered from 0 in this order."""
        members = self._checked(ranks)
        return replace(
            self, workers=len(members), gpu_of_rank=self.gpu_of_rank[members], node_of_rank=self.node_of_rank[members]
        )

    @property
    def dims(self) -> Dimensions:
        """How many of everything there are."""
        return self.layout.dims

    @property
    def routing_draws(self) -> bool:
        """Whether the seed decides any way."""
        return self.layout.draws

    @property
    def router(self) -> Router:
        """The router, which finds the way between two GPUs."""
        return Router(self.layout, self.fabric, self.seed)

    def routes(self, src_rank: Ints, dst_rank: Ints) -> Routes:
        """Return the routes from ``src_rank[i]`` to ``dst_rank[i]``, both int64 arrays of shape (m,)."""
        source, target = self._checked(src_rank), self._checked(dst_rank)
        if source.shape != target.shape:
            raise TopologyError(f"routes need as many sources as targets, found {len(source)} and {len(target)}")
        if np.any(source == target):
            rank = source[np.argmax(source == target)]
            raise TopologyError(f"a route from rank {rank} to itself was asked for: leave such transfers out")
        stages = self.router.stages(self.gpu_of_rank[source], self.gpu_of_rank[target])
        return join_stages(stages, len(source))

    def over_nvlink(self, src_rank: Ints, dst_rank: Ints) -> Mask:
        """Return which ways from ``src_rank[i]`` to ``dst_rank[i]``, int64 of shape (m,), cross NVLink alone."""
        return self.router.over_nvlink(self.gpu_of_rank[src_rank], self.gpu_of_rank[dst_rank])

    def cuts(self) -> Cuts:
        """Return the capacities into and out of every GPU, every node, and every larger set that may bind."""
        return find_cuts(self.layout, self.fabric, self.gpu_of_rank)

    def reduction_tree(self) -> Routes:
        """Return a transfer up from all ranks to the switch that reduces, and down; see `s2sim.topology.reduction`."""
        return reduction_tree(self.router, self.gpu_of_rank)

    def reduction_over_nodes(self, legs: Routes, share: float, depth: int) -> Routes:
        """Return a transfer that NVSwitches reduce inside nodes; see `s2sim.topology.reduction`."""
        return reduction_over_nodes(self.router, self.gpu_of_rank, legs, share, depth)

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
    """Return the smallest cluster of ``shape`` that holds ``workers`` ranks, placed as `topology.placement.place` says.

    ``seed`` is that of the hash by which some routings choose a way, and of random placement.
    """
    layout = lay_out(shape, workers)
    dims = layout.dims
    gpu_of_rank = place(dims, placement, seed=seed)
    return Cluster(
        shape=shape,
        workers=workers,
        fabric=link_graph(layout),
        gpu_of_rank=gpu_of_rank,
        node_of_rank=dims.node_set.domain_of_gpu[gpu_of_rank],
        layout=layout,
        placement=placement,
        seed=seed,
    )
