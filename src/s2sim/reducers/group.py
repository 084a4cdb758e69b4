"""The in-memory process group: drives all ranks' programs in lock-step, moves the real arrays, records scripts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from s2sim.codecs.half import to_half
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.script import Call, Post, Recording, Step, Wait, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from s2sim.reducers.rank import Payload, Program, Reduced, Reducer
    from s2sim.reducers.script import Kind

T = TypeVar("T")

_COMBINE: dict[str, Callable[..., Any]] = {"sum": np.add, "max": np.maximum, "or": np.bitwise_or}


def _leaves(payload: Payload) -> list[NDArray[Any] | RowSparse]:
    """Return the arrays of a payload in the order in which they are packed."""
    if isinstance(payload, Gradient):
        return list(payload.layers)
    if isinstance(payload, tuple):
        return [leaf for part in payload for leaf in _leaves(part)]
    return [payload]


def _rebuild(payload: Payload, leaves: list[NDArray[Any]]) -> Any:
    """Return ``payload``'s structure around other arrays, taking them from the front of ``leaves``."""
    if isinstance(payload, Gradient):
        return Gradient(payload.names, tuple(leaves.pop(0) for _ in payload.layers))
    if isinstance(payload, tuple):
        return tuple(_rebuild(part, leaves) for part in payload)
    return leaves.pop(0)


class _Accumulator:
    """Combines the ranks' payloads of an all-reduce as they come, in rank order, in dense arrays.

    Half-precision sums are kept in float32 and rounded once at the end.
    """

    def __init__(self, payload: Payload, op: str) -> None:
        self._op = op
        self._structure = payload
        self._dtypes = [leaf.dtype for leaf in _leaves(payload)]
        self._totals = [_dense_copy(leaf) for leaf in _leaves(payload)]

    def add(self, payload: Payload) -> None:
        combine = _COMBINE[self._op]
        for total, leaf in zip(self._totals, _leaves(payload), strict=True):
            if not isinstance(leaf, RowSparse):
                combine(total, leaf, out=total)
            elif self._op == "max":
                # The one operation under which the zeros of rows that are not stored count.
                combine(total, leaf.to_dense(), out=total)
            else:
                total[leaf.rows] = combine(total[leaf.rows], leaf.values)

    def result(self) -> Any:
        totals = [
            to_half(total) if dtype == np.float16 else total
            for total, dtype in zip(self._totals, self._dtypes, strict=True)
        ]
        for total in totals:
            total.setflags(write=False)
        return _rebuild(self._structure, totals)


def _dense_copy(leaf: NDArray[Any] | RowSparse) -> NDArray[Any]:
    dense = leaf.to_dense() if isinstance(leaf, RowSparse) else leaf.copy()
    return dense.astype(np.float32) if dense.dtype == np.float16 else dense


