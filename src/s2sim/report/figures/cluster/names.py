"""Names of the parts of a cluster in its picture, and which of many are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.report.figures.cluster.graph import ClusterGraph, Parts


def shortened(names: Sequence[int], places: int) -> tuple[list[int], list[int], list[int]]:
    """Return which of ``names`` are shown first, which are left out and which is shown last.

    Not one alone is left out: what stands for it would take its place.

    >>> shortened(range(9), 3), shortened(range(4), 3)
    (([0, 1], [2, 3, 4, 5, 6, 7], [8]), ([0, 1], [2, 3], []))
    """
    if len(names) <= places:
        return list(names), [], []
    if len(names) == places + 1:
        return list(names[: places - 1]), list(names[places - 1 :]), []
    return list(names[: places - 1]), list(names[places - 1 : -1]), [names[-1]]


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names of vertices and parts."""

    graph: ClusterGraph
    parts: Parts

    @property
    def _first_switch(self) -> int:
        return self.graph.gpus + self.graph.nodes

    def _switch(self, level: int) -> str:
        above = level - 1 - int(self.parts.level[self.graph.gpus])
        names = self.graph.switch_names
        return names[above] if 0 <= above < len(names) else "switch"

    def of_vertex(self, vertex: int) -> tuple[str, str, int]:
        """Return the kind of a vertex's box, what it is called, and its number among its like."""
        graph, level = self.graph, self.parts.level
        if vertex < graph.gpus:
            return "gpu", "GPU", int(graph.rank_of_gpu[vertex])
        if vertex < self._first_switch:
            return "node", "node", vertex - graph.gpus
        name = self._switch(int(level[vertex]))
        before = np.count_nonzero(level[self._first_switch : vertex] == level[vertex])
        return ("switch" if name else "dot"), name, int(before)

    def of_part(self, level: int, part: int) -> str:
        """Return what a part of a level is called."""
        own = self.parts.own(level, part)
        if level == 0:
            return "GPU"
        if not len(own):
            return "group"
        if own[0] < self._first_switch:
            return "node"
        if len(own) == 1:
            return self._switch(level) or "node"
        return "pod" if level > 1 + int(self.parts.level[self.graph.gpus]) else "group"
