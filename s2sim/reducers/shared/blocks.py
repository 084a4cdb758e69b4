"""Blocks of a vector: truncated to a fixed number of pairs before each hop, or those that are not all zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32, Ints, Words
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.gpu_cost import INDEX_BYTES, SELECT_LAUNCHES
from s2sim.reducers.rank import GradientDtype, Rank
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Work
from s2sim.reducers.shared.pairs import (
    NO_PAIRS,
    Pairs,
    PairsMessage,
    add_pairs,
    concatenate_pairs,
    intersect_pairs,
    merge_pairs,
    read_padded_pairs,
    read_pairs,
)


class TruncatedBlocks:
    """One rank's blocks of a vector, and the pairs that it has received and sent.

    ``sizes`` are the pairs that each block is truncated to: the density's share of its elements.
    """

    def __init__(self, vector: Floats32, cuts: Ints, density: float, held: GradientDtype) -> None:
        # Copies, so that a block is freed once it has been sent.
        self._parts = [vector[start:stop].copy() for start, stop in pairwise(cuts)]
        self._cuts = cuts
        self._held = held
        self._moved: list[Pairs] = []
        self.sizes = [elements_kept(len(part), density) for part in self._parts]

    def select(self, rank: Rank) -> None:
        """Truncate all blocks, before any has been sent."""
        for part, size in zip(self._parts, self.sizes, strict=True):
            kept = select_top_k(part, size)
            values = part[kept]
            part[:] = 0
            part[kept] = values
        rank.work(cost.select(sum(map(len, self._parts)), sum(self.sizes)))

    def hand_out(
        self, rank: Rank, which: Sequence[int], *, length: int | None = None, share: float = 1.0
    ) -> PairsMessage:
        """Return the largest pairs of some blocks as one message, of each its size or ``length``; the rest is dropped.

        If other ranks send the same, a ``share`` of it counts as this rank's.
        """
        messages = [NO_PAIRS.message(self._held)]
        selected_from = 0
        for block in which:
            part, self._parts[block] = self._parts[block], np.empty(0, np.float32)
            kept = select_top_k(part, self.sizes[block] if length is None else length)
            messages.append(Pairs(kept, part[kept]).message(self._held))
            self._move(block, read_pairs(messages[-1]), share)
            selected_from += len(part)
        indices, values = map(np.concatenate, zip(*messages, strict=True))
        # The same kernels select from all blocks of a round.
        rank.work(cost.select(selected_from, len(indices)))
        return indices, values

    def take_in(self, rank: Rank, which: Sequence[int], message: PairsMessage) -> None:
        """Add the blocks of another rank's message to this rank's."""
        ends = np.cumsum([self.sizes[block] for block in which])[:-1]
        for block, part in zip(which, zip(*(np.split(array, ends) for array in message), strict=True), strict=True):
            received = read_padded_pairs(part)
            with refuse_overflow():
                self._parts[block][received.indices] += received.values
            self._move(block, received, -1)
        rank.work(cost.add_pairs(0, len(message[0])))

    def replace(self, rank: Rank, block: int, messages: Sequence[PairsMessage], share: float) -> int:
        """Set a block that was sent to the sum of its messages; return the sum's number of non-zero elements.

        If other ranks get the same, a ``share`` of it counts as received by this rank.
        """
        size = int(self._cuts[block + 1] - self._cuts[block])
        with refuse_overflow():
            self._parts[block] = total = add_pairs(np.zeros(size, np.float32), messages)
        non_zeros = np.flatnonzero(total)
        self._move(block, Pairs(non_zeros, total[non_zeros]), -share)
        rank.work(cost.add_pairs(total.nbytes, sum(len(indices) for indices, _ in messages)))
        return len(non_zeros)

    def read_all(self, messages: Sequence[PairsMessage]) -> Pairs:
        """Return the pairs of all blocks, from one message each, by index in the whole vector."""
        parts = [read_padded_pairs(message) for message in messages]
        return concatenate_pairs([part.shifted(int(begin)) for part, begin in zip(parts, self._cuts, strict=False)])

    def own_share(self, kept: Pairs) -> Pairs:
        """Return this rank's contribution to the sums of the elements ``kept``: sent less received pairs.

        These are its own values except for the dropped ones.
        """
        return intersect_pairs(merge_pairs(self._moved), kept)

    def _move(self, block: int, pairs: Pairs, share: float) -> None:
        self._moved.append(Pairs(pairs.indices + self._cuts[block], pairs.values * np.float32(share)))


BlocksMessage: TypeAlias = "tuple[Words, NDArray[Any]]"
"""Numbers of blocks, uint32 of shape (k,), and their concatenated elements, without those after the vector's end."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberedBlocks:
    """Some blocks of a vector."""

    numbers: Ints  # Shape (k,), strictly increasing
    values: Floats32  # Shape (k, block); zeros after the end of the vector
    beyond: int  # Elements of the last block after the end of the vector

    @property
    def nbytes(self) -> int:
        """Bytes of the elements and the numbers."""
        return self.values.nbytes + len(self.numbers) * INDEX_BYTES

    def of_owner(self, owner: int, owners: int) -> NumberedBlocks:
        """Return the blocks of an owner, to which every ``owners``-th block belongs."""
        owned = self.numbers % owners == owner
        last = len(owned) > 0 and bool(owned[-1])
        return NumberedBlocks(self.numbers[owned], self.values[owned], self.beyond if last else 0)

    def message(self, held: GradientDtype) -> BlocksMessage:
        """Return the message of the blocks."""
        flat = self.values.reshape(-1)
        return self.numbers.astype(np.uint32), round_to_dtype(flat[: len(flat) - self.beyond], held)


