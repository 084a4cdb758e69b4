"""Single links that differ from the others of their kind: slow cables, mixed rates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.topology.fabric import build_fabric
from s2sim.topology.find_links import find_links
from s2sim.topology.node_links import node_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.topology.fabric import Fabric
    from s2sim.topology.kinds.layout import Layout


@dataclass(frozen=True, slots=True)
class NamedLinks:
    """Another rate (bytes per second) or latency (picoseconds) of the links of some names; None leaves it as it is.

    ``pattern`` is a link's name, or a shell pattern (``*``, ``?``) for several: ``"leaf3.up*"``.
    """

    pattern: str
    rate_Bps: float | None
    latency_ps: int | None


def link_graph(layout: Layout) -> Fabric:
    """Return the graph of all links of a layout, named ones with the rates and latencies of their own."""
    dims = layout.dims
    what = f"{layout.shape.name} with {dims.workers} workers"
    fabric = build_fabric(node_parts(layout) + layout.parts(), dims.workers, dims.nodes, what)
    return with_named_links(fabric, layout.shape.named_links, what)


def with_named_links(fabric: Fabric, named: Sequence[NamedLinks], what: str) -> Fabric:
    """Return the graph with the rates and latencies of named links, of which later ones win."""
    if not named:
        return fabric
    rate_Bps, latency_ps = fabric.rate_Bps.copy(), fabric.latency_ps.copy()
    for item in named:
        found = find_links(fabric, item.pattern, what)
        if item.rate_Bps is not None:
            rate_Bps[found] = item.rate_Bps
        if item.latency_ps is not None:
            latency_ps[found] = item.latency_ps
    return replace(fabric, rate_Bps=rate_Bps, latency_ps=latency_ps)
