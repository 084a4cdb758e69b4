"""Hierarchical reduction: inside nodes first, over fast links, then between nodes, shard by shard."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, Self

import numpy as np

from s2sim.arrays import Array, split_sizes
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse, add, average, stored, subtract
from s2sim.options import check_options
from s2sim.reducers import gpu_cost
from s2sim.reducers.rank import GradientDtype, Program, Rank, Reduced, Reducer, Traits, Waits, wait_all
from s2sim.reducers.shared import layers as sharding
from s2sim.reducers.shared import row_sparse
from s2sim.reducers.wrappers.wrapper import Wrapper


class IntraNodeExchange:
    """One rank's exchange of shards with the other ranks of its node, whose group is ``local``."""

    def __init__(self, local: Rank, nodes: sharding.NodeMembership, gradient: Gradient, held: GradientDtype) -> None:
        self.local = local
        self.gradient = gradient
        self._held: GradientDtype = held
        self._shards = sharding.cut_shards(gradient, nodes.shards)
        self._holders = nodes.holders(local.size)

    def sum(self, factor: float) -> Waits[dict[int, Gradient]]:
        """Return the node's sums of this rank's shards, times a factor, by shard.

        Rows are sent in messages of data-dependent size, for which the host waits; dense layers are reduce-scattered.
        """
        local, holds = self.local, self._holders[self.local.index]
        own, tables = self._of(holds), _tables([self.gradient])
        rows = values = None
        if tables:
            local.work(row_sparse.sort_by_owner_cost(tables, local.size))
            local.work(row_sparse.pack_rows_cost(tables))
            messages = [row_sparse.pack_tables(_tables(self._of(holds)), self._held) for holds in self._holders]
            rows = local.all_to_all(messages, label="rows to their shards in the node", size_from_data=True)
        if len(tables) < len(self.gradient.layers):
            parts = [self._packed(self._of(holds)) for holds in self._holders]
            values = local.reduce_scatter(parts, label="dense layers in the node")
        yield from wait_all(rows, values)

        sums: list[RowSparse] = []
        if rows is not None:
            shapes = [table.shape for table in _tables(own)]
            received = row_sparse.unpack_messages(rows.value, [shapes] * len(rows.value))
            sums = [row_sparse.sum_tables(column) for column in zip(*received, strict=True)]
            local.work(row_sparse.add_rows_cost(received, sums, "encode"))
        arrays = [] if values is None else _unpacked(values.value, [array.shape for array in _arrays(own)])
        totals = _interleaved(own, [isinstance(layer, RowSparse) for layer in self.gradient.layers], sums, arrays)
        return {shard: total.map(lambda sum_: sum_ * factor) for shard, total in zip(holds, totals, strict=True)}

    def gather(self, shards: Mapping[int, Gradient], sharing: Rank) -> Waits[Gradient]:
        """Return the gradient of all shards, of which each rank of the node contributes its own ``shards``.

        Row-sparse layers may have become dense, in all shards alike. The gradient is joined once for all ranks of
        ``sharing``, which get the same.
        """
        local, own = self.local, list(shards.values())
        sparse = [isinstance(layer, RowSparse) for layer in own[0].layers]
        rows = values = None
        if any(sparse):
            tables = _tables(own)
            local.work(row_sparse.write_keys_cost(tables))
            packed = row_sparse.pack_tables(tables, self._held)
            rows = local.all_gather(packed, label="rows of all shards", size_from_data=True)
        if not all(sparse):
            values = local.all_gather(self._packed(own), label="dense layers of all shards", unequal=True)
        yield from wait_all(rows, values)

        def joined() -> Gradient:
            all_shards: dict[int, Gradient] = {}
            for index, holds in enumerate(self._holders):
                parts = self._of(holds)
                layers = [pair for part in parts for pair in zip(part.layers, sparse, strict=True)]
                tables, arrays = ([layer.shape for layer, kept in layers if kept == table] for table in (True, False))
                received = _interleaved(
                    parts,
                    sparse,
                    [] if rows is None else row_sparse.unpack_tables(rows.value[index], tables),
                    [] if values is None else _unpacked(values.value[index], arrays),
                )
                all_shards |= zip(holds, received, strict=True)
            return sharding.join_shards([all_shards[shard] for shard in sorted(all_shards)], self.gradient)

        gathered = sharing.replicated(joined)
        # Rows are brought from the order of shards into that of the table.
        if whole := _tables([gathered]):
            local.work(row_sparse.join_rows_cost(whole))
        pairs = zip(gathered.layers, self.gradient.layers, strict=True)
        spread = [new.nbytes for new, old in pairs if isinstance(old, RowSparse) and not isinstance(new, RowSparse)]
        if spread:
            local.work(gpu_cost.permute(sum(spread), len(spread)))
        return gathered

    def _of(self, holds: Iterable[int]) -> list[Gradient]:
        return [self._shards[shard] for shard in holds]

    def _packed(self, parts: Sequence[Gradient]) -> Array:
        return np.concatenate([round_to_dtype(array, self._held).reshape(-1) for array in _arrays(parts)])


def _interleaved(
    parts: Sequence[Gradient], sparse: Sequence[bool], tables: Iterable[RowSparse], arrays: Iterable[Array]
) -> list[Gradient]:
    """Return gradients with the names of ``parts``: tables for ``sparse`` layers, arrays for the others, in order."""
    tables, arrays = iter(tables), iter(arrays)
    return [Gradient(part.names, tuple(next(tables) if kept else next(arrays) for kept in sparse)) for part in parts]


