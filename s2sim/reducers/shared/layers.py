"""Inside a node: every rank gets the node's sum of its shards, and all get what has become of every shard."""

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

    def __init__(self, local: Rank, nodes: NodeMembership, gradient: Gradient, held: GradientDtype) -> None:
        self.local = local
        self.gradient = gradient
        self._held: GradientDtype = held
        self._shards = cut_shards(gradient, nodes.shards)
        self._holders = [nodes.holder_of(place, local.size) for place in range(local.size)]

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
            local.work(cost.sort_by_owner_cost(tables, local.size))
            local.work(cost.pack_rows_cost(tables))
            messages = [self._message(self._of(holds)) for holds in self._holders]
            rows = local.all_to_all(messages, label="rows to their shards in the node", size_from_data=True)
        if len(tables) < len(self.gradient.layers):
            parts = [self._packed(self._of(holds)) for holds in self._holders]
            values = local.reduce_scatter(parts, label="dense layers in the node")
        yield from _no_wait(rows, values)

        sums: list[RowSparse] = []
        if rows is not None:
            shapes = [table.shape for table in _tables(own)]
            came = [_unpacked_tables(message, shapes) for message in rows.value]
            sums = [sum_tables(column) for column in zip(*came, strict=True)]
            local.work(cost.add_rows_cost(came, sums, "encode"))
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
            local.work(cost.write_keys_cost(tables))
            rows = local.all_gather(self._message(own), label="rows of all shards", size_from_data=True)
        if not all(sparse):
            values = local.all_gather(self._packed(own), label="dense layers of all shards", unequal=True)
        yield from _no_wait(rows, values)

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
            return join_shards([found[shard] for shard in sorted(found)], self.gradient)

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
        return np.concatenate([round_to_dtype(array, self._held).reshape(-1) for array in _arrays(parts)])

    def _charge_order(self, gathered: Gradient) -> None:
        """Charge the GPU for bringing rows from the order of shards into that of the table."""
        joined = _tables([gathered])
        if joined:
            self.local.work(cost.join_rows_cost(joined))
        pairs = zip(gathered.layers, self.gradient.layers, strict=True)
        spread = [new.nbytes for new, old in pairs if isinstance(old, RowSparse) and not isinstance(new, RowSparse)]
        if spread:
            self.local.work(permute(sum(spread), len(spread)))


def _no_wait(*pending: Pending | None) -> Generator[Pending, None, None]:
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


def assign_by_pattern(names: Sequence[str], patterns: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """Return the indices of the names that each pattern is the first to fit, and of those that none does.

    >>> assign_by_pattern(["embed.weight", "out.weight", "bias"], ["embed*", "*.weight"])
    ([[0], [1]], [2])
    """
    found: list[list[int]] = [[] for _ in patterns]
    rest: list[int] = []
    for index, name in enumerate(names):
        first = next((place for place, pattern in enumerate(patterns) if fnmatchcase(name, pattern)), None)
        (rest if first is None else found[first]).append(index)
    return found, rest


T = TypeVar("T")


class GradientWatcher:
    """A rank's handle that notes when a program has awaited the gradient."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.awaited = False

    @property
    def rank(self) -> Rank:
        """The handle, as the program takes it."""
        return cast("Rank", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def await_gradient(self) -> None:
        """Await the gradient, and note it."""
        self._rank.await_gradient()
        self.awaited = True


def run_until_gradient(
    watched: GradientWatcher, program: Generator[Pending, None, T]
) -> Generator[Pending, None, Generator[Pending, None, T]]:
    """Run a program, which has the handle, until it waits for what needs the gradient; return the rest of it."""
    while True:
        try:
            pending = next(program)
        except StopIteration as stop:
            return _finished_program(stop.value)
        if watched.awaited:
            return _resume_program(pending, program)
        yield pending


def _finished_program(result: T) -> Generator[Pending, None, T]:
    yield from ()
    return result


def _resume_program(pending: Pending, program: Generator[Pending, None, T]) -> Generator[Pending, None, T]:
    yield pending
    return (yield from program)


def run_interleaved(programs: Sequence[Generator[Pending, None, T]]) -> Generator[Pending, None, list[T]]:
    """Run programs in turns, each as far as it goes without waiting; wait for what all of them wait for.

    The turns are the same on all ranks whose programs wait equally often, so that ranks which share a group post in the
    same order.
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
