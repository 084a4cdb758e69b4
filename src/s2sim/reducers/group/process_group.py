"""The in-memory process group: drives all ranks' programs in lock-step, moves the real arrays, records scripts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.group.combine import OPERATIONS, OVERFLOW, Accumulator, leaves_of, read_only, rebuild
from s2sim.reducers.scripts.script import AwaitGradient, Call, HostSync, Post, Recording, Step, Wait, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Payload, Program, Reduced, Reducer
    from s2sim.reducers.scripts.script import Kind

T = TypeVar("T")


class _Collective:
    """One collective while the ranks post it: each hands in one payload, or one for each rank."""

    def __init__(self, kind: Kind, op: str, payloads: Sequence[Payload], label: str, size_from_data: bool) -> None:
        leaves = leaves_of(payloads[0])
        self.kind = kind
        self.op = op
        self.label = label
        self.size_from_data = size_from_data
        self.dtypes = [leaf.dtype for leaf in leaves]
        self.shapes = [leaf.shape for leaf in leaves]
        self.sizes_bytes: list[tuple[int, ...]] = []
        self._value: Any = None
        self._accumulator: Accumulator | None = None
        self._handed_in: list[list[Payload]] = []

    def add(
        self, kind: Kind, op: str, payloads: Sequence[Payload], label: str, *, size_from_data: bool, rank: int
    ) -> None:
        if (kind, op, label, size_from_data) != (self.kind, self.op, self.label, self.size_from_data):
            raise S2SimError(
                f"rank {rank} posts {kind} {label!r} where rank 0 posts {self.kind} {self.label!r}: "
                "all ranks must post the same collectives in the same order"
            )
        leaves = [leaves_of(payload) for payload in payloads]
        for each in leaves:
            # Only an all-reduce takes the same number of elements from all ranks; all else is alike in every kind.
            if [leaf.dtype for leaf in each] != self.dtypes or (
                kind == "all_reduce" and [leaf.shape for leaf in each] != self.shapes
            ):
                raise S2SimError(f"rank {rank} posts {label!r} with another shape or type than rank 0")
        if kind != "all_reduce":
            self._handed_in.append(
                [rebuild(payload, list(map(read_only, each))) for payload, each in zip(payloads, leaves, strict=True)]
            )
        elif self._accumulator is None:
            self._accumulator = Accumulator(payloads[0], op)
        else:
            self._accumulator.add(payloads[0])
        self.sizes_bytes.append(tuple(sum(leaf.nbytes for leaf in each) for each in leaves))

    def finish(self) -> None:
        if self._accumulator is not None:
            self._value = self._accumulator.result()
            self._accumulator = None
            return
        # For each target what all ranks have for it, or for all the same.
        self._value = tuple(zip(*self._handed_in, strict=True))
        self._handed_in = []

    def value(self, rank: int) -> Any:
        """Return what ``rank`` ends with."""
        if self.kind == "all_reduce":
            return self._value
        return self._value[rank if self.kind == "all_to_all" else 0]

    def record(self) -> Call:
        """Return what the script keeps: mixed types count as bytes."""
        dtype = self.dtypes[0] if len(set(self.dtypes)) == 1 else np.dtype(np.uint8)
        itemsize = dtype.itemsize
        sizes = tuple(tuple(size // itemsize for size in row) for row in self.sizes_bytes)
        elements = tuple(map(sum, sizes))
        blocks = sizes if self.kind == "all_to_all" else ()
        return Call(self.kind, self.op, dtype.name, itemsize, elements, self.size_from_data, self.label, blocks)


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
    last_wait: tuple[int, ...] = ()
    posted: int = 0
    shared: int = 0
    awaits: bool = False

    def all_reduce(self, payload: Payload, op: str = "sum", *, label: str, size_from_data: bool = False) -> _Handle:
        if op not in OPERATIONS:
            raise S2SimError(f"all-reduce {label!r} has the op {op!r}; known: {', '.join(OPERATIONS)}")
        return self._post("all_reduce", op, [payload], label, size_from_data)

    def all_gather(self, payload: Payload, *, label: str, size_from_data: bool = False) -> _Handle:
        return self._post("all_gather", "gather", [payload], label, size_from_data)

    def all_to_all(self, payloads: Sequence[Payload], *, label: str, size_from_data: bool = False) -> _Handle:
        if len(payloads) != self.size:
            raise S2SimError(
                f"rank {self.index} posts {label!r} with {len(payloads)} payloads: give one for each of {self.size} "
                "ranks"
            )
        return self._post("all_to_all", "exchange", payloads, label, size_from_data)

    def _post(self, kind: Kind, op: str, payloads: Sequence[Payload], label: str, size_from_data: bool) -> _Handle:
        call = self.posted
        self.posted += 1
        if call == len(self.group.collectives):
            self.group.collectives.append(_Collective(kind, op, payloads, label, size_from_data))
        self.group.collectives[call].add(kind, op, payloads, label, size_from_data=size_from_data, rank=self.index)
        self.script.append(Post(call))
        return _Handle(self, (call,))

    def await_gradient(self) -> None:
        if self.awaits:
            raise S2SimError(f"rank {self.index} awaits the gradient twice: it is there from the first time on")
        self.awaits = True
        self.script.append(AwaitGradient())

    def wait(self, handle: object) -> None:
        if not isinstance(handle, _Handle):
            raise S2SimError(
                f"rank {self.index} yields a {type(handle).__name__}: a program yields the collectives it waits for"
            )
        self.script.append(Wait(handle.calls))
        self.last_wait = handle.calls
        self.waited.update(handle.calls)

    def value(self, call: int) -> Any:
        collective = self.group.collectives[call]
        if call not in self.waited:
            raise S2SimError(
                f"the value of {collective.label!r} was read before the program waited for it: yield it first"
            )
        return collective.value(self.index)

    def work(self, work: Work) -> None:
        self.script.append(work)

    def synchronise(self) -> None:
        self.script.append(HostSync())

    def replicated(self, compute: Callable[[], T]) -> T:
        if self.shared == len(self.group.shared):
            self.group.shared.append(compute())
        self.shared += 1
        value: T = self.group.shared[self.shared - 1]
        return value


class _Group:
    """What the ranks have in common: their collectives, and what is computed once for all of them."""

    def __init__(self) -> None:
        self.collectives: list[_Collective] = []
        self.shared: list[Any] = []
        self._finished = 0

    def finish(self) -> None:
        """Complete the collectives that all ranks have posted by now."""
        for collective in self.collectives[self._finished :]:
            collective.finish()
        self._finished = len(self.collectives)

    def check_waited(self, ranks: Sequence[_Rank]) -> None:
        """Raise if a collective is still in flight when the programs have returned."""
        for call, collective in enumerate(self.collectives):
            if not any(call in rank.waited for rank in ranks):
                raise S2SimError(
                    f"the ranks' programs end without waiting for {collective.label!r}: its buffers would still be in "
                    "use"
                )

    def record(self, ranks: Sequence[_Rank]) -> Recording:
        calls = tuple(collective.record() for collective in self.collectives)
        return Recording(calls, tuple(tuple(rank.script) for rank in ranks))


def make_instances(reducer: Reducer, ranks: int) -> list[Reducer]:
    """Return one instance of ``reducer`` for each rank, with its options and without its state."""
    return [reducer.fresh() for _ in range(ranks)]


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
    # Sums that overflow show in the mean.
    with np.errstate(over="ignore"):
        while len(results) < size:
            for rank, program in zip(ranks, programs, strict=True):
                try:
                    rank.wait(next(program))
                except StopIteration as stop:
                    results[rank.index] = stop.value
            _check_together(ranks, ended=len(results))
            group.finish()
    group.check_waited(ranks)
    means = {id(result.mean): result.mean for result in results.values()}.values()
    if not all(map(_is_finite, means)) and all(map(_is_finite, gradients)):
        raise S2SimError(OVERFLOW)
    return [results[index] for index in range(size)], group.record(ranks)


def _is_finite(gradient: Gradient) -> bool:
    return all(
        bool(np.isfinite(layer.values if isinstance(layer, RowSparse) else layer).all()) for layer in gradient.layers
    )


def _check_together(ranks: Sequence[_Rank], *, ended: int) -> None:
    """Raise unless all ranks stand at the same place of their programs, after ``ended`` of them have returned."""
    if 0 < ended < len(ranks) or len({rank.last_wait for rank in ranks}) > 1:
        raise S2SimError("the ranks' programs wait for different collectives: they would hang on a real cluster")
    if len({rank.posted for rank in ranks}) > 1:
        raise S2SimError("the ranks have posted different numbers of collectives: they would hang on a real cluster")
    if len({rank.awaits for rank in ranks}) > 1:
        raise S2SimError("only some ranks await the gradient: the others would start before it is there")
    if len({rank.shared for rank in ranks}) > 1:
        raise S2SimError("the ranks share different numbers of replicated computations: all must share the same")
