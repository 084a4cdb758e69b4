"""Links by their names: which they are, and those that differ from others of their kind (slow cables, mixed rates)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import translate
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import TopologyError
from s2sim.topology.fabric import build_fabric
from s2sim.topology.node_links import node_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.kinds.layout import Layout


# More names than these are not compared with a pattern that fits none.
_MOST_COMPARED = 2000


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


def find_links(fabric: Fabric, pattern: str, what: str) -> Ints:
    """Return the numbers of the links that a name or a shell pattern (``*``, ``?``) names, int64, in order.

    Where there is none, `TopologyError` tells the nearest link of ``what`` and one link of each kind.
    """
    fits = re.compile(translate(pattern)).match
    start = re.match(r"[^*?\[\d]*", pattern)
    found = []
    for block in fabric.blocks.values():
        # Names of a block begin alike: most blocks need no look at each name.
        begin = block.template.partition("{")[0]
        length = min(len(begin), start.end() if start else 0)
        if begin[:length] == pattern[:length]:
            found += [block.start + number for number in range(block.count) if fits(block.name(number))]
    if found:
        return np.sort(np.array(found, np.int64))
    # Every so many, so that all kinds and both ends of each are among them.
    compared = fabric.link_names[:: 1 + len(fabric) // _MOST_COMPARED]
    close = get_close_matches(pattern, compared, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    examples = ", ".join(block.name(0) for block in fabric.blocks.values() if block.count)
    raise TopologyError(f"{what} has no link {pattern!r} ({hint}there are for example {examples})")
