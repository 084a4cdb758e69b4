"""OmniReduce: blocks that are not all zero, to aggregators and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32, Ints, Words
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers.gpu_cost import INDEX_BYTES, SELECT_LAUNCHES, VALUE_BYTES
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector

BlocksMessage: TypeAlias = "tuple[Words, NDArray[Any]]"
"""Numbers of blocks, uint32 of shape (k,), and their concatenated elements, without those after the vector's end."""


def expected_block_density(density: float, block: int) -> float:
    """Return which share of blocks is not all zero where each element is not zero with some probability.

    >>> round(expected_block_density(0.01, 256), 3)
    0.924
    """
    return 1.0 - (1.0 - density) ** block


@dataclass(slots=True)
class OmniReduce(Reducer):
    """An all-to-all of non-zero blocks to their aggregators, and an all-gather of the union's; exact.

    All layers are one vector, cut into blocks. Block b belongs to aggregator b mod P, and the ranks are the aggregators
    (colocated). The paper's own run on other machines, of which a group of ranks has none: a worker there sends its
    share D of non-zero blocks, 4nD bytes, and receives the union, but does not send it on. There aggregators also ask
    for one block after the other, while others are in flight: about one latency for all, in place of two rounds and two
    waits for sizes. A block's number takes 4 bytes beside its 4 x ``block``: the paper's packets tell the next block
    instead.

    Where elements are not zero at random, hardly any block of 256 is all zero: `expected_block_density`. It pays for
    tables, whose rows are zero as a whole, and after a sparsifier of blocks.
    """

    compresses_all = True
    minimums: ClassVar = {"block": 1}
    block: int = option(256, "Elements of a block.")

    about = Traits(
        name="omnireduce",
        summary="blocks of 256 elements that are not all zero to aggregators on the ranks, their sums to all: exact",
        source="Fei et al., OmniReduce, SIGCOMM 2021; github.com/sands-lab/omnireduce",
        lossless=True,
        formula="4n(1+1/256)(D+D_union)(P-1)/P",
        certainty="code read",
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Send the non-zero blocks to their aggregators, sum, gather the sums."""
        n, count = gradient.size, -(-gradient.size // self.block)
        check_key_space(0, count)
        block_bytes = self.block * VALUE_BYTES + INDEX_BYTES
        table = np.pad(flat_vector(gradient), (0, count * self.block - n)).reshape(count, self.block)
        held = np.flatnonzero((table != 0).any(axis=1))
        # The vector is read for a bitmap of its blocks, and those that are not all zero are copied.
        rank.work(Work("encode", gradient.nbytes + 2 * len(held) * block_bytes, launches=1 + SELECT_LAUNCHES))

        owned = [held[held % rank.size == owner] for owner in range(rank.size)]
        shares = [self._message(numbers, table[numbers], n) for numbers in owned]
        came = rank.all_to_all(shares, label="blocks to aggregators", size_from_data=True)
        yield came
        parts = [self._read(message) for message in came.value]
        summed = np.unique(np.concatenate([numbers for numbers, _ in parts]))
        total = np.zeros((len(summed), self.block), np.float32)
        with refuse_overflow():
            for numbers, values in parts:
                total[np.searchsorted(summed, numbers)] += values
        # The sum is cleared; a kernel per message adds its blocks.
        added = 3 * sum(len(numbers) for numbers, _ in parts)
        rank.work(Work("encode", (len(summed) + added) * block_bytes, launches=1 + len(parts)))

        sums = rank.all_gather(self._message(summed, total, n), label="sums of blocks", size_from_data=True)
        yield sums
        union = rank.replicated(lambda: [self._read(message) for message in sums.value])
        # A vector is cleared, and blocks are copied into it.
        copied = 2 * sum(len(numbers) for numbers, _ in union)
        rank.work(Work("decode", gradient.nbytes + copied * block_bytes, launches=2))

        def mean() -> Gradient:
            table = np.zeros((count, self.block), np.float32)
            for numbers, values in union:
                table[numbers] = values
            return from_flat_vector(table.reshape(-1)[:n] / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: gradient)

    def _message(self, numbers: Ints, values: Floats32, n: int) -> BlocksMessage:
        """Return the message of some blocks of a vector of ``n`` elements."""
        beyond = max(0, (int(numbers[-1]) + 1) * self.block - n) if len(numbers) else 0
        return numbers.astype(np.uint32), round_to_dtype(values.reshape(-1)[: values.size - beyond], self.held)

    def _read(self, message: BlocksMessage) -> tuple[Ints, Floats32]:
        """Return the numbers of a message's blocks and their values, with zeros after the end of the vector."""
        numbers, flat = message
        values = np.pad(widen(flat), (0, len(numbers) * self.block - len(flat)))
        return numbers.astype(np.int64), values.reshape(len(numbers), self.block)