def _unpacked(values: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    parts = split_sizes(values, map(prod, shapes))
    return [widen(part).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _tables(parts: Sequence[Gradient]) -> list[RowSparse]:
    return [layer for part in parts for layer in part.layers if isinstance(layer, RowSparse)]


def _arrays(parts: Sequence[Gradient]) -> list[Array]:
    return [layer for part in parts for layer in part.layers if not isinstance(layer, RowSparse)]


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
    node: int | None = None

    numbers: tuple[int, ...] = field(init=False, repr=False, compare=False, default=(), metadata={"fitted": True})
    """Of the node of each rank; empty until `placed`."""
    on_shards: dict[int, Reducer] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The inner reducer of each shard that this rank holds, with its state."""

    size_only = False  # Shards and groups differ from rank to rank.
    # What inner reducers keep, and the bounds that an instance knows, are of its own shards, and of sums of nodes.
    held_back, error_bound = Reducer.held_back, Reducer.error_bound

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
        return self.variant(numbers=tuple(nodes))

    def alignment(self, ranks: int) -> int:
        nodes = sharding.node_membership(ranks, self.node, self.numbers)
        return self.inner.alignment(len(nodes.members)) * nodes.shards

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        nodes, compressed = self._nodes(rank), self.inner.compresses(gradient)
        if nodes.single or not compressed:
            return (yield from self._on(0).reduce(rank, gradient))
        rest = [index for index in range(len(gradient.layers)) if index not in compressed]
        dense = None
        if rest:
            as_sent = sharding.select_layers(gradient, rest).map(lambda values: round_to_dtype(values, self.held))
            dense = rank.all_reduce(as_sent, label="dense layers")

        in_node = self._in_node(rank, nodes, sharding.select_layers(gradient, compressed))
        # So that the average over nodes is that over ranks.
        scale = len(nodes.members) / rank.size
        sums = yield from in_node.sum(scale)
        if len(nodes.members) == 1:
            found = {shard: Reduced(part, partial(sums.__getitem__, shard)) for shard, part in sums.items()}
        else:
            programs = [self._on(shard).reduce(rank.subgroup(nodes.peers(shard)), part) for shard, part in sums.items()]
            found = dict(zip(sums, (yield from sharding.run_interleaved(programs)), strict=True))
        sharing = rank if self.inner.traits.agrees else in_node.local
        mean = yield from in_node.gather({shard: reduced.mean for shard, reduced in found.items()}, sharing)
        yield from wait_all(dense)

        def whole() -> Gradient:
            others = [] if dense is None else [(rest, average(dense.value.map(widen), rank.size))]
            return sharding.merge_layers([(compressed, mean), *others], gradient)

        def sent() -> Gradient:
            if self.inner.traits.lossless or len(nodes.members) == 1:
                return gradient
            # What a shard loses is laid to the charge of who holds it: all ranks' together are what has arrived.
            lost = {shard: subtract(reduced.sent(), sums[shard]) for shard, reduced in found.items()}
            rank.work(gpu_cost.add(sum(stored(layer).size for part in lost.values() for layer in part.layers)))
            scaled = {shard: part.map(partial(np.multiply, 1 / scale)) for shard, part in lost.items()}
            own = add(in_node.gradient, sharding.single_shard(scaled, in_node.gradient, nodes.shards))
            return sharding.merge_layers([(compressed, own), (rest, sharding.select_layers(gradient, rest))], gradient)

        return Reduced(sharing.replicated(whole), sent)

    def learn(self, rank: Rank, gradient: Gradient) -> Waits[None]:
        nodes, compressed = self._nodes(rank), self.inner.compresses(gradient)
        if nodes.single or not compressed:
            yield from self._on(0).learn(rank, gradient)
        elif len(nodes.members) > 1:
            in_node = self._in_node(rank, nodes, sharding.select_layers(gradient, compressed))
            sums = yield from in_node.sum(len(nodes.members) / rank.size)
            yield from sharding.run_interleaved(
                [self._on(shard).learn(rank.subgroup(nodes.peers(shard)), part) for shard, part in sums.items()]
            )

    def state(self) -> dict[str, Any]:
        """Return what the inner reducer carries of each shard that this rank holds, by its number."""
        return {str(shard): inner.state() for shard, inner in self.on_shards.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.on_shards = {}
        for shard, inner in state.items():
            self._on(int(shard)).restore(inner)

    def notes(self) -> tuple[str, ...]:
        why = sharding.no_shared_node_reason(self.node, self.numbers)
        own = () if why is None else (f"{why}: hierarchical=true is plain {self.inner.traits.name} there",)
        return (*self.inner.notes(), *own)

    @property
    def traits(self) -> Traits:
        about = self.inner.traits
        return replace(
            about,
            summary=f"{about.summary}; inside nodes first, then shard by shard between them",
            formula=f"in nodes, and then {about.formula}" if about.formula else "",
        )

    def _nodes(self, rank: Rank) -> sharding.NodeMembership:
        nodes = sharding.node_membership(rank.size, self.node, self.numbers)
        if self.inner.traits.estimates == "weights" and not nodes.equal:
            raise OptionError(
                f"{self.inner.traits.name}: nodes keep models of their own, whose average counts every node alike, but "
                f"the {len(nodes.members)} nodes of {rank.size} ranks hold from {min(map(len, nodes.members))} to "
                f"{nodes.shards}: take workers that fill them, or leave hierarchical=true out"
            )
        return nodes

    def _on(self, shard: int) -> Reducer:
        return self.on_shards.setdefault(shard, self.inner.fresh())

    def _in_node(self, rank: Rank, nodes: sharding.NodeMembership, gradient: Gradient) -> IntraNodeExchange:
        return IntraNodeExchange(rank.subgroup(nodes.mates(rank.index)), nodes, gradient, self.held)
