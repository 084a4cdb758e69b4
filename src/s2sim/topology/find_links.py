"""Links by their names, or by a shell pattern of names."""

from __future__ import annotations

import re
from difflib import get_close_matches
from fnmatch import translate
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import TopologyError

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.topology.fabric import Fabric

# More names than these are not compared with a pattern that fits none.
_MOST_COMPARED = 2000


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
