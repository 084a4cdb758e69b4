"""Blocks of an all-to-all between each pair of ranks: of equal size, or given by a matrix of sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import cut


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of each rank's range, one for each rank, in rank order."""

    demand: Demand
    cuts: Ints | None  # First positions of blocks, and of the end of each range; None if ranges are cut evenly

    @cached_property
    def _stretches(self) -> tuple[Ints, Ints]:
        return self.demand.stretches()

    def bounds(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the bounds of each block, int64 of the common shape of ``source`` and ``target``."""
        if self.cuts is not None:
            return self.cuts[source, target], self.cuts[source, target + 1]
        begin, end = (side[source] for side in self._stretches)
        return cut(begin, end, target, self.demand.ranks)

    def bytes(self, source: Ints, target: Ints) -> Floats:
        """Return the bytes of each block on the network, float64: its size, or an even share of its range."""
        if self.cuts is None:
            begin, end = self._stretches
            return (end - begin)[source] * self.demand.itemsize / self.demand.ranks
        begin, end = self.bounds(source, target)
        return (end - begin).astype(np.float64) * self.demand.itemsize

    def sizes(self) -> Ints:
        """Return the bytes of whole elements from each rank to each, int64 of shape (ranks, ranks)."""
        ranks = np.arange(self.demand.ranks)
        begin, end = self.bounds(ranks[:, None], ranks[None, :])
        return (end - begin) * self.demand.itemsize


def blocks_of(demand: Demand) -> Blocks:
    """Return the blocks of an all-to-all."""
    if not demand.blocks:
        return Blocks(demand, None)
    within = np.cumsum(np.asarray(demand.blocks, np.int64), axis=1)
    begin = demand.stretches()[0][:, None]
    return Blocks(demand, np.concatenate([begin, begin + within], axis=1))


def all_to_all_demand(sizes: Ints, itemsize: int) -> Demand:
    """Return the all-to-all in which rank s has ``sizes[s, d]`` elements for rank d, int64 of shape (ranks, ranks)."""
    blocks = tuple(map(tuple, sizes.tolist()))
    return Demand("all_to_all", tuple(map(sum, blocks)), itemsize, blocks=blocks)


def exchanged_bytes(demand: Demand) -> tuple[Ints, Ints]:
    """Return the bytes that each rank sends to others and receives from them, int64 of shape (ranks,)."""
    sizes = blocks_of(demand).sizes()
    np.fill_diagonal(sizes, 0)
    return sizes.sum(axis=1), sizes.sum(axis=0)
