"""Inside a node: every rank gets the node's sum of its shards, and all get what has become of every shard."""

from __future__ import annotations

from functools import reduce
from math import prod
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.gpu_cost import permute
from s2sim.reducers.parts.shards import cut, join
from s2sim.reducers.row_sparse import cost
from s2sim.reducers.row_sparse.messages import COUNT_BYTES, pack_tables, sum_tables, unpack_tables

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from s2sim.reducers.parts.nodes import Nodes
    from s2sim.reducers.rank import Held, Pending, Rank
    from s2sim.reducers.row_sparse.messages import Message


class InNode:
    """One rank's gradient among those of its node.

    Parameters
    ----------
    local : Rank
        Handle on the group of the node's ranks.
    nodes : Nodes
        Who holds which shard.
    gradient : Gradient
        The rank's own.
    held : {"fp32", "bf16"}
        Type in which values travel.
    """

    def __init__(self, local: Rank, nodes: Nodes, gradient: Gradient, held: Held) -> None:
        self.local = local
        self.gradient = gradient
        self._held: Held = held
        self._shards = cut(gradient, nodes.shards)
        self._holders = [nodes.held_by(place, local.size) for place in range(local.size)]

    @property
    def holds(self) -> range:
        """Shards that this rank holds."""
        return self._holders[self.local.index]

    def sum(self, factor: float) -> Generator[Pending, None, dict[int, Gradient]]:
        """Return the node's sums of the shards that this rank holds, times a factor, by shard.

        Rows go to who holds them, in messages of as many as there are, so that the host waits to know how many; dense
        layers are reduce-scattered.
        """
        local, own = self.local, [self._shards[shard] for shard in self.holds]
        tables = _tables([self.gradient])
        rows = values = None
        if tables:
            local.work(cost.sort_by_owner(tables, local.size))
            local.work(cost.pack(tables))
            messages = [self._message(self._of(holds)) for holds in self._holders]
            rows = local.all_to_all(messages, label="rows to their shards in the node", size_from_data=True)
        if len(tables) < len(self.gradient.layers):
            parts = [self._packed(self._of(holds)) for holds in self._holders]
            values = local.reduce_scatter(parts, label="dense layers in the node")
        yield from _wait(rows, values)

        sums: list[RowSparse] = []
        if rows is not None:
            shapes = [table.shape for table in _tables(own)]
            came = [_unpacked_tables(message, shapes) for message in rows.value]
            sums = [sum_tables(column) for column in zip(*came, strict=True)]
            local.work(cost.add_up(came, sums, "encode"))
        arrays = [] if values is None else _unpacked(values.value, [array.shape for array in _arrays(own)])
        next_table, next_array = iter(sums), iter(arrays)
        found = [
            Gradient(
                part.names,
                tuple(next(next_table) if isinstance(layer, RowSparse) else next(next_array) for layer in part.layers),
            ).map(lambda total: total * factor)
            for part in own
        ]
        return dict(zip(self.holds, found, strict=True))

    def gather(self, shards: Mapping[int, Gradient], sharing: Rank) -> Generator[Pending, None, Gradient]:
        """Return the gradient of whose shards every rank of the node hands in those that it holds.

        Row-sparse layers may have become dense, alike in all shards. ``sharing`` is the group of all that end with the
        same, for which the gradient is put together once.
        """
        local, own = self.local, list(shards.values())
        sparse = [isinstance(layer, RowSparse) for layer in own[0].layers]
        rows = values = None
        if any(sparse):
            tables = _tables(own)
            local.work(cost.write_keys(tables))
            rows = local.all_gather(self._message(own), label="rows of all shards", size_from_data=True)
        if not all(sparse):
            values = local.all_gather(self._packed(own), label="dense layers of all shards", unequal=True)
        yield from _wait(rows, values)

        def whole() -> Gradient:
            found: dict[int, Gradient] = {}
            for place, holds in enumerate(self._holders):
                parts = self._of(holds)
                layers = [
                    (layer.shape, kept) for part in parts for layer, kept in zip(part.layers, sparse, strict=True)
                ]
                shapes = [[shape for shape, kept in layers if kept == wanted] for wanted in (True, False)]
                next_table = iter([] if rows is None else _unpacked_tables(rows.value[place], shapes[0]))
                next_array = iter([] if values is None else _unpacked(values.value[place], shapes[1]))
                for shard, part in zip(holds, parts, strict=True):
                    found[shard] = Gradient(
                        part.names, tuple(next(next_table) if kept else next(next_array) for kept in sparse)
                    )
            return join([found[shard] for shard in sorted(found)], self.gradient)

        gathered = sharing.replicated(whole)
        self._charge_order(gathered)
        return gathered

    def _of(self, holds: Iterable[int]) -> list[Gradient]:
        return [self._shards[shard] for shard in holds]

    def _message(self, parts: Sequence[Gradient]) -> Message:
        """Return the tables of some shards as one message: their keys, and all their values in one array."""
        keys, *values = pack_tables(_tables(parts), self._held)
        return keys, np.concatenate([array.reshape(-1) for array in values])

    def _packed(self, parts: Sequence[Gradient]) -> NDArray[Any]:
        """Return the dense layers of some shards as one array."""
        return np.concatenate([as_held(array, self._held).reshape(-1) for array in _arrays(parts)])

    def _charge_order(self, gathered: Gradient) -> None:
        """Charge the GPU for bringing rows from the order of shards into that of the table."""
        joined = _tables([gathered])
        if joined:
            self.local.work(cost.join(joined))
        pairs = zip(gathered.layers, self.gradient.layers, strict=True)
        spread = [new.nbytes for new, old in pairs if isinstance(old, RowSparse) and not isinstance(new, RowSparse)]
        if spread:
            self.local.work(permute(sum(spread), len(spread)))


def _wait(*pending: Pending | None) -> Generator[Pending, None, None]:
    waits = [each for each in pending if each is not None]
    if waits:
        yield reduce(and_, waits)


def _unpacked_tables(message: Message, shapes: Sequence[tuple[int, ...]]) -> list[RowSparse]:
    keys, values = message
    counts = keys[: COUNT_BYTES * len(shapes)].view("<u4").tolist()
    stored = [(count, *shape[1:]) for count, shape in zip(counts, shapes, strict=True)]
    return unpack_tables((keys, *_split(values, stored)), shapes)


def _unpacked(values: NDArray[Any], shapes: Sequence[tuple[int, ...]]) -> list[NDArray[Any]]:
    return [widen(array) for array in _split(values, shapes)]


def _split(values: NDArray[Any], shapes: Sequence[tuple[int, ...]]) -> list[NDArray[Any]]:
    ends = np.cumsum([prod(shape) for shape in shapes], dtype=np.int64)
    return [array.reshape(shape) for array, shape in zip(np.split(values, ends[:-1]), shapes, strict=True)]


def _tables(parts: Sequence[Gradient]) -> list[RowSparse]:
    return [layer for part in parts for layer in part.layers if isinstance(layer, RowSparse)]


def _arrays(parts: Sequence[Gradient]) -> list[NDArray[Any]]:
    return [layer for part in parts for layer in part.layers if not isinstance(layer, RowSparse)]
