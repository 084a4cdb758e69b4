"""Hierarchical reduction: inside nodes first, over fast links, then between nodes, shard by shard."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, add, average, stored, subtract
from s2sim.options import check_options, option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import ErrorBound, Pending, Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.shared.layers import IntraNodeExchange, run_interleaved
from s2sim.reducers.shared.two_level_sum import (
    NodeMembership,
    merge_layers,
    no_shared_node_reason,
    node_membership,
    select_layers,
    single_shard,
)
from s2sim.reducers.wrappers.wrapper import Wrapper


@dataclass(slots=True)
class HierarchicalReduction(Wrapper):
    """Any reducer between nodes, on the sums of what the ranks of each node hold.

    1. Inside a node the layers that the inner reducer compresses are reduce-scattered: local rank i ends with the
       node's sum of shard i, rows spread evenly over shards by their number.
    2. The inner reducer averages each shard over those that hold it, one a node; the shards of a node go side by side,
       so that all interfaces of a node are busy, and what its ranks share leaves it once.
    3. Inside a node the averages are gathered.

    What the inner reducer would send densely goes in one all-reduce of all ranks beside that, from the start on:
    with `union` and `owner-reduce` on ``fat-tree`` that is 3 to 7 % faster than through the shards where it is 0.13
    MB beside 9 MB of tables; where it is 16 MB beside 5 MB, it is 1 to 12 % slower. With one rank a node this is
    the inner reducer; with one node nothing is compressed. Horovod has the same three steps for dense arrays
    (HOROVOD_HIERARCHICAL_ALLREDUCE; recalled); for sparse ones no publication is known to us. It goes around the
    reducer itself: what stands around it in turn, such as error feedback, keeps what a shard loses on the rank that
    holds it.
    """

    key = "hierarchical"
    hierarchical: bool = True
    node: int | None = option(
        None, "Ranks a node, in order, where that is to be another number than the topology says, or there is none."
    )

    numbers: tuple[int, ...] = field(init=False, repr=False, compare=False, default=(), metadata={"fitted": True})
    """Of the node of each rank; empty until `placed`."""
    on_shards: dict[int, Reducer] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The inner reducer of each shard that this rank holds, with its state."""

    @property
    def size_only(self) -> bool:
        """Never: shards and groups differ from rank to rank."""
        return False

    def check(self) -> None:
        """Refuse what gains nothing, and what begins before a node's sums can be there."""
        name = self.inner.traits.name
        check_options(self, name, node=1)
        if name == "dense":
            raise OptionError(
                "dense: hierarchical=true would be dense:collective=hierarchical, by which a library reduces dense "
                "arrays over nodes itself: give that"
            )
        if self.inner.traits.estimates == "shards":
            raise OptionError(f"{name}: ranks end with parts, which hierarchical=true could not gather: leave one out")
        if self.inner.traits.before_gradient:
            raise OptionError(
                f"{name}: what prefetch=true does before the gradient is there cannot be about a node's sums, which "
                "hierarchical=true is about: give one"
            )

    def placed(self, nodes: Sequence[int]) -> Self:
        """Return the same for ranks that share nodes."""
        return self.variant(numbers=tuple(nodes))

    def unit(self, ranks: int) -> int:
        """Return what the inner reducer's is of each shard."""
        nodes = node_membership(ranks, self.node, self.numbers)
        return self.inner.unit(len(nodes.members)) * nodes.shards

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Sum inside the node, reduce every shard between nodes, gather inside the node."""
        nodes, compressed = self._nodes(rank), self.inner.compresses(gradient)
        if nodes.single or not compressed:
            return (yield from self._on(0).reduce(rank, gradient))
        rest = [index for index in range(len(gradient.layers)) if index not in compressed]
        dense = None
        if rest:
            as_sent = select_layers(gradient, rest).map(lambda values: round_to_dtype(values, self.held))
            dense = rank.all_reduce(as_sent, label="dense layers")

        in_node = self._in_node(rank, nodes, select_layers(gradient, compressed))
        sums = yield from in_node.sum(_node_scale(nodes, rank))
        found = yield from self._between_nodes(rank, nodes, sums)
        sharing = rank if self.inner.traits.agrees else in_node.local
        mean = yield from in_node.gather({shard: reduced.mean for shard, reduced in found.items()}, sharing)
        if dense is not None:
            yield dense

        def whole() -> Gradient:
            others = [] if dense is None else [(rest, average(dense.value.map(widen), rank.size))]
            return merge_layers([(compressed, mean), *others], gradient)

        def sent() -> Gradient:
            if self.inner.traits.lossless or len(nodes.members) == 1:
                return gradient
            # What a shard loses is laid to the charge of who holds it: all ranks' together are what has arrived.
            lost = {shard: subtract(reduced.sent(), sums[shard]) for shard, reduced in found.items()}
            rank.work(cost.add(sum(stored(layer).size for part in lost.values() for layer in part.layers)))
            scaled = {
                shard: part.map(partial(np.multiply, 1 / _node_scale(nodes, rank))) for shard, part in lost.items()
            }
            own = add(in_node.gradient, single_shard(scaled, in_node.gradient, nodes.shards))
            return merge_layers([(compressed, own), (rest, select_layers(gradient, rest))], gradient)

        return Reduced(sharing.replicated(whole), sent)

    def learn(self, rank: Rank, gradient: Gradient) -> Generator[Pending, None, None]:
        """Learn what the inner reducer does of the sums of nodes."""
        nodes, compressed = self._nodes(rank), self.inner.compresses(gradient)
        if nodes.single or not compressed:
            yield from self._on(0).learn(rank, gradient)
        elif len(nodes.members) > 1:
            in_node = self._in_node(rank, nodes, select_layers(gradient, compressed))
            sums = yield from in_node.sum(_node_scale(nodes, rank))
            yield from run_interleaved(
                [self._on(shard).learn(rank.subgroup(nodes.peers(shard)), part) for shard, part in sums.items()]
            )

    def state(self) -> dict[str, Any]:
        """Return what the inner reducer carries of each shard that this rank holds, by its number."""
        return {str(shard): inner.state() for shard, inner in self.on_shards.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the states of the shards."""
        self.on_shards = {}
        for shard, inner in state.items():
            self._on(int(shard)).restore(inner)

    def held_back(self) -> Gradient | None:
        """Return none: what an inner reducer keeps is of its shards, and of the sums of nodes."""
        return None

    def notes(self) -> tuple[str, ...]:
        """Return the inner reducer's, and whether there are nodes of several ranks."""
        why = no_shared_node_reason(self.node, self.numbers)
        own = () if why is None else (f"{why}: hierarchical=true is plain {self.inner.traits.name} there",)
        return (*self.inner.notes(), *own)

    def error_bound(self) -> ErrorBound | None:
        """Return none: an instance knows the bounds of its own shards only."""
        return None

    @property
    def traits(self) -> Traits:
        """The inner reducer's, with what is added."""
        about = self.inner.traits
        return replace(
            about,
            summary=f"{about.summary}; inside nodes first, then shard by shard between them",
            formula=f"in nodes, and then {about.formula}" if about.formula else "",
        )

    def _nodes(self, rank: Rank) -> NodeMembership:
        nodes = node_membership(rank.size, self.node, self.numbers)
        if self.inner.traits.estimates == "weights" and not nodes.equal:
            raise OptionError(
                f"{self.inner.traits.name}: nodes keep models of their own, whose average counts every node alike, but "
                f"the {len(nodes.members)} nodes of {rank.size} ranks hold from {min(map(len, nodes.members))} to "
                f"{nodes.shards}: take workers that fill them, or leave hierarchical=true out"
            )
        return nodes

    def _on(self, shard: int) -> Reducer:
        return self.on_shards.setdefault(shard, self.inner.fresh())

    def _in_node(self, rank: Rank, nodes: NodeMembership, gradient: Gradient) -> IntraNodeExchange:
        return IntraNodeExchange(rank.subgroup(nodes.mates(rank.index)), nodes, gradient, self.held)

    def _between_nodes(
        self, rank: Rank, nodes: NodeMembership, sums: Mapping[int, Gradient]
    ) -> Generator[Pending, None, dict[int, Reduced]]:
        """Average the shards that this rank holds over all nodes, all at once; with one node they are averages."""
        if len(nodes.members) == 1:
            return {shard: Reduced(part, partial(_identity, part)) for shard, part in sums.items()}
        programs = [self._on(shard).reduce(rank.subgroup(nodes.peers(shard)), part) for shard, part in sums.items()]
        return dict(zip(sums, (yield from run_interleaved(programs)), strict=True))


def _node_scale(nodes: NodeMembership, rank: Rank) -> float:
    """Return by what sums of nodes are multiplied, so that their average over nodes is that over ranks."""
    return len(nodes.members) / rank.size


def _identity(part: Gradient) -> Gradient:
    return part
