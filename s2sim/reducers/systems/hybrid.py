"""Blocks or rows that are not zero: Parallax and OmniReduce."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.options import check_options, option
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.shared import blocks
from s2sim.reducers.shared import row_sparse as coo
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient
from s2sim.reducers.systems.exact_rows import OwnerReduce, Sparse


@dataclass(slots=True)
class Parallax(Sparse):
    """Rows of tables to servers and back, exactly; dense layers in an all-reduce.

    Of the paper nothing was read here. Its servers share the machines of the workers and hold a part of every table
    each; a worker pulls the rows that its next batch needs, while here, as of all reducers, every rank ends with all
    rows: it is `s2sim.reducers.systems.exact_rows` by another name.
    """

    layers: Layers = "sparse"
    as_coded: bool = option(
        False,
        "In place of the paper's servers, what the S2 authors' code measures under this name "
        "(``Parallax_Reducer``): an all-gather of counts, padded coordinates of single elements (20 bytes each) to "
        "rank 0, and from there a broadcast of all of them, not summed.",
    )

    about = Traits(
        name="parallax",
        summary="rows of tables to servers on the ranks and back, dense layers in an all-reduce: exact",
        source="Kim et al., Parallax, EuroSys 2019; github.com/GeKeShi/Sparse_Sketch_Reducer (Parallax_Reducer)",
        lossless=True,
        granularity="row number",
        formula="(P-1)/P (rows held + rows of the union)",
        certainty="recalled",
    )

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Let every rank be the server of some rows; or rank 0 the one that gathers all elements."""
        if not self.as_coded:
            return (yield from OwnerReduce().reduce_split(rank, split))
        own = [coo.to_coordinates(table, split.held) for table in split.tables]
        rank.work(coo.encode_coordinates_cost(split.tables, own))
        counts = yield from coo.agree_on_lengths(rank, own)
        most = counts.max(axis=0).tolist()

        message = tuple(coo.pad_coordinates(table, length) for table, length in zip(own, most, strict=True))
        to_root = rank.exchange({0: message} if rank.index else {}, label="elements to rank 0", size_from_data=True)
        yield to_root
        concatenated = None
        if rank.index == 0:
            by_table = zip(message, *to_root.value.values(), strict=True)
            concatenated = tuple(
                (np.hstack([at for at, _ in parts]), np.concatenate([values for _, values in parts]))
                for parts in by_table
            )
        all_elements = rank.broadcast(concatenated, root=0, label="all elements")
        yield all_elements
        dense = split.post_dense(rank)
        rank.work(coo.decode_coordinates_cost(split.tables, rank.size * sum(most), rank.size))

        def sums() -> list[RowSparse]:
            return [
                coo.sum_coordinates(
                    list(zip(np.split(at, rank.size, axis=1), np.split(values, rank.size), strict=True)),
                    lengths,
                    table.shape,
                )
                for (at, values), lengths, table in zip(all_elements.value, counts.T, split.tables, strict=True)
            ]

        total = rank.replicated(sums)
        if dense is not None:
            yield dense
        return Reduced(rank.replicated(lambda: split.mean(total, dense, rank.size)), sent=lambda: split.gradient)

    @property
    def traits(self) -> Traits:
        """What the S2 authors' code sends, it sends by element."""
        if not self.as_coded:
            return self.about
        return replace(
            self.about,
            granularity="element, with row and column",
            formula="8L(P-1) + 20 nnz_max, and 20 P nnz_max from rank 0",
            certainty="code read",
        )


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
    block: int = option(256, "Elements of a block.")

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
