"""Exchange of shards within a node, and programs that run concurrently on groups of layers."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from math import prod
from operator import and_
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.gpu_cost import permute
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.shared import sketch_cost as cost
from s2sim.reducers.shared.row_sparse import COUNT_BYTES, Message, pack_tables, sum_tables, unpack_tables
from s2sim.reducers.shared.two_level_sum import NodeMembership, cut_shards, join_shards


class IntraNodeExchange:
    """One rank's exchange of shards with the other ranks of its node, whose group is ``local``."""

    def __init__(self, local: Rank, nodes: NodeMembership, gradient: Gradient, held: GradientDtype) -> None:
        self.local = local
        self.gradient = gradient
        self._held: GradientDtype = held
        self._shards = cut_shards(gradient, nodes.shards)
        self._holders = nodes.holders(local.size)

    @property
    def holds(self) -> range:
        """Shards of this rank."""
        return self._holders[self.local.index]

    def sum(self, factor: float) -> Generator[Pending, None, dict[int, Gradient]]:
        """Return the node's sums of this rank's shards, times a factor, by shard.

        Rows are sent in messages of data-dependent size, for which the host waits; dense layers are reduce-scattered.
        """
        local, own = self.local, [self._shards[shard] for shard in self.holds]
        tables = _tables([self.gradient])
        rows = values = None
        if tables:
            local.work(cost.sort_by_owner_cost(tables, local.size))
            local.work(cost.pack_rows_cost(tables))
            messages = [self._message(self._of(holds)) for holds in self._holders]
            rows = local.all_to_all(messages, label="rows to their shards in the node", size_from_data=True)
        if len(tables) < len(self.gradient.layers):
            parts = [self._packed(self._of(holds)) for holds in self._holders]
            values = local.reduce_scatter(parts, label="dense layers in the node")
        yield from _wait(rows, values)

        sums: list[RowSparse] = []
        if rows is not None:
            shapes = [table.shape for table in _tables(own)]
            received = [_unpacked_tables(message, shapes) for message in rows.value]
            sums = [sum_tables(column) for column in zip(*received, strict=True)]
            local.work(cost.add_rows_cost(received, sums, "encode"))
        arrays = [] if values is None else _unpacked(values.value, [array.shape for array in _arrays(own)])
        totals = _interleaved(own, [isinstance(layer, RowSparse) for layer in self.gradient.layers], sums, arrays)
        return {shard: total.map(lambda sum_: sum_ * factor) for shard, total in zip(self.holds, totals, strict=True)}

    def gather(self, shards: Mapping[int, Gradient], sharing: Rank) -> Generator[Pending, None, Gradient]:
        """Return the gradient of all shards, of which each rank of the node contributes its own ``shards``.

        Row-sparse layers may have become dense, in all shards alike. The gradient is joined once for all ranks of
        ``sharing``, which get the same.
        """
        local, own = self.local, list(shards.values())
        sparse = [isinstance(layer, RowSparse) for layer in own[0].layers]
        rows = values = None
        if any(sparse):
            tables = _tables(own)
            local.work(cost.write_keys_cost(tables))
            rows = local.all_gather(self._message(own), label="rows of all shards", size_from_data=True)
        if not all(sparse):
            values = local.all_gather(self._packed(own), label="dense layers of all shards", unequal=True)
        yield from _wait(rows, values)

        def joined() -> Gradient:
            all_shards: dict[int, Gradient] = {}
            for index, holds in enumerate(self._holders):
                parts = self._of(holds)
                layers = [pair for part in parts for pair in zip(part.layers, sparse, strict=True)]
                tables, arrays = (
                    [layer.shape for layer, kept in layers if kept == is_table] for is_table in (True, False)
                )
                received = _interleaved(
                    parts,
                    sparse,
                    [] if rows is None else _unpacked_tables(rows.value[index], tables),
                    [] if values is None else _unpacked(values.value[index], arrays),
                )
                all_shards |= zip(holds, received, strict=True)
            return join_shards([all_shards[shard] for shard in sorted(all_shards)], self.gradient)

        gathered = sharing.replicated(joined)
        # Rows are brought from the order of shards into that of the table.
        whole = _tables([gathered])
        if whole:
            local.work(cost.join_rows_cost(whole))
        pairs = zip(gathered.layers, self.gradient.layers, strict=True)
        spread = [new.nbytes for new, old in pairs if isinstance(old, RowSparse) and not isinstance(new, RowSparse)]
        if spread:
            local.work(permute(sum(spread), len(spread)))
        return gathered

    def _of(self, holds: Iterable[int]) -> list[Gradient]:
        return [self._shards[shard] for shard in holds]

    def _message(self, parts: Sequence[Gradient]) -> Message:
        """Return the tables of some shards as one message: their keys, and all their values in one array."""
        keys, *values = pack_tables(_tables(parts), self._held)
        return keys, np.concatenate([array.reshape(-1) for array in values])

    def _packed(self, parts: Sequence[Gradient]) -> NDArray[Any]:
        """Return the dense layers of some shards as one array."""
        return np.concatenate([round_to_dtype(array, self._held).reshape(-1) for array in _arrays(parts)])


