"""Node union: bitmaps of held rows go ahead, first inside nodes, then between them; values follow without numbers.

Rows are spread over shards, one for each rank of a node, and a shard over owners, one on each node. Three small rounds
of bitmaps tell whoever sends or receives values which rows these are: who holds what in the node, what each node holds,
what the union is. Their sizes depend on no data. The host then waits once for all sizes, and the values go the way of a
two-level all-reduce: to their shard in the node, its sums to their owner between nodes, and back in both. A row leaves
a node once if any of its ranks holds it, and its sum comes back once; `union` would send all rows of the union,
held or not.

Which rows of an embedding table have a gradient, the batch tells before forward: then all bitmaps can go beside
compute, and only values remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from s2sim.options import check_options, option
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient
from s2sim.reducers.shared.two_level_sum import TwoLevelSum, no_shared_node_reason, node_membership
from s2sim.reducers.systems.exact_rows import Sparse


@dataclass(slots=True)
class NodeUnion(Sparse):
    """Bitmaps ahead, then values to shards in the node, to owners between nodes, and back; exact.

    Of R bytes of rows that a rank holds, N that the L ranks of its node hold and U of the union, on M nodes, a rank
    sends (R + U)(L - 1)/L in the node and (N + U)(M - 1)/LM between nodes. No publication of it is known to us: owners
    are those of SparCML's split all-gather (Renggli et al., SC 2019), the union's bitmap is that of the S2 authors'
    emulation of OmniReduce, and two levels are usual for dense arrays.
    """

    layers: Layers = "sparse"
    prefetch: bool = option(
        False, "Gather the bitmaps during forward and backward, from the rows that the batch names."
    )
    node: int | None = option(
        None, "Ranks a node, in order, where that is to be another number than the topology says, or there is none."
    )

    numbers: tuple[int, ...] = field(init=False, repr=False, compare=False, default=(), metadata={"fitted": True})
    """Of the node of each rank; empty until `placed`."""

    about = Traits(
        name="node-union",
        summary="bitmaps inside nodes and between them, then values to owners and back, without row numbers: exact",
        source="this project; owners after Renggli et al., SparCML, SC 2019, bitmaps after the S2 authors' code",
        lossless=True,
        granularity="row, with a bit of a bitmap for each",
        formula="(R+U)(L-1)/L + (N+U)(M-1)/LM + bitmaps",
        certainty="ours",
    )

    def __post_init__(self) -> None:
        check_options(self, "node-union", node=1)
        Sparse.__post_init__(self)

    def placed(self, nodes: Sequence[int]) -> Self:
        """Return the same for ranks that share nodes."""
        return self.variant(numbers=tuple(nodes))

    def notes(self) -> tuple[str, ...]:
        """Return whether there are nodes of several ranks."""
        why = no_shared_node_reason(self.node, self.numbers)
        return () if why is None else (f"{why}: only the way between nodes is left",)

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Tell each other of rows, then sum values in the node, between nodes, and gather both ways back."""
        dense = None if self.prefetch else split.post_dense(rank)
        nodes = node_membership(rank.size, self.node, self.numbers)
        way = TwoLevelSum(rank, nodes, split.tables, self.held)
        yield from way.exchange_rows()
        # Host and GPU know all sizes from here on.
        rank.synchronise()
        if self.prefetch:
            rank.await_gradient()
            dense = split.post_dense(rank)
        sums = yield from way.sum()
        if dense is not None:
            yield dense
        return Reduced(rank.replicated(lambda: split.mean(sums, dense, rank.size)), sent=lambda: split.gradient)