def find_non_zero_blocks(vector: Floats32, block: int) -> NumberedBlocks:
    """Return the blocks of a vector, float32 of shape (n,), that are not all zero."""
    count = -(-len(vector) // block)
    check_key_space(0, count)
    beyond = count * block - len(vector)
    table = np.pad(vector, (0, beyond)).reshape(count, block)
    numbers = np.flatnonzero((table != 0).any(axis=1))
    return NumberedBlocks(numbers, table[numbers], beyond if len(numbers) and numbers[-1] == count - 1 else 0)


def read_blocks(message: BlocksMessage, block: int) -> NumberedBlocks:
    """Return the blocks of a message."""
    numbers, flat = message
    beyond = len(numbers) * block - len(flat)
    values = np.pad(widen(flat), (0, beyond)).reshape(len(numbers), block)
    return NumberedBlocks(numbers.astype(np.int64), values, beyond)


def sum_blocks(parts: Sequence[NumberedBlocks]) -> NumberedBlocks:
    """Return the sum of several ranks' blocks, in float32 and in rank order; `S2SimError` on overflow."""
    numbers = np.unique(np.concatenate([part.numbers for part in parts]))
    total = np.zeros((len(numbers), parts[0].values.shape[1]), np.float32)
    with refuse_overflow():
        for part in parts:
            total[np.searchsorted(numbers, part.numbers)] += part.values
    return NumberedBlocks(numbers, total, max(part.beyond for part in parts))


def blocks_to_vector(parts: Sequence[NumberedBlocks], n: int, block: int) -> Floats32:
    """Return the vector of ``n`` elements with these blocks, of distinct numbers, and zeros elsewhere."""
    table = np.zeros((-(-n // block), block), np.float32)
    for part in parts:
        table[part.numbers] = part.values
    return table.reshape(-1)[:n]


def find_blocks_cost(size_bytes: int, found: NumberedBlocks) -> Work:
    """Return the cost of reading a vector for a bitmap of its blocks, and copying those that are not all zero."""
    return Work("encode", size_bytes + 2 * found.nbytes, launches=1 + SELECT_LAUNCHES)


def add_blocks_cost(parts: Sequence[NumberedBlocks], total: NumberedBlocks) -> Work:
    """Return the cost of clearing a sum and adding the blocks of several messages to it, a kernel per message."""
    return Work("encode", total.nbytes + sum(3 * part.nbytes for part in parts), launches=1 + len(parts))


def write_blocks_cost(size_bytes: int, union: Sequence[NumberedBlocks]) -> Work:
    """Return the cost of clearing a vector and copying blocks into it."""
    return Work("decode", size_bytes + sum(2 * part.nbytes for part in union), launches=2)
