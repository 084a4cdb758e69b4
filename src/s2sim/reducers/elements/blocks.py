"""Blocks of a vector that ranks add up on their way, cut to a fixed number of pairs before each hop."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.elements.merged import among, joined, read_padded
from s2sim.reducers.elements.pairs import Pairs, add_pairs, merge_pairs
from s2sim.reducers.group.combine import refuse_overflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats32, Ints
    from s2sim.reducers.elements.pairs import PairsMessage
    from s2sim.reducers.rank import Held, Rank


class CutBlocks:
    """One rank's blocks of a vector, and what has come to it and gone from it.

    Attributes
    ----------
    sizes : list of int
        Pairs that each block is cut to: its density's share of its elements.
    """

    def __init__(self, vector: Floats32, cuts: Ints, density: float, held: Held) -> None:
        # Copies, so that a block is free once it has been handed out.
        self._parts = [vector[start:stop].copy() for start, stop in pairwise(cuts)]
        self._cuts = cuts
        self._held = held
        self._moved: list[Pairs] = []
        self.sizes = [elements_kept(len(part), density) for part in self._parts]

    def select(self, rank: Rank) -> None:
        """Cut all blocks at once, before any has been handed out."""
        for part, size in zip(self._parts, self.sizes, strict=True):
            kept = select_top_k(part, size)
            values = part[kept]
            part[:] = 0
            part[kept] = values
        rank.work(cost.select(sum(map(len, self._parts)), sum(self.sizes)))

    def hand_out(
        self, rank: Rank, which: Sequence[int], *, length: int | None = None, share: float = 1.0
    ) -> PairsMessage:
        """Return the largest pairs of some blocks as one message, of each its size or ``length``; the rest is cut off.

        Only a ``share`` of what goes is this rank's, where others hand out the same.
        """
        indices, values, selected_from = [np.empty(0, np.uint32)], [as_held(np.empty(0, np.float32), self._held)], 0
        for block in which:
            part, self._parts[block] = self._parts[block], np.empty(0, np.float32)
            kept = select_top_k(part, self.sizes[block] if length is None else length)
            indices.append(kept.astype(np.uint32))
            values.append(as_held(part[kept], self._held))
            self._move(block, kept, widen(values[-1]), share)
            selected_from += len(part)
        message = np.concatenate(indices), np.concatenate(values)
        # The same kernels select from all blocks of a round.
        rank.work(cost.select(selected_from, len(message[0])))
        return message

    def take_in(self, rank: Rank, which: Sequence[int], message: PairsMessage) -> None:
        """Add the blocks of another rank's message to one's own."""
        ends = np.cumsum([self.sizes[block] for block in which])[:-1]
        for block, part in zip(which, zip(*(np.split(array, ends) for array in message), strict=True), strict=True):
            came = read_padded(part)
            with refuse_overflow():
                self._parts[block][came.indices] += came.values
            self._move(block, came.indices, came.values, -1)
        rank.work(cost.add_pairs(0, len(message[0])))

    def replace(self, rank: Rank, block: int, messages: Sequence[PairsMessage], share: float) -> int:
        """Make a block that was handed out the sum of what messages hold of it; return how many elements that has.

        A ``share`` of it comes to this rank, where others get the same.
        """
        size = int(self._cuts[block + 1] - self._cuts[block])
        with refuse_overflow():
            self._parts[block] = total = add_pairs(np.zeros(size, np.float32), messages)
        found = np.flatnonzero(total)
        self._move(block, found, total[found], -share)
        rank.work(cost.add_pairs(total.nbytes, sum(len(indices) for indices, _ in messages)))
        return len(found)

    def read_all(self, messages: Sequence[PairsMessage]) -> Pairs:
        """Return the pairs of all blocks, of which there is a message each, by index in the whole vector."""
        parts = [read_padded(message) for message in messages]
        return joined([part.shifted(int(begin)) for part, begin in zip(parts, self._cuts, strict=False)])

    def own_share(self, kept: Pairs) -> Pairs:
        """Return what this rank has put into the sums of the elements ``kept``: what went from it less what came.

        That is its own values but for what it has cut off.
        """
        return among(merge_pairs(self._moved), kept)

    def _move(self, block: int, indices: Ints, values: Floats32, share: float) -> None:
        self._moved.append(Pairs(indices + self._cuts[block], values * np.float32(share)))
