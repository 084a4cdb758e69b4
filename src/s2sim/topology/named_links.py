"""Single links that differ from the others of their kind: slow cables, mixed rates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.topology.find_links import find_links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.topology.fabric import Fabric


@dataclass(frozen=True, slots=True)
class NamedLinks:
    """What the links of some names do.

    Attributes
    ----------
    pattern : str
        A link's name, or a shell pattern (``*``, ``?``) for several: ``"leaf3.up*"``.
    rate_Bps : float or None
        Bytes per second; None leaves it.
    latency_ps : int or None
        Picoseconds; None leaves it.
    """

    pattern: str
    rate_Bps: float | None
    latency_ps: int | None


def with_named_links(fabric: Fabric, named: Sequence[NamedLinks], what: str) -> Fabric:
    """Return the graph with the rates and latencies of named links.

    Parameters
    ----------
    fabric : Fabric
        All links as their kinds are.
    named : sequence of NamedLinks
        Later ones win.
    what : str
        Names the cluster in an error.

    Raises
    ------
    TopologyError
        For a pattern that no link has.
    """
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
