"""A cluster shape at a number of workers: what every other room takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import TopologyError
from s2sim.topology.cuts import find_cuts
from s2sim.topology.dimensions import Dimensions, dimensions
from s2sim.topology.fabric import Fabric, build_fabric
from s2sim.topology.placement import place
from s2sim.topology.routes import Routes, join_stages
from s2sim.topology.routing import Router

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.cuts import Cuts
    from s2sim.topology.shape import ClusterShape


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Nodes, links and the place of every rank.

    Attributes
    ----------
    shape : ClusterShape
        The checked description file.
    workers : int
        Ranks, one a GPU.
    fabric : Fabric
        All directed links.
    gpu_of_rank, node_of_rank : int64 array, shape (workers,)
        Where each rank runs.
    dims : Dimensions
        How many of everything there are.
    placement : str
        ``"linear"`` or ``"round-robin"``.
    seed : int
        Of the hash by which ECMP chooses.
    """

    shape: ClusterShape
    workers: int
    fabric: Fabric
    gpu_of_rank: NDArray[np.int64]
    node_of_rank: NDArray[np.int64]
    dims: Dimensions
    placement: str
    seed: int

    @property
    def router(self) -> Router:
        """What finds the way between two GPUs."""
        return Router(self.shape, self.dims, self.fabric, self.seed)

    def routes(self, src_rank: NDArray[np.int64], dst_rank: NDArray[np.int64]) -> Routes:
        """Return the routes from ``src_rank[i]`` to ``dst_rank[i]``, both int64 arrays of shape (m,).

        Raises
        ------
        TopologyError
            For a rank that does not exist, or a transfer from a rank to itself, which needs no network.
        """
        source, target = self._checked(src_rank), self._checked(dst_rank)
        if source.shape != target.shape:
            raise TopologyError(f"routes need as many sources as targets, found {len(source)} and {len(target)}")
        if np.any(source == target):
            rank = source[np.argmax(source == target)]
            raise TopologyError(f"a route from rank {rank} to itself was asked for: leave such transfers out")
        stages = self.router.stages(self.gpu_of_rank[source], self.gpu_of_rank[target])
        return join_stages(stages, len(source))

    def cuts(self) -> Cuts:
        """Return the capacities into and out of every GPU, node, leaf and pod."""
        return find_cuts(self.shape, self.dims, self.gpu_of_rank)

    def _checked(self, ranks: Any) -> NDArray[np.int64]:
        array = np.atleast_1d(np.asarray(ranks))
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TopologyError(f"ranks must be a row of whole numbers, found {array.dtype} of shape {array.shape}")
        array = array.astype(np.int64, copy=False)
        if array.size and (array.min() < 0 or array.max() >= self.workers):
            wrong = array.min() if array.min() < 0 else array.max()
            raise TopologyError(f"rank {wrong} does not exist: there are {self.workers}, from 0 on")
        return array


def build_cluster(shape: ClusterShape, workers: int, *, placement: str = "linear", seed: int = 0) -> Cluster:
    """Return the smallest cluster of ``shape`` that holds ``workers`` ranks.

    Parameters
    ----------
    shape : ClusterShape
        From `load_shape`.
    workers : int
        Ranks, one a GPU; nodes fill in order, the last may be partial.
    placement : str
        ``"linear"`` (rank r on the r-th GPU) or ``"round-robin"`` (dealt over leaves and nodes).
    seed : int
        Of the hash by which ECMP chooses.
    """
    dims = dimensions(shape, workers)
    gpu_of_rank = place(dims, placement)
    return Cluster(
        shape=shape,
        workers=workers,
        fabric=build_fabric(shape, dims),
        gpu_of_rank=gpu_of_rank,
        node_of_rank=gpu_of_rank // dims.gpus_per_node,
        dims=dims,
        placement=placement,
        seed=seed,
    )