def _interleaved(
    parts: Sequence[Gradient], sparse: Sequence[bool], tables: Iterable[RowSparse], arrays: Iterable[NDArray[Any]]
) -> list[Gradient]:
    """Return gradients with the names of ``parts``: tables for ``sparse`` layers, arrays for the others, in order."""
    tables, arrays = iter(tables), iter(arrays)
    return [Gradient(part.names, tuple(next(tables) if kept else next(arrays) for kept in sparse)) for part in parts]


def _wait(*pending: Pending | None) -> Generator[Pending, None, None]:
    waits = [posted for posted in pending if posted is not None]
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


def assign_by_pattern(names: Sequence[str], patterns: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """Return the indices of the names that each pattern is the first to match, and of those that match none.

    >>> assign_by_pattern(["embed.weight", "out.weight", "bias"], ["embed*", "*.weight"])
    ([[0], [1]], [2])
    """
    groups: list[list[int]] = [[] for _ in (*patterns, "")]
    for index, name in enumerate(names):
        first = next((place for place, pattern in enumerate(patterns) if fnmatchcase(name, pattern)), -1)
        groups[first].append(index)
    return groups[:-1], groups[-1]


T = TypeVar("T")


class GradientWatcher:
    """A handle on a rank that records whether a program has awaited the gradient."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.awaited = False

    @property
    def rank(self) -> Rank:
        """The handle, typed for programs."""
        return cast("Rank", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def await_gradient(self) -> None:
        """Await the gradient and record that."""
        self._rank.await_gradient()
        self.awaited = True


def run_until_gradient(
    watched: GradientWatcher, program: Generator[Pending, None, T]
) -> Generator[Pending, None, Generator[Pending, None, T]]:
    """Run a program with the handle ``watched`` until it waits for the gradient; return the remaining program."""
    while True:
        try:
            pending = next(program)
        except StopIteration as stop:
            return _resumed([], program, stop.value)
        if watched.awaited:
            return _resumed([pending], program)
        yield pending


def _resumed(
    pending: Sequence[Pending], program: Generator[Pending, None, T], result: T | None = None
) -> Generator[Pending, None, T]:
    yield from pending
    rest = yield from program
    return rest if pending else cast("T", result)


def run_interleaved(programs: Sequence[Generator[Pending, None, T]]) -> Generator[Pending, None, list[T]]:
    """Run programs in turns, each until it waits, then wait for all that they wait for.

    The turns are equal on all ranks with programs that wait equally often: ranks of a group post in the same order.
    """
    results: list[T | None] = [None] * len(programs)
    running = dict(enumerate(programs))
    while running:
        waits: list[Pending] = []
        for place, program in list(running.items()):
            try:
                waits.append(next(program))
            except StopIteration as stop:
                results[place] = stop.value
                del running[place]
        if waits:
            yield reduce(and_, waits)
    return cast("list[T]", results)
