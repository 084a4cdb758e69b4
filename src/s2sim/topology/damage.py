"""A cluster some of whose links are slow, or have failed for good."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import TopologyError
from s2sim.topology.cluster import Cluster
from s2sim.topology.detours import detour

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints, Mask
    from s2sim.topology.routes import Routes


@dataclass(frozen=True, slots=True, eq=False)
class DamagedCluster(Cluster):
    """A cluster whose routes lead around dead links, bool of shape (links,); ``why`` says what has failed.

    Its cuts are those of the healthy cluster: links that fail never make a lower bound too high.
    """

    dead: Mask
    why: str

    def routes(self, src_rank: Ints, dst_rank: Ints) -> Routes:
        """Return the routes from ``src_rank[i]`` to ``dst_rank[i]``, around what has failed; see `Cluster.routes`."""
        healthy = Cluster.routes(self, src_rank, dst_rank)
        pairs = np.atleast_1d(src_rank), np.atleast_1d(dst_rank)
        return detour(self.router, healthy, self.dead, pairs=pairs, why=self.why)

    def reduction_tree(self) -> Routes:
        """Return the tree over which switches reduce; `TopologyError` where it has lost a link."""
        tree = Cluster.reduction_tree(self)
        if self.dead[tree.links].any():
            raise TopologyError(
                f"switches cannot reduce after {self.why}: their tree has no other way; ask for an "
                "algorithm that leaves switches out"
            )
        return tree


def damage(cluster: Cluster, dead: Mask, why: str) -> DamagedCluster:
    """Return the cluster without its dead links, bool of shape (links,)."""
    return DamagedCluster(**{field.name: getattr(cluster, field.name) for field in fields(cluster)}, dead=dead, why=why)


def slow_down(cluster: Cluster, factors: Floats) -> Cluster:
    """Return the cluster with every link's rate times its factor, float64 of shape (links,)."""
    return replace(cluster, fabric=replace(cluster.fabric, rate_Bps=cluster.fabric.rate_Bps * factors))


def failures(cluster: Cluster) -> tuple[Mask, tuple[str, ...]]:
    """Return which links of a cluster are dead, bool of shape (links,), and what has failed, for messages."""
    if isinstance(cluster, DamagedCluster):
        return cluster.dead, (cluster.why,)
    return np.zeros(len(cluster.fabric), np.bool_), ()
