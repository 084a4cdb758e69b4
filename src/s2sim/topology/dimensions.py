"""How many of everything a shape needs for a number of workers.

Trees are extended generalised fat trees (Öhring, Ibel, Das and Kumar, "On generalized fat trees", IPPS 1995): a host
has one way up, a leaf ``uplinks_per_leaf``, an aggregation switch ``uplinks_per_aggregation``. A tree of two levels is
one pod, whose aggregation switches are called spines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.errors import TopologyError

if TYPE_CHECKING:
    from s2sim.topology.shape import ClusterShape


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Counts of one cluster; the last node, leaf and pod may be partial.

    Attributes
    ----------
    workers, nodes, gpus_per_node, nics_per_node : int
        GPUs that work, the nodes that hold them, and what a full node holds.
    hosts_per_leaf, leaves, leaves_per_pod, pods : int
        Nodes below a full leaf switch and so on; a ring counts as one leaf without uplinks.
    uplinks_per_leaf, uplinks_per_aggregation : int
        0 where there is nothing above.
    """

    workers: int
    nodes: int
    gpus_per_node: int
    nics_per_node: int
    hosts_per_leaf: int
    leaves: int
    leaves_per_pod: int
    pods: int
    uplinks_per_leaf: int
    uplinks_per_aggregation: int

    @property
    def ports(self) -> int:
        """Network interfaces of all nodes: the hosts of the tree."""
        return self.nodes * self.nics_per_node

    @property
    def ports_per_leaf(self) -> int:
        """Network interfaces below a full leaf."""
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


def dimensions(shape: ClusterShape, workers: int) -> Dimensions:
    """Return the counts of the smallest cluster of this shape that holds ``workers`` GPUs."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise TopologyError(f"{workers!r} workers were asked for: a cluster needs a whole number of at least 1")
    nodes = _ceil_div(workers, shape.gpus_per_node)
    if shape.max_nodes is not None and nodes > shape.max_nodes:
        limit = shape.max_nodes * shape.gpus_per_node
        raise TopologyError(
            f"{workers} workers were asked for, {shape.name} holds {limit} ({shape.max_nodes} nodes x "
            f"{shape.gpus_per_node} GPUs): ask for at most {limit} or raise fabric.nodes"
        )
    if shape.levels < 2:
        return Dimensions(workers, nodes, shape.gpus_per_node, shape.nics_per_node, nodes, 1, 1, 1, 0, 0)
    hosts = shape.hosts_per_leaf or _smallest_leaf(shape, nodes)
    leaves = _ceil_div(nodes, hosts)
    ports_down = hosts * shape.nics_per_node
    leaves_per_pod = (shape.leaves_per_pod or ports_down) if shape.levels == 3 else leaves
    pods = _ceil_div(leaves, leaves_per_pod)
    return Dimensions(
        workers,
        nodes,
        shape.gpus_per_node,
        shape.nics_per_node,
        hosts,
        leaves,
        leaves_per_pod,
        pods,
        (shape.uplinks_per_leaf or ports_down) if leaves > 1 else 0,
        (shape.uplinks_per_aggregation or leaves_per_pod) if pods > 1 else 0,
    )
