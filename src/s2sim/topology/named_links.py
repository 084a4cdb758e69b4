"""Single links that differ from the others of their kind: slow cables, mixed rates."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import translate
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.topology.fabric import Fabric

# More names than these are not compared with a pattern that fits none.
_MOST_COMPARED = 2000


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
        found = _found(fabric, item.pattern)
        if not len(found):
            raise _no_such_link(item.pattern, fabric, what)
        if item.rate_Bps is not None:
            rate_Bps[found] = item.rate_Bps
        if item.latency_ps is not None:
            latency_ps[found] = item.latency_ps
    return replace(fabric, rate_Bps=rate_Bps, latency_ps=latency_ps)


def _found(fabric: Fabric, pattern: str) -> NDArray[np.int64]:
    """Return the links whose names fit a pattern."""
    fits = re.compile(translate(pattern)).match
    start = re.match(r"[^*?\[\d]*", pattern)
    found = []
    for block in fabric.blocks.values():
        # Names of a block begin alike: most blocks need no look at each name.
        begin = block.template.partition("{")[0]
        length = min(len(begin), start.end() if start else 0)
        if begin[:length] == pattern[:length]:
            found += [block.start + number for number in range(block.count) if fits(block.name(number))]
    return np.array(found, np.int64)


def _no_such_link(pattern: str, fabric: Fabric, what: str) -> TopologyError:
    """Return the error that names the nearest link, and one link of each kind."""
    # Every so many, so that all kinds and both ends of each are among them.
    compared = fabric.link_names[:: 1 + len(fabric) // _MOST_COMPARED]
    close = get_close_matches(pattern, compared, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    examples = ", ".join(block.name(0) for block in fabric.blocks.values() if block.count)
    return TopologyError(f"{what} has no link {pattern!r} ({hint}there are for example {examples})")
