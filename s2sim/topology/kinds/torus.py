"""Tori of any number of dimensions: every node has a stop, cabled to the next one each way in every dimension.

Stops are numbered row by row, the last dimension fastest; node i is at stop i, and stops after the last node forward
only. Routing is dimension-order (Dally and Seitz, "Deadlock-free message routing in multiprocessor interconnection
networks", IEEE Transactions on Computers C-36, 1987), in each dimension the shorter way, ties positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.topology.graph import Fabric, LinkPart, RouteStage, index_splitter, series_stage
from s2sim.topology.layout import FabricKind, Layout, Partition
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import ClusterShape
from s2sim.units import format_rate


@dataclass(frozen=True, slots=True)
class TorusLayout(Layout):
    """Stops and the links between neighbours: one link per direction between two stops, none for one stop."""

    sizes: tuple[int, ...]

    usual_dimensions: ClassVar[int] = 3  # If neither they nor a size are given
    least_both_ways: ClassVar[int] = 3  # Stops of a dimension with links in the negative direction too
    link_class: ClassVar[str] = "torus"

    @classmethod
    def most_nodes(cls, shape: ClusterShape) -> tuple[int, str] | None:
        """Return the stops of a torus of given size."""
        return None if shape.size is None else (prod(shape.size), "fabric.size")

    @classmethod
    def fit(cls, shape: ClusterShape, nodes: Nodes) -> Self:
        """Return the torus of the size that is given, or the smallest with sides that differ by one at most."""
        dimensions, count = shape.dimensions or cls.usual_dimensions, nodes.count
        longest = max(1, int(count ** (1 / dimensions)) - 1)
        while longest**dimensions < count:
            longest += 1
        choices = [(*[longest] * (dimensions - shorter), *[longest - 1] * shorter) for shorter in range(dimensions)]
        sizes = shape.size or min((sides for sides in choices if prod(sides) >= count), key=prod)
        return cls(shape, nodes, count, 1, sizes)

    @property
    def strides(self) -> tuple[int, ...]:
        """Differences of the numbers of neighbours in each dimension."""
        return tuple(prod(self.sizes[dimension + 1 :]) for dimension in range(len(self.sizes)))

    @property
    def occupied(self) -> tuple[int, ...]:
        """Coordinates 0, 1, ... along each dimension at which there are nodes."""
        last = self.nodes - 1
        return tuple(
            size if last // (stride * size) else last // stride % size + 1
            for size, stride in zip(self.sizes, self.strides, strict=True)
        )

    @property
    def switches(self) -> int:
        """Stops, with a node or without."""
        return prod(self.sizes)

    def steps(self, dimension: int) -> tuple[int, ...]:
        """Return the directions in which links lead along a dimension: 1, or 1 and -1."""
        size = self.sizes[dimension]
        return (1, -1) if size >= max(2, self.least_both_ways) else (1,) if size > 1 else ()

    def way_name(self, dimension: int, step: int) -> str:
        """Return the name of the links of one direction."""
        return f"dim{dimension}.{'plus' if step > 0 else 'minus'}"

    def switch_of_port(self, port: Ints) -> Ints:
        """Return the stop of each interface."""
        return self.node_set.node_of_port[port]

    def parts(self) -> list[LinkPart]:
        """Return a link from every stop in every direction."""
        return [
            LinkPart(
                f"{self.link_class}.{self.way_name(dimension, step)}",
                self.link_class,
                self.shape.link.rate_Bps,
                self.shape.link.latency_ps,
                f"node{{}}.{self.way_name(dimension, step)}",
                index_splitter(),
                self.switches,
                partial(self._ends, dimension, step),
            )
            for dimension in range(len(self.sizes))
            for step in self.steps(dimension)
        ]

    def _ends(self, dimension: int, step: int, index: Ints) -> tuple[Ints, Ints]:
        return self.first_switch + index, self.first_switch + self._moved(dimension, index, step)

    def _moved(self, dimension: int, stop: Ints, steps: int | Ints) -> Ints:
        """Return the stops some steps away in one dimension."""
        size, stride = self.sizes[dimension], self.strides[dimension]
        coordinate = stop // stride % size
        return stop + ((coordinate + steps) % size - coordinate) * stride

    def stages(self, fabric: Fabric, source: Ints, target: Ints, outside: Mask, seed: int) -> list[RouteStage]:
        """Return the shorter way along each dimension in turn; ties go in the positive direction."""
        at, target = self.switch_of_port(source), self.switch_of_port(target)
        stages = []
        for dimension, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            forward = (target // stride - at // stride) % size
            positive = forward <= size - forward
            for step in self.steps(dimension):
                distance = forward if step > 0 else size - forward
                hops = np.where(outside & (positive == (step > 0)), distance, 0)
                # Consecutive links along this dimension from each stop.
                block = fabric.blocks[f"{self.link_class}.{self.way_name(dimension, step)}"]
                along = np.arange(hops.sum()) - np.repeat(np.cumsum(hops) - hops, hops)
                stop = self._moved(dimension, np.repeat(at, hops), step * along)
                stages.append(series_stage(fabric, block.start + stop, hops))
            at = self._moved(dimension, at, forward)
        return stages

    def hops(self) -> tuple[int, int]:
        """Return 1, and the sum of the longest distances along each dimension.

        In all dimensions after the first one with several nodes, that is half way round.
        """
        sizes, occupied = self.sizes, self.occupied
        first = next(dimension for dimension, side in enumerate(occupied) if side > 1)
        return 1, min(occupied[first] - 1, sizes[first] // 2) + sum(size // 2 for size in sizes[first + 1 :])

    def partitions(self) -> list[Partition]:
        """Return the planes across each dimension, and the two slabs that halve it, of the stops with a node."""
        stop = np.arange(self.switches, dtype=np.int64)
        found = []
        for dimension, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            side = self.occupied[dimension]
            plane = np.where(stop // stride % size < side, stop // stride % size, -1)
            groups = [("plane", plane)] if self.switches > size else []
            if side > 3:
                groups.append(("slab", np.where(plane < 0, -1, plane * 2 // side)))
            found += [Partition(f"dimension-{dimension} {name}", group[: self.nodes], group) for name, group in groups]
        return found

    def halves(self) -> list[Mask]:
        """Return the planes on one side of the middle of each dimension along which there are several nodes.

        With N stops and a side of k > 2, 2 N / k links lead out of them in each direction (Dally and Towles,
        "Principles and Practices of Interconnection Networks", 2004, section 5.2.1).
        """
        stop = np.arange(self.switches)
        return [
            stop // stride % size < side // 2
            for size, stride, side in zip(self.sizes, self.strides, self.occupied, strict=True)
            if side > 1
        ]

    def describe(self, oversubscription: float | None) -> list[str]:
        """Return sides and rate."""
        return [f"torus of {' x '.join(map(str, self.sizes))}", f"links of {format_rate(self.shape.link.rate_Bps)}"]

    def counts(self) -> dict[str, Any]:
        """Return the sides."""
        return {"size": list(self.sizes)}


TORUS = FabricKind(
    TorusLayout, fields={"fabric.size": 0, "fabric.dimensions": 0}, routings=("dimension-order",), host_cable=False
)


@dataclass(frozen=True, slots=True)
class RingLayout(TorusLayout):
    """A stop a node; two nodes have two cables."""

    usual_dimensions: ClassVar[int] = 1
    least_both_ways: ClassVar[int] = 2
    link_class: ClassVar[str] = "ring"

    def way_name(self, dimension: int, step: int) -> str:
        """Return the name of the links of one direction."""
        return "clockwise" if step > 0 else "counterclockwise"

    def describe(self, oversubscription: float | None) -> list[str]:
        """Return the rate."""
        return [f"ring links of {format_rate(self.shape.link.rate_Bps)}"]

    def counts(self) -> dict[str, Any]:
        """Return nothing: a ring is described by its nodes."""
        return {}


RING = FabricKind(RingLayout, host_cable=False)
