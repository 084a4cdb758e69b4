"""The kinds of fabric, and the smallest fabric of a shape for a number of workers."""

from s2sim.errors import TopologyError
from s2sim.topology.kinds.direct import DragonflyLayout, RingLayout, TorusLayout
from s2sim.topology.kinds.graph import GraphLayout
from s2sim.topology.kinds.tree import RailOptimisedLayout, TreeLayout
from s2sim.topology.layout import FabricKind, Layout
from s2sim.topology.nodes import fill_nodes
from s2sim.topology.shape import ClusterShape

_LEAVES = {"fabric.hosts_per_leaf": 2, "fabric.uplinks_per_leaf": 2}
_TREE = _LEAVES | {"fabric.leaves_per_pod": 3, "fabric.uplinks_per_aggregation": 3}
_ROUTINGS = ("d-mod-k", "ecmp", "spray")
_GROUPS = dict.fromkeys(("fabric.hosts_per_router", "fabric.routers_per_group", "fabric.global_links_per_router"), 0)
_SIDES = {"fabric.size": 0, "fabric.dimensions": 0}
KINDS: dict[str, FabricKind] = {
    "fat-tree": FabricKind(TreeLayout, levels=(2, 3), fields=_TREE, routings=_ROUTINGS),
    "leaf-spine": FabricKind(TreeLayout, levels=(2,), fields=_TREE, routings=_ROUTINGS),
    "single-switch": FabricKind(TreeLayout, levels=(1,), fields=_TREE),
    "rail-optimised": FabricKind(RailOptimisedLayout, levels=(2,), fields=_LEAVES, routings=_ROUTINGS),
    "ring": FabricKind(RingLayout, host_cable=False),
    "torus": FabricKind(TorusLayout, fields=_SIDES, routings=("dimension-order",), host_cable=False),
    "dragonfly": FabricKind(DragonflyLayout, fields=_GROUPS, routings=("minimal", "valiant")),
    "graph": FabricKind(
        GraphLayout,
        fields={"fabric.file": 0, "fabric.paths": 0},
        routings=("shortest", "ecmp", "k-shortest", "explicit"),
    ),
}
FABRIC_KINDS = tuple(KINDS)
ROUTINGS = tuple(dict.fromkeys(routing for kind in KINDS.values() for routing in kind.routings))


def most_nodes(shape: ClusterShape) -> tuple[int, str] | None:
    """Return the most nodes of a fabric of this shape, and the field that limits them; None for any number."""
    limits = [] if shape.max_nodes is None else [(shape.max_nodes, "fabric.nodes")]
    counts = [node.count for node in shape.nodes]
    if None not in counts:
        limits.append((sum(count or 0 for count in counts), "the count of the last [[nodes]]"))
    of_kind = KINDS[shape.kind].layout.most_nodes(shape)
    return min([*limits, of_kind] if of_kind else limits, default=None)


def most_workers(shape: ClusterShape) -> int | None:
    """Return the most GPUs of a fabric of this shape; None for any number."""
    if (limit := most_nodes(shape)) is None:
        return None
    gpus, nodes = 0, limit[0]
    for node in shape.nodes:
        taken = nodes if node.count is None else min(nodes, node.count)
        gpus, nodes = gpus + taken * node.gpus, nodes - taken
    return gpus


def build_layout(shape: ClusterShape, workers: int) -> Layout:
    """Return the smallest fabric of this shape that holds ``workers`` GPUs."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise TopologyError(f"{workers!r} workers were asked for: a cluster needs a whole number of at least 1")
    places, limit = most_nodes(shape), most_workers(shape)
    if places is not None and limit is not None and workers > limit:
        each = f" x {shape.gpus_per_node} GPUs" if len(shape.nodes) == 1 else ""
        raise TopologyError(
            f"{workers} workers were asked for, {shape.name} holds {limit} ({places[0]} nodes{each}): ask for at most "
            f"{limit} or raise {places[1]}"
        )
    return KINDS[shape.kind].layout.fit(shape, fill_nodes(shape, workers))
