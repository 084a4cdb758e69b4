"""A cluster's shape as its file states it: what a node holds and how nodes are joined, for any number of workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.topology.quantity import Quantity


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """What one direction of a link does.

    Attributes
    ----------
    rate_Bps : float
        Bytes per second.
    latency_ps : int
        Picoseconds from the first bit sent to the first bit received.
    """

    rate_Bps: float
    latency_ps: int


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """One description file, checked.

    Attributes
    ----------
    name, description, source, file : str
        For reading; ``source`` tells where the shape comes from, ``file`` which file was read.
    gpus_per_node : int
        GPUs of a full node.
    nvlink, pcie : LinkSpec or None
        Each GPU's port to the others of its node, and to the node's network interfaces.
    nics_per_node : int
        Network interfaces of a node; GPU g uses number ``g * nics_per_node // gpus_per_node``.
    nic : LinkSpec
        One interface.
    kind : str
        Kind of fabric, a key of `s2sim.topology.kinds.KINDS`.
    host_cable : bool
        Whether a cable leads from each interface to a switch; if not, the interface ends at its node's own stop.
    levels : int
        Levels of switches of a tree; 1 for a single switch, 0 where there is no tree.
    hosts_per_leaf, uplinks_per_leaf, leaves_per_pod, uplinks_per_aggregation : int or None
        Of a tree or rail-optimised fabric; None where the smallest non-blocking one is to be taken.
    size : tuple of int, or None
        Nodes along each dimension of a torus.
    dimensions : int or None
        Dimensions of a torus without size.
    hosts_per_router, routers_per_group, global_links_per_router : int or None
        Of a dragonfly; None where the smallest balanced one is to be taken.
    max_nodes : int or None
        As many nodes as the fabric has places for; None for any number.
    link : LinkSpec
        One link between switches, or between neighbours on a ring or torus.
    routing : str
        Rule by which a way is chosen, where there are several.
    quantities : tuple of Quantity
        Every field that was given, with kind and source.
    """

    name: str
    description: str
    source: str
    file: str
    gpus_per_node: int
    nvlink: LinkSpec | None
    pcie: LinkSpec | None
    nics_per_node: int
    nic: LinkSpec
    kind: str
    host_cable: bool
    levels: int
    hosts_per_leaf: int | None
    uplinks_per_leaf: int | None
    leaves_per_pod: int | None
    uplinks_per_aggregation: int | None
    size: tuple[int, ...] | None
    dimensions: int | None
    hosts_per_router: int | None
    routers_per_group: int | None
    global_links_per_router: int | None
    max_nodes: int | None
    link: LinkSpec
    routing: str
    quantities: tuple[Quantity, ...]

    @property
    def host_link(self) -> LinkSpec:
        """What joins a network interface to the fabric.

        Where there is a cable one link, through the interface and the cable; on a ring or torus the interface alone,
        because the links between neighbours stand for themselves.
        """
        if not self.host_cable:
            return self.nic
        return LinkSpec(min(self.nic.rate_Bps, self.link.rate_Bps), self.nic.latency_ps + self.link.latency_ps)


def with_rate(shape: ClusterShape, field: str, rate_Bps: float) -> ClusterShape:
    """Return the shape with another ``nic.rate``, ``nvlink.rate`` or ``pcie.rate``, as an override would give it.

    Links between switches follow the interfaces where the file gives them no rate of their own.
    """
    table = field.partition(".")[0]
    changed = {table: replace(getattr(shape, table), rate_Bps=rate_Bps)}
    if table == "nic" and all(item.field != "fabric.link.rate" for item in shape.quantities):
        changed["link"] = replace(shape.link, rate_Bps=rate_Bps)
    return replace(shape, **changed)
