"""Rings and trees in an order that somebody found, as a library's log lists them, rather than in one that is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.algorithms.double_binary_tree import DoubleBinaryTree, tree_stage
from s2sim.collectives.algorithms.ring import Ring
from s2sim.collectives.schedules.channels import groups_in
from s2sim.collectives.schedules.groups import group_of_all, schedule_of
from s2sim.options import option_text

if TYPE_CHECKING:
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class GivenRings:
    """Rings side by side, each with an even part of the data.

    Attributes
    ----------
    orders : tuple of tuple of int
        All ranks in the order of each ring.
    """

    name: ClassVar[str] = Ring.name
    source: ClassVar[str] = Ring.source
    kinds: ClassVar[tuple[str, ...]] = Ring.kinds
    auto: ClassVar[tuple[str, ...]] = ()
    orders: tuple[tuple[int, ...], ...]

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule."""
        orders = np.array(self.orders, np.int64)
        groups = groups_in(demand, orders, np.ones(len(orders), np.int64))
        return schedule_of(demand, option_text(self._ring), self._ring.stage(demand.kind, groups))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where messages share nothing: that of rings in any order."""
        return self._ring.closed_form_s(demand, hops)

    @property
    def _ring(self) -> Ring:
        return Ring(channels=len(self.orders) if len(self.orders) > 1 else None)


@dataclass(frozen=True, slots=True)
class GivenTrees:
    """Trees side by side, each with an even part of the data, which goes up and down in pieces.

    Attributes
    ----------
    parents : tuple of tuple of int
        The parent of each rank in each tree, -1 of its root.
    chunks : int
        Pieces of a tree's part.
    """

    name: ClassVar[str] = DoubleBinaryTree.name
    source: ClassVar[str] = DoubleBinaryTree.source
    kinds: ClassVar[tuple[str, ...]] = DoubleBinaryTree.kinds
    auto: ClassVar[tuple[str, ...]] = ()
    parents: tuple[tuple[int, ...], ...]
    chunks: int

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule."""
        stage = tree_stage(group_of_all(demand), [np.array(each, np.int64) for each in self.parents], self.chunks)
        return schedule_of(demand, option_text(self._trees), stage)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where messages share nothing: that of double binary trees."""
        return self._trees.closed_form_s(demand, hops)

    @property
    def _trees(self) -> DoubleBinaryTree:
        pairs = len(self.parents) // 2
        return DoubleBinaryTree(channels=pairs if pairs > 1 else None, chunks=self.chunks)
