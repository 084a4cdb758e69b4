"""All-reduces along the dimensions of a grid.

A ring reduce-scatter along each dimension in turn, then all-gathers in reverse order. Only D/d_1 bytes pass the second
dimension, and so on; latency grows with the sum of the dimensions instead of their product (Ying et al.,
arXiv:1811.06992, 2018, for two dimensions; Cho et al., MLSys 2019, for any). Parts of the buffer with different orders
of dimensions use all links concurrently (Sack and Gropp, PPoPP 2012).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt, prod
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.algorithms.ring import Ring
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hops
from s2sim.collectives.schedules.groups import arranged, even_groups, joined, schedule_of
from s2sim.collectives.schedules.schedule import Schedule, Stage
from s2sim.errors import ContendedError, OptionError
from s2sim.options import check_options, option_text
from s2sim.topology.cluster import Cluster
from s2sim.topology.kinds.torus import TorusLayout


@dataclass(frozen=True, slots=True)
class Torus:
    """Rings along each dimension of a grid of ranks, in the order of their GPUs."""

    name: ClassVar[str] = "torus"
    source: ClassVar[str] = "Ying et al., arXiv:1811.06992, 2018; split: Sack and Gropp, PPoPP 2012"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce",)
    auto: ClassVar[tuple[str, ...]] = ()
    # Dimensions, such as ``4x4``, of the ranks or of the nodes, whose GPUs are then one more; the last is the innermost
    # and goes first. None takes those of a torus, else the two most nearly equal factors of the nodes.
    size: str | None = None
    # Parts of the buffer that run side by side: one, one for each dimension to begin with, or two of these, one for
    # each direction of the rings
    split: Literal["off", "dimensions", "both-ways"] = "off"

    def __post_init__(self) -> None:
        check_options(self, self.name)
        if self.size is not None and not re.fullmatch(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*", self.size):
            raise OptionError(f"torus: size={self.size} must be whole numbers with x between them, such as 4x4")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; ranks are arranged in the order of their GPUs."""
        sizes = self._sizes(demand.ranks, cluster)
        full = replace(self, size="x".join(map(str, sizes)))
        grid = np.argsort(cluster.gpu_of_rank).reshape(sizes)
        axes = [axis for axis in reversed(range(len(sizes))) if sizes[axis] > 1]
        if self.split == "dimensions" and len(axes) == 1:
            raise OptionError(f"torus: split=dimensions has no effect on size={full.size}, which has one: leave it out")
        orders = [axes] if self.split == "off" else [axes[turn:] + axes[:turn] for turn in range(max(len(axes), 1))]
        directions = (False, True) if self.split == "both-ways" else (False,)
        ways = [(order, back) for order in orders for back in directions]
        cuts = [part * demand.buffer_elements // len(ways) for part in range(len(ways) + 1)]
        lanes = [
            _dimension_rounds(grid, order, (begin, end), demand.buffer_bytes / len(ways), back=back)
            for (order, back), (begin, end) in zip(ways, pairwise(cuts), strict=True)
        ]
        stage = lanes[0] if self.split == "off" else arranged([(lane, ()) for lane in lanes])
        return schedule_of(demand, option_text(full), stage)

    def _sizes(self, ranks: int, cluster: Cluster) -> tuple[int, ...]:
        """Return the dimensions, the innermost last."""
        counts = np.bincount(cluster.node_of_rank)
        nodes, gpus = len(counts), int(counts.max())
        if counts.min() < gpus:
            raise OptionError(
                f"torus: as many ranks are needed on every node, found {counts.min()} to {gpus}: fill the nodes"
            )
        inside = (gpus,) if gpus > 1 else ()
        if self.size is not None:
            sizes = _parse_size(self.size)
            if prod(sizes) not in (ranks, nodes):
                raise OptionError(
                    f"torus: size={self.size} needs {prod(sizes)} ranks or nodes, found {ranks} ranks on {nodes}: give "
                    "a size that fits"
                )
            return sizes if prod(sizes) == ranks else sizes + inside
        if isinstance(cluster.layout, TorusLayout):
            sizes = cluster.layout.sizes
            if prod(sizes) != nodes:
                raise OptionError(
                    f"torus: {nodes} nodes do not fill the {'x'.join(map(str, sizes))} places of {cluster.shape.name}: "
                    "give size or as many workers as it has places for"
                )
            return sizes + inside
        side = next(side for side in range(isqrt(nodes), 0, -1) if nodes % side == 0)
        return (side, nodes // side, *inside)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time without shared links, of a size that is given in full.

        The sum of 2(d_i - 1)(L + D/(d_1···d_i·B)) over the dimensions, the innermost first, with their routes.
        """
        if demand.ranks == 1:
            return 0.0
        if self.split != "off" or self.size is None:
            raise ContendedError("torus has a closed form for a size in ranks without split: simulate it instead")
        sizes = _parse_size(self.size)
        if prod(sizes) != demand.ranks:
            raise OptionError(f"torus: size={self.size} is not of {demand.ranks} ranks: name all dimensions")
        gpus = demand.ranks // hops.nodes
        total_s, inner = 0.0, 1
        for side in reversed(sizes):
            outer = inner * side
            ways = hops.within_nodes() if gpus % outer == 0 else hops.between_nodes() if inner >= gpus else hops
            total_s += 2 * (side - 1) * ways.round_s(demand.buffer_bytes / outer)
            inner = outer
        return total_s


def _parse_size(size: str) -> tuple[int, ...]:
    return tuple(map(int, size.split("x")))


def _dimension_rounds(
    grid: Ints, order: Sequence[int], part: tuple[int, int], size_bytes: float, *, back: bool
) -> Stage:
    """Return the rounds of one part of the buffer along the axes of the grid in this order, and in reverse order."""
    begin, end = (np.full(grid.size, cut, np.int64) for cut in part)
    scatters, gathers = [], []
    for axis in order:
        rows = np.moveaxis(grid, axis, -1).reshape(-1, grid.shape[axis])
        if back:
            rows = rows[:, ::-1]
        groups = even_groups(rows, begin[rows[:, 0]], end[rows[:, 0]], size_bytes)
        scatters.append(Ring().stage("reduce_scatter", groups))
        gathers.append(Ring().stage("all_gather", groups))
        begin[rows], end[rows] = groups.begin, groups.end
        size_bytes /= grid.shape[axis]
    return joined([*scatters, *reversed(gathers)])