class _Collective:
    """One collective while the ranks post it."""

    def __init__(self, kind: Kind, op: str, payload: Payload, label: str, size_from_data: bool) -> None:
        leaves = _leaves(payload)
        self.kind = kind
        self.op = op
        self.label = label
        self.size_from_data = size_from_data
        self.dtypes = [leaf.dtype for leaf in leaves]
        self.shapes = [leaf.shape for leaf in leaves]
        self.sizes_bytes: list[int] = []
        self.value: Any = None
        self._accumulator: _Accumulator | None = None
        self._gathered: list[Payload] = []

    def add(self, kind: Kind, op: str, payload: Payload, label: str, *, size_from_data: bool, rank: int) -> None:
        leaves = _leaves(payload)
        if (kind, op, label, size_from_data) != (self.kind, self.op, self.label, self.size_from_data):
            raise S2SimError(
                f"rank {rank} posts {kind} {label!r} where rank 0 posts {self.kind} {self.label!r}: "
                "all ranks must post the same collectives in the same order"
            )
        # A gather takes another number of elements from each rank; all else is the same for all.
        if [leaf.dtype for leaf in leaves] != self.dtypes or (
            kind == "all_reduce" and [leaf.shape for leaf in leaves] != self.shapes
        ):
            raise S2SimError(f"rank {rank} posts {label!r} with another shape or type than rank 0")
        if kind == "all_gather":
            self._gathered.append(payload)
        elif self._accumulator is None:
            self._accumulator = _Accumulator(payload, op)
        else:
            self._accumulator.add(payload)
        self.sizes_bytes.append(sum(leaf.nbytes for leaf in leaves))

    def finish(self) -> None:
        self.value = self._accumulator.result() if self._accumulator is not None else tuple(self._gathered)
        self._accumulator = None
        self._gathered = []

    def record(self) -> Call:
        """Return what the script keeps: mixed types count as bytes."""
        dtype = self.dtypes[0] if len(set(self.dtypes)) == 1 else np.dtype(np.uint8)
        itemsize = dtype.itemsize
        elements = tuple(size // itemsize for size in self.sizes_bytes)
        return Call(self.kind, self.op, dtype.name, itemsize, elements, self.size_from_data, self.label)


class _Handle:
    """What a program holds of collectives in flight."""

    def __init__(self, rank: _Rank, calls: tuple[int, ...]) -> None:
        self._rank = rank
        self.calls = calls

    def __and__(self, other: Any) -> _Handle:
        return _Handle(self._rank, self.calls + other.calls)

    @property
    def value(self) -> Any:
        values = [self._rank.value(call) for call in self.calls]
        return values[0] if len(values) == 1 else tuple(values)


@dataclasses.dataclass(slots=True)
class _Rank:
    """One rank's handle; implements `s2sim.reducers.rank.Rank`."""

    group: _Group
    index: int
    size: int
    step: int
    seed: int
    script: list[Step] = dataclasses.field(default_factory=list)
    waited: set[int] = dataclasses.field(default_factory=set)
    posted: int = 0
    shared: int = 0

    def all_reduce(self, payload: Payload, op: str = "sum", *, label: str, size_from_data: bool = False) -> _Handle:
        if op not in _COMBINE:
            raise S2SimError(f"all-reduce {label!r} has the op {op!r}; known: {', '.join(_COMBINE)}")
        return self._post("all_reduce", op, payload, label, size_from_data)

    def all_gather(self, payload: Payload, *, label: str, size_from_data: bool = False) -> _Handle:
        return self._post("all_gather", "gather", payload, label, size_from_data)

    def _post(self, kind: Kind, op: str, payload: Payload, label: str, size_from_data: bool) -> _Handle:
        call = self.posted
        self.posted += 1
        if call == len(self.group.collectives):
            self.group.collectives.append(_Collective(kind, op, payload, label, size_from_data))
        self.group.collectives[call].add(kind, op, payload, label, size_from_data=size_from_data, rank=self.index)
        self.script.append(Post(call))
        return _Handle(self, (call,))

    def wait(self, calls: tuple[int, ...]) -> None:
        self.script.append(Wait(calls))
        self.waited.update(calls)

    def value(self, call: int) -> Any:
        collective = self.group.collectives[call]
        if call not in self.waited:
            raise S2SimError(
                f"the value of {collective.label!r} was read before the program waited for it: yield it first"
            )
        return collective.value

    def work(self, work: Work) -> None:
        self.script.append(work)

    def replicated(self, compute: Callable[[], T]) -> T:
        if self.shared == len(self.group.shared):
            self.group.shared.append(compute())
        self.shared += 1
        value: T = self.group.shared[self.shared - 1]
        return value


class _Group:
    def __init__(self) -> None:
        self.collectives: list[_Collective] = []
        self.shared: list[Any] = []


def make_instances(reducer: Reducer, ranks: int) -> list[Reducer]:
    """Return one instance of ``reducer`` for each rank, with its options and without its state."""
    return [dataclasses.replace(reducer) for _ in range(ranks)]  # type: ignore[type-var]


def run_group(
    reducers: Sequence[Reducer],
    gradients: Sequence[Gradient],
    *,
    seed: int = 0,
    step: int = 0,
) -> tuple[list[Reduced], Recording]:
    """Run one reduction and return what each rank ends with, and the scripts.

    Parameters
    ----------
    reducers : sequence of Reducer
        One instance a rank, see `make_instances`.
    gradients : sequence of Gradient
        One a rank, with the same layers.
    seed, step : int
        Root seed and training step, the same for all ranks.
    """
    size = len(gradients)
    group = _Group()
    ranks = [_Rank(group, index, size, step, seed) for index in range(size)]
    programs: list[Program] = [
        reducer.reduce(rank, gradient) for reducer, rank, gradient in zip(reducers, ranks, gradients, strict=True)
    ]
    results: dict[int, Reduced] = {}
    finished = 0
    while len(results) < size:
        waits: list[tuple[int, ...]] = []
        for rank, program in zip(ranks, programs, strict=True):
            try:
                handle = next(program)
            except StopIteration as stop:
                results[rank.index] = stop.value
            else:
                calls = handle.calls  # type: ignore[attr-defined]
                rank.wait(calls)
                waits.append(calls)
        if waits and (results or len(set(waits)) > 1):
            raise S2SimError("the ranks' programs wait for different collectives: they would hang on a real cluster")
        if len({rank.posted for rank in ranks}) > 1:
            raise S2SimError(
                "the ranks have posted different numbers of collectives: they would hang on a real cluster"
            )
        for collective in group.collectives[finished:]:
            collective.finish()
        finished = len(group.collectives)
    if forgotten := set(range(finished)) - set[int]().union(*(rank.waited for rank in ranks)):
        label = group.collectives[min(forgotten)].label
        raise S2SimError(f"the ranks' programs end without waiting for {label!r}: its buffers would still be in use")
    recording = Recording(
        tuple(collective.record() for collective in group.collectives),
        tuple(tuple(rank.script) for rank in ranks),
    )
    return [results[index] for index in range(size)], recording
