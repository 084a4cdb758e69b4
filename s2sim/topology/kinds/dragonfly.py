"""Dragonflies (Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly topology", ISCA 2008).

A router has p hosts, a - 1 local links and h global links, so there are at most a h + 1 groups; balanced: a = 2p = 2h.
Slot q of a group's global links belongs to router q // h. With G groups, slots are assigned in rounds to the groups at
offsets 1, 2, ..., G - 1; remaining slots go in pairs to offsets 1 and -1, 2 and -2, ..., and an odd one, if G is even,
to the opposite group. The c-th link of group A to B is the c-th link of B to A.

Routing ``minimal`` (section 4.1, MIN) takes at most three links; ``valiant`` (VAL) passes a random third group, if
there is one, between groups. Groups and parallel links are chosen by a seeded hash of both ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, Self

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.topology.graph import Fabric, LinkPart, RouteStage, hash_choice, index_splitter, single_link_stage
from s2sim.topology.layout import FabricKind, Layout, Partition
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import ClusterShape
from s2sim.units import format_number_of


@dataclass(frozen=True, slots=True)
class DragonflyLayout(Layout):
    """Routers, local links inside groups and global links between them; ``leaves`` are the routers with nodes."""

    routers_per_group: int
    global_links_per_router: int
    groups: int

    @classmethod
    def most_nodes(cls, shape: ClusterShape) -> tuple[int, str] | None:
        """Return the places of a dragonfly of which everything is given."""
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
        groups = -(-nodes.count // (hosts * routers))
        return cls(shape, nodes, hosts, -(-nodes.count // hosts), routers, links, groups)

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
        opposite = [self.groups // 2] if left % 2 and self.groups % 2 == 0 else []
        return (*near, *opposite)

    @property
    def slots(self) -> int:
        """Global links of a group."""
        return self.rounds * (self.groups - 1) + len(self.extra_offsets)

    @property
    def switches(self) -> int:
        """Routers, with nodes or without."""
        return self.groups * self.routers_per_group

    @property
    def draws(self) -> bool:
        """Whether there are several groups or links to choose from."""
        return self.groups > 1 and (self._detours or self.rounds + bool(self.extra_offsets) > 1)

    @property
    def _detours(self) -> bool:
        return self.shape.routing == "valiant" and self.groups > 2

    def switch_of_port(self, port: Ints) -> Ints:
        """Return the router of each interface."""
        return self.node_set.node_of_port[port] // self.hosts_per_leaf

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
        """Return the router of a global link."""
        return group * self.routers_per_group + slot // self.global_links_per_router

    def _slot(self, offset: Ints, number: Ints) -> Ints:
        """Return the slot of a group's link ``number`` to the group at an offset."""
        place = np.zeros(max(2, self.groups), np.int64)
        place[list(self.extra_offsets)] = np.arange(len(self.extra_offsets))
        before = number * (self.groups - 1)
        return before + np.where(number < self.rounds, offset - 1, place[offset])

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
        stages.append(single_link_stage(fabric, "global", here * self.slots + slot, mask))
        return np.where(mask, arrive, at)

    def _local(self, fabric: Fabric, router: Ints, other: Ints, mask: Mask) -> RouteStage:
        """Return the link between two routers of a group."""
        place = other % self.routers_per_group
        port = place - (place > router % self.routers_per_group)
        return single_link_stage(fabric, "local", router * (self.routers_per_group - 1) + port, mask)

    def hops(self) -> tuple[int, int]:
        """Return the fewest and the most links from router to router."""
        routers_in_group = np.bincount(np.arange(self.leaves) // self.routers_per_group, minlength=self.groups)
        most_local = int(routers_in_group.max() > 1)
        least = 0 if self.hosts_per_leaf > 1 else 2 if self._detours and self.routers_per_group == 1 else 1
        if self.groups == 1:
            return min(least, most_local), most_local
        tail, head = (ends - self.first_switch for ends in self._global_ends(np.arange(self.groups * self.slots)))
        # Whether the group at each end has a router with nodes other than the one with the link.
        before, after = (
            routers_in_group[end // self.routers_per_group] - (end < self.leaves) > 0 for end in (tail, head)
        )
        if not self._detours:
            return least, max(most_local, 1 + int((before.astype(int) + after).max()))
        # On a detour a local link joins two global ones of the group between wherever it has links of two routers.
        passing = int(self.routers_per_group > 1 and self.slots > self.global_links_per_router)
        return least, 2 + passing + int(before.max()) + int(after.max())

    def partitions(self) -> list[Partition]:
        """Return the routers and the groups; a router without nodes belongs to its group only."""
        router = np.arange(self.switches, dtype=np.int64)
        router_of_node = np.arange(self.nodes, dtype=np.int64) // self.hosts_per_leaf
        group = router // self.routers_per_group
        return [
            Partition("router", router_of_node, np.where(router < self.leaves, router, -1)),
            Partition("group", group[router_of_node], group, nested=True),
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
        """Return groups, routers, nodes a router and routing."""
        routing = f"{self.shape.routing} routing"
        if self.shape.routing == "valiant" and not self._detours:
            routing += " (minimal among fewer than 3 groups)"
        groups = f"{format_number_of(self.groups, 'group')} of {format_number_of(self.routers_per_group, 'router')}"
        uplinks = format_number_of(self.global_links_per_router, "global link")
        return [groups, f"{format_number_of(self.hosts_per_leaf, 'node')} and {uplinks} a router", routing]

    def counts(self) -> dict[str, Any]:
        """Return groups, routers and what each router has."""
        return {
            "groups": self.groups,
            "routers_per_group": self.routers_per_group,
            "hosts_per_router": self.hosts_per_leaf,
            "global_links_per_router": self.global_links_per_router,
        }


DRAGONFLY = FabricKind(
    DragonflyLayout,
    fields={"fabric.hosts_per_router": 0, "fabric.routers_per_group": 0, "fabric.global_links_per_router": 0},
    routings=("minimal", "valiant"),
)
