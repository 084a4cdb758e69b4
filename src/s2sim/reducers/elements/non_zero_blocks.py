"""Blocks of neighbouring elements with their numbers: those that are not all zero, as they travel and add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.reducers.gpu_cost import INDEX_BYTES, SELECT_LAUNCHES
from s2sim.reducers.group.combine import refuse_overflow
from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Floats32, Ints, Words
    from s2sim.reducers.rank import Held

BlocksMessage: TypeAlias = "tuple[Words, NDArray[Any]]"
"""Numbers of blocks, uint32 of shape (k,), and their elements one after the other, without what lies beyond the end."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberedBlocks:
    """Some blocks of a vector.

    Attributes
    ----------
    numbers : int64 array, shape (k,)
        Which they are, strictly increasing.
    values : float32 array, shape (k, block)
        Their elements; zeros beyond the end of the vector.
    beyond : int
        How many of the last one's elements lie beyond the end.
    """

    numbers: Ints
    values: Floats32
    beyond: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements and the numbers."""
        return self.values.nbytes + len(self.numbers) * INDEX_BYTES

    def of_owner(self, owner: int, owners: int) -> NumberedBlocks:
        """Return those that belong to one of some owners, to whom blocks are dealt in turn."""
        owned = self.numbers % owners == owner
        last = len(owned) > 0 and bool(owned[-1])
        return NumberedBlocks(self.numbers[owned], self.values[owned], self.beyond if last else 0)

    def message(self, held: Held) -> BlocksMessage:
        """Return them as they travel."""
        flat = self.values.reshape(-1)
        return self.numbers.astype(np.uint32), as_held(flat[: len(flat) - self.beyond], held)


def non_zero(vector: Floats32, block: int) -> NumberedBlocks:
    """Return the blocks of a vector, float32 of shape (n,), that are not all zero."""
    count = -(-len(vector) // block)
    check_key_space(0, count)
    beyond = count * block - len(vector)
    table = np.pad(vector, (0, beyond)).reshape(count, block)
    numbers = np.flatnonzero((table != 0).any(axis=1))
    return NumberedBlocks(numbers, table[numbers], beyond if len(numbers) and numbers[-1] == count - 1 else 0)


def read(message: BlocksMessage, block: int) -> NumberedBlocks:
    """Return the blocks of a message."""
    numbers, flat = message
    beyond = len(numbers) * block - len(flat)
    values = np.pad(widen(flat), (0, beyond)).reshape(len(numbers), block)
    return NumberedBlocks(numbers.astype(np.int64), values, beyond)


def sum_blocks(parts: Sequence[NumberedBlocks]) -> NumberedBlocks:
    """Return the sum of several ranks' blocks, in float32 and in their order; `S2SimError` on overflow."""
    numbers = np.unique(np.concatenate([part.numbers for part in parts]))
    total = np.zeros((len(numbers), parts[0].values.shape[1]), np.float32)
    with refuse_overflow():
        for part in parts:
            total[np.searchsorted(numbers, part.numbers)] += part.values
    return NumberedBlocks(numbers, total, max(part.beyond for part in parts))


def to_vector(parts: Sequence[NumberedBlocks], n: int, block: int) -> Floats32:
    """Return the vector of ``n`` elements that has these blocks, no two of one number, and zeros elsewhere."""
    table = np.zeros((-(-n // block), block), np.float32)
    for part in parts:
        table[part.numbers] = part.values
    return table.reshape(-1)[:n]


def find(size_bytes: int, found: NumberedBlocks) -> Work:
    """Return the cost of reading a vector for a bitmap of its blocks, and copying those that are not all zero."""
    return Work("encode", size_bytes + 2 * found.nbytes, launches=1 + SELECT_LAUNCHES)


def add_up(parts: Sequence[NumberedBlocks], total: NumberedBlocks) -> Work:
    """Return the cost of clearing a sum and adding the blocks of several messages to it, a kernel a message."""
    return Work("encode", total.nbytes + sum(3 * part.nbytes for part in parts), launches=1 + len(parts))


def put_back(size_bytes: int, union: Sequence[NumberedBlocks]) -> Work:
    """Return the cost of clearing a vector and copying blocks into it."""
    return Work("decode", size_bytes + sum(2 * part.nbytes for part in union), launches=2)
