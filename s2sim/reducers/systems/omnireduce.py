"""OmniReduce: blocks that are not all zero go to their aggregators, and the sums of those that anyone has to all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.shared import blocks
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector


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

    Attributes
    ----------
    block : int
        Elements of a block.
    """

    compresses_all = True
    block: int = 256

    about = Traits(
        name="omnireduce",
        summary="blocks of 256 elements that are not all zero to aggregators on the ranks, their sums to all: exact",
        source="Fei et al., OmniReduce, SIGCOMM 2021; github.com/sands-lab/omnireduce",
        lossless=True,
        formula="4n(1+1/256)(D+D_union)(P-1)/P",
        certainty="code read",
    )

    def __post_init__(self) -> None:
        check_options(self, "omnireduce", block=1)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Send the non-zero blocks to their aggregators, sum, gather the sums."""
        n = gradient.size
        own = blocks.find_non_zero_blocks(flat_vector(gradient), self.block)
        rank.work(blocks.find_blocks_cost(gradient.nbytes, own))

        shares = [own.of_owner(owner, rank.size).message(self.held) for owner in range(rank.size)]
        came = rank.all_to_all(shares, label="blocks to aggregators", size_from_data=True)
        yield came
        parts = [blocks.read_blocks(message, self.block) for message in came.value]
        total = blocks.sum_blocks(parts)
        rank.work(blocks.add_blocks_cost(parts, total))

        sums = rank.all_gather(total.message(self.held), label="sums of blocks", size_from_data=True)
        yield sums
        union = rank.replicated(lambda: [blocks.read_blocks(message, self.block) for message in sums.value])
        rank.work(blocks.write_blocks_cost(gradient.nbytes, union))

        def mean() -> Gradient:
            vector = blocks.blocks_to_vector(union, n, self.block)
            return from_flat_vector(vector / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: gradient)
