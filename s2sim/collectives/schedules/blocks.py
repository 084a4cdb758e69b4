"""Blocks of an all-to-all between each pair of ranks: of equal size, or given by a table of sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from s2sim.arrays import BlockTable, Floats, Ints
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import cut


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of each rank's range, one for each rank, in rank order."""

    demand: Demand

    @cached_property
    def _stretches(self) -> tuple[Ints, Ints]:
        return self.demand.stretches()

    @cached_property
    def _before(self) -> Ints:
        """Elements before each block in its rank's range, int64 of shape (distinct rows, ranks + 1)."""
        assert self.demand.blocks
        rows = self.demand.blocks.rows
        return np.concatenate([np.zeros((len(rows), 1), np.int64), np.cumsum(rows, axis=1)], axis=1)

    @property
    def table(self) -> BlockTable:
        """Elements of each block; of a range that is cut evenly those of its part."""
        if self.demand.blocks:
            return self.demand.blocks
        elements, row = np.unique(np.asarray(self.demand.elements, np.int64), return_inverse=True)
        begin, end = cut(np.zeros((1, 1), np.int64), elements[:, None], np.arange(self.demand.ranks), self.demand.ranks)
        return BlockTable(end - begin, row)

    def bounds(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the bounds of each block, int64 of the common shape of ``source`` and ``target``."""
        begin, end = (side[source] for side in self._stretches)
        if self.demand.blocks:
            row = self.demand.blocks.row[source]
            return begin + self._before[row, target], begin + self._before[row, target + 1]
        return cut(begin, end, target, self.demand.ranks)

    def bytes(self, source: Ints, target: Ints) -> Floats:
        """Return the bytes of each block on the network, float64: its size, or an even share of its range."""
        if self.demand.blocks:
            table = self.demand.blocks
            return table.rows[table.row[source], target].astype(np.float64) * self.demand.itemsize
        begin, end = self._stretches
        return (end - begin)[source] * self.demand.itemsize / self.demand.ranks

    def sizes(self) -> Ints:
        """Return the bytes of whole elements from each rank to each, int64 of shape (ranks, ranks)."""
        return self.table.dense * self.demand.itemsize


def blocks_of(demand: Demand) -> Blocks:
    """Return the blocks of an all-to-all."""
    return Blocks(demand)


def all_to_all_demand(sizes: Ints | BlockTable, itemsize: int) -> Demand:
    """Return the all-to-all in which rank s has ``sizes[s, d]`` elements for rank d, int64 of shape (ranks, ranks)."""
    blocks = sizes if isinstance(sizes, BlockTable) else BlockTable(sizes)
    return Demand("all_to_all", tuple(blocks.totals[0].tolist()), itemsize, blocks=blocks)


def exchanged_bytes(demand: Demand) -> tuple[Ints, Ints]:
    """Return the bytes that each rank sends to others and receives from them, int64 of shape (ranks,)."""
    sent, received = blocks_of(demand).table.exchanged
    return sent * demand.itemsize, received * demand.itemsize
