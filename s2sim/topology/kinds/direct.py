"""Networks without levels: tori and rings, and dragonflies.

Tori have any number of dimensions: every node has a stop, cabled to the next one each way in every dimension.

Stops are numbered row by row, the last dimension fastest; node i is at stop i, and stops after the last node forward
only. Routing is dimension-order (Dally and Seitz, "Deadlock-free message routing in multiprocessor interconnection
networks", IEEE Transactions on Computers C-36, 1987), in each dimension the shorter way, ties positive.

Dragonflies (Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly topology", ISCA 2008).

A router has p hosts, a - 1 local links and h global links, so there are at most a h + 1 groups; balanced: a = 2p = 2h.
Slot q of a group's global links belongs to router q // h. With G groups, slots are assigned in rounds to the groups at
offsets 1, 2, ..., G - 1; remaining slots go in pairs to offsets 1 and -1, 2 and -2, ..., and an odd one, if G is even,
to the opposite group. The c-th link of group A to B is the c-th link of B to A.

Routing ``minimal`` (section 4.1, MIN) takes at most three links; ``valiant`` (VAL) passes a random third group, if
there is one, between groups. Groups and parallel links are chosen by a seeded hash of both ends.
"""

from dataclasses import dataclass
from functools import partial
from itertools import count
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.topology.graph import Fabric, LinkPart, RouteStage, hash_choice, index_splitter, parallel_stage, series_stage
from s2sim.topology.layout import Layout, Partition
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import ClusterShape
from s2sim.units import format_number_of, format_rate


@dataclass(frozen=True, slots=True)
class TorusLayout(Layout):
    """Stops and the links between neighbours: one link per direction between two stops, none for one stop."""

    sizes: tuple[int, ...]

    usual_dimensions: ClassVar[int] = 3  # If neither they nor a size are given
    least_both_ways: ClassVar[int] = 3  # Stops of a dimension with links in the negative direction too
    link_class: ClassVar[str] = "torus"

    @classmethod
    def most_nodes(cls, shape: ClusterShape) -> tuple[int, str] | None:
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
        return prod(self.sizes)

    def steps(self, dimension: int) -> tuple[int, ...]:
        """Return the directions in which links lead along a dimension: 1, or 1 and -1."""
        size = self.sizes[dimension]
        return (1, -1) if size >= max(2, self.least_both_ways) else (1,) if size > 1 else ()

    def way_name(self, dimension: int, step: int) -> str:
        """Return the name of the links of one direction."""
        return f"dim{dimension}.{'plus' if step > 0 else 'minus'}"

    def switch_of_port(self, port: Ints) -> Ints:
        return self.node_set.node_of_port[port]

    def parts(self) -> list[LinkPart]:
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
                hops = np.where(outside & (positive == (step > 0)), forward if step > 0 else size - forward, 0)
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
        return [f"torus of {' x '.join(map(str, self.sizes))}", f"links of {format_rate(self.shape.link.rate_Bps)}"]

    def counts(self) -> dict[str, Any]:
        return {"size": list(self.sizes)}


@dataclass(frozen=True, slots=True)
class RingLayout(TorusLayout):
    """A stop a node; two nodes have two cables."""

    usual_dimensions: ClassVar[int] = 1
    least_both_ways: ClassVar[int] = 2
    link_class: ClassVar[str] = "ring"

    def way_name(self, dimension: int, step: int) -> str:
        return "clockwise" if step > 0 else "counterclockwise"

    def describe(self, oversubscription: float | None) -> list[str]:
        return [f"ring links of {format_rate(self.shape.link.rate_Bps)}"]

    counts = Layout.counts


