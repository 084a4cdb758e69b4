"""Blocks of a vector that ranks add up on their way, cut to a fixed number of pairs before each hop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.elements.merged import chosen, joined, read_padded
from s2sim.reducers.elements.pairs import Pairs, merge_pairs
from s2sim.reducers.elements.selection_cost import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints
    from s2sim.reducers.elements.pairs import PairsMessage
    from s2sim.reducers.rank import Held, Rank


class Blocks:
    """One rank's blocks of a vector, and what it has cut off them.

    Attributes
    ----------
    sizes : list of int
        Pairs that each block is cut to: its density's share of its elements.
    cut_off : list of Pairs
        By index in the whole vector.
    """

    def __init__(self, parts: Sequence[Pairs], cuts: Ints, density: float, held: Held) -> None:
        self._parts = list(parts)
        self._cuts = cuts
        self._held = held
        self.sizes = [elements_kept(int(size), density) for size in np.diff(cuts)]
        self.cut_off: list[Pairs] = []

    def joined(self) -> Pairs:
        """Return the pairs of all blocks, by index in the whole vector."""
        return joined([part.shifted(int(begin)) for part, begin in zip(self._parts, self._cuts, strict=False)])

    def hand_out(
        self, rank: Rank, which: Sequence[int], *, length: int | None = None, share: float = 1.0
    ) -> PairsMessage:
        """Return the largest pairs of some blocks as one message, each of its size or of ``length``.

        The rest is cut off, with what a narrow type rounds off; ``share`` of it stays with this rank.
        """
        messages, selected_from = [], 0
        for block in which:
            size, part = self.sizes[block] if length is None else length, self._parts[block]
            selected_from += len(part)
            kept = select_top_k(part.values, min(size, len(part)))
            travels = as_held(part.values[kept], self._held)
            left = part.values.copy()
            left[kept] -= widen(travels)
            left *= np.float32(share)
            self.cut_off.append(chosen(Pairs(part.indices + self._cuts[block], left), left != 0))
            messages.append(Pairs(part.indices[kept], widen(travels)).message(self._held, length=size))
        indices = np.concatenate([indices for indices, _ in messages])
        # All blocks of a round are selected from by the same kernels, and so are they merged.
        rank.work(cost.select(selected_from, len(indices)))
        return indices, np.concatenate([values for _, values in messages])

    def take_in(self, rank: Rank, which: Sequence[int], message: PairsMessage) -> None:
        """Add the blocks of a message of another rank to one's own."""
        for block, part in zip(which, self._split(which, message), strict=True):
            self._parts[block] = merge_pairs([self._parts[block], part])
        merged = sum(len(self._parts[block]) for block in which)
        rank.work(merge(2 * len(message[0]), merged, 2))

    def replace(self, rank: Rank, block: int, messages: Sequence[PairsMessage]) -> int:
        """Make a block the sum of what messages hold of it; return how many pairs it has."""
        self._parts[block] = merge_pairs([read_padded(message) for message in messages])
        rank.work(merge(sum(len(indices) for indices, _ in messages), len(self._parts[block]), len(messages)))
        return len(self._parts[block])

    def read_all(self, messages: Sequence[PairsMessage]) -> Pairs:
        """Return the pairs of all blocks, of which there is a message each, by index in the whole vector."""
        parts = [read_padded(message) for message in messages]
        return joined([part.shifted(int(begin)) for part, begin in zip(parts, self._cuts, strict=False)])

    def _split(self, which: Sequence[int], message: PairsMessage) -> list[Pairs]:
        ends = np.cumsum([self.sizes[block] for block in which])[:-1]
        return list(map(read_padded, zip(*(np.split(array, ends) for array in message), strict=True)))