@dataclass(frozen=True, slots=True)
class DragonflyLayout(Layout):
    """Routers, local links inside groups and global links between them; ``leaves`` are the routers with nodes."""

    routers_per_group: int
    global_links_per_router: int
    groups: int

    @classmethod
    def most_nodes(cls, shape: ClusterShape) -> tuple[int, str] | None:
        hosts, routers, links = shape.hosts_per_router, shape.routers_per_group, shape.global_links_per_router
        if hosts is None or routers is None or links is None:
            return None
        return hosts * routers * (routers * links + 1), "fabric.routers_per_group"

    @classmethod
    def fit(cls, shape: ClusterShape, nodes: Nodes) -> Self:
        """Return the dragonfly with as many groups as needed.

        Defaults are those of the smallest balanced one, in which the interfaces of a router's nodes count as p hosts.
        """
        for balance in count(1):
            terminals = balance * nodes.most_nics
            hosts = shape.hosts_per_router or balance
            routers = shape.routers_per_group or 2 * terminals
            links = shape.global_links_per_router or terminals
            if hosts * routers * (routers * links + 1) >= nodes.count:
                break
        return cls(shape, nodes, hosts, -(-nodes.count // hosts), routers, links, -(-nodes.count // (hosts * routers)))

    @property
    def rounds(self) -> int:
        """Global links that join any two groups at least."""
        return self.routers_per_group * self.global_links_per_router // max(1, self.groups - 1)

    @property
    def extra_offsets(self) -> tuple[int, ...]:
        """Offsets of the groups to which there is one more link than to others."""
        if self.groups < 2:
            return ()
        left = self.routers_per_group * self.global_links_per_router % (self.groups - 1)
        near = [offset for pair in range(1, left // 2 + 1) for offset in (pair, self.groups - pair)]
        return (*near, self.groups // 2) if left % 2 and self.groups % 2 == 0 else tuple(near)

    @property
    def slots(self) -> int:
        """Global links of a group."""
        return self.rounds * (self.groups - 1) + len(self.extra_offsets)

    @property
    def switches(self) -> int:
        return self.groups * self.routers_per_group

    @property
    def draws(self) -> bool:
        """Whether there are several groups or links to choose from."""
        return self.groups > 1 and (self._detours or self.rounds + bool(self.extra_offsets) > 1)

    @property
    def _detours(self) -> bool:
        return self.shape.routing == "valiant" and self.groups > 2

    def parts(self) -> list[LinkPart]:
        """Return the local links (port k of router i leads to router k, or k + 1 from k = i on) and the global ones."""
        link = self.shape.link
        rate_Bps, latency_ps = link.rate_Bps, link.latency_ps
        ports = self.routers_per_group - 1
        local = ("router{}.local{}", index_splitter(ports), self.switches * ports, self._local_ends)
        slots = ("group{}.global{}", index_splitter(self.slots), self.groups * self.slots, self._global_ends)
        return [
            LinkPart("local", "local", rate_Bps, latency_ps, *local),
            LinkPart("global", "global", rate_Bps, latency_ps, *slots),
        ]

    def _local_ends(self, index: Ints) -> tuple[Ints, Ints]:
        router, port = np.divmod(index, self.routers_per_group - 1)
        group, place = np.divmod(router, self.routers_per_group)
        other = port + (port >= place)
        return self.first_switch + router, self.first_switch + group * self.routers_per_group + other

    def _global_ends(self, index: Ints) -> tuple[Ints, Ints]:
        group, slot = np.divmod(index, self.slots)
        number, offset = np.divmod(slot, self.groups - 1)
        offset += 1
        for place, extra in enumerate(self.extra_offsets):
            offset[slot == self.rounds * (self.groups - 1) + place] = extra
        return (
            self.first_switch + self._router(group, slot),
            self.first_switch + self._router((group + offset) % self.groups, self._slot(self.groups - offset, number)),
        )

    def _router(self, group: Ints, slot: Ints) -> Ints:
        return group * self.routers_per_group + slot // self.global_links_per_router

    def _slot(self, offset: Ints, number: Ints) -> Ints:
        """Return the slot of a group's link ``number`` to the group at an offset."""
        place = np.zeros(max(2, self.groups), np.int64)
        place[list(self.extra_offsets)] = np.arange(len(self.extra_offsets))
        return number * (self.groups - 1) + np.where(number < self.rounds, offset - 1, place[offset])

    def stages(self, fabric: Fabric, source: Ints, target: Ints, outside: Mask, seed: int) -> list[RouteStage]:
        """Return the links from router to router, minimally or by way of another group."""
        at, end = self.switch_of_port(source), self.switch_of_port(target)
        group, last = at // self.routers_per_group, end // self.routers_per_group
        between = group != last
        stages: list[RouteStage] = []
        if self._detours:
            # Any but two groups: skip the lower of the two, then the higher.
            middle = hash_choice(source, target, seed, 3, self.groups - 2)
            middle += middle >= np.minimum(group, last)
            middle += middle >= np.maximum(group, last)
            number = hash_choice(source, target, seed, 2, self._parallel(group, middle, between))
            at = self._cross(fabric, stages, at, middle, number, between)
        if self.groups > 1:
            group = at // self.routers_per_group
            number = hash_choice(source, target, seed, 1, self._parallel(group, last, between))
            at = self._cross(fabric, stages, at, last, number, between)
        stages.append(self._local(fabric, at, end, outside & (at != end)))
        return stages

    def _parallel(self, group: Ints, other: Ints, between: Mask) -> Ints:
        """Return the number of links between two groups; 1 for pairs inside one."""
        by_offset = np.full(self.groups, self.rounds, np.int64)
        by_offset[0] = 0
        by_offset[list(self.extra_offsets)] += 1
        return np.where(between, by_offset[(other - group) % self.groups], 1)

    def _cross(self, fabric: Fabric, stages: list[RouteStage], at: Ints, group: Ints, number: Ints, mask: Mask) -> Ints:
        """Add the route to another group over one of the links to it; return the routers where it arrives."""
        here = at // self.routers_per_group
        offset = (group - here) % self.groups
        slot = self._slot(offset, number)
        leave, arrive = self._router(here, slot), self._router(group, self._slot(-offset % self.groups, number))
        stages.append(self._local(fabric, at, leave, mask & (at != leave)))
        stages.append(parallel_stage(fabric, "global", here * self.slots + slot, mask))
        return np.where(mask, arrive, at)

    def _local(self, fabric: Fabric, router: Ints, other: Ints, mask: Mask) -> RouteStage:
        place = other % self.routers_per_group
        port = place - (place > router % self.routers_per_group)
        return parallel_stage(fabric, "local", router * (self.routers_per_group - 1) + port, mask)

    def hops(self) -> tuple[int, int]:
        routers_in_group = np.bincount(np.arange(self.leaves) // self.routers_per_group, minlength=self.groups)
        most_local = int(routers_in_group.max() > 1)
        least = 0 if self.hosts_per_leaf > 1 else 2 if self._detours and self.routers_per_group == 1 else 1
        if self.groups == 1:
            return min(least, most_local), most_local
        tail, head = (ends - self.first_switch for ends in self._global_ends(np.arange(self.groups * self.slots)))
        # Whether the group at each end has a router with nodes other than the one with the link.
        before, after = (routers_in_group[at // self.routers_per_group] - (at < self.leaves) > 0 for at in (tail, head))
        if not self._detours:
            return least, max(most_local, 1 + int((before.astype(int) + after).max()))
        # On a detour a local link joins two global ones of the group between wherever it has links of two routers.
        passing = int(self.routers_per_group > 1 and self.slots > self.global_links_per_router)
        return least, 2 + passing + int(before.max()) + int(after.max())

    def partitions(self) -> list[Partition]:
        """Return the routers and the groups; a router without nodes belongs to its group only."""
        router = np.arange(self.switches, dtype=np.int64)
        group = router // self.routers_per_group
        return [
            Partition("router", self.leaf_of_node, np.where(router < self.leaves, router, -1)),
            Partition("group", group[self.leaf_of_node], group, nested=True),
        ]

    def halves(self) -> list[Mask]:
        """Return a run of neighbouring groups, the smaller half; in a single group the halves of its routers."""
        router = np.arange(self.switches)
        if self.groups > 1:
            return [router // self.routers_per_group < self.groups // 2]
        if self.leaves > 1:
            return [router < self.leaves // 2, (router >= self.leaves // 2) & (router < self.leaves)]
        return []

    def describe(self, oversubscription: float | None) -> list[str]:
        routing = f"{self.shape.routing} routing"
        if self.shape.routing == "valiant" and not self._detours:
            routing += " (minimal among fewer than 3 groups)"
        groups = f"{format_number_of(self.groups, 'group')} of {format_number_of(self.routers_per_group, 'router')}"
        uplinks = format_number_of(self.global_links_per_router, "global link")
        return [groups, f"{format_number_of(self.hosts_per_leaf, 'node')} and {uplinks} a router", routing]

    def counts(self) -> dict[str, Any]:
        return {
            "groups": self.groups,
            "routers_per_group": self.routers_per_group,
            "hosts_per_router": self.hosts_per_leaf,
            "global_links_per_router": self.global_links_per_router,
        }
