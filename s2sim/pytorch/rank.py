"""The `Rank` of a real process: a reducer's program between processes of ``torch.distributed``."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import split_sizes
from s2sim.collectives import Kind
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.synthetic import load_trace
from s2sim.pytorch import transport as transfers
from s2sim.pytorch.launch import KernelCounters, read_counters
from s2sim.pytorch.members import AsyncWork, Members, group_members
from s2sim.pytorch.transport import pack, reduce_arrays
from s2sim.reducers.process_group import Handle, check_member, check_one_each, check_operation
from s2sim.reducers.rank import Contribution, Reduced, Reducer
from s2sim.reducers.reduction import leaves_of, rebuild
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import flat_vector

# ruff: noqa: D102  (ProcessRank implements the protocol `s2sim.reducers.rank.Rank`, whose methods have the docstrings)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class LocalReduction:
    """A reduction in this process."""

    reduced: Reduced  # The mean, and what this rank sent
    waits_s: list[float]  # Seconds of waiting for other ranks in each collective
    total_s: float  # Seconds in all
    sent_bytes: float = 0.0  # By ring algorithms

    @property
    def waited_s(self) -> float:
        """Seconds of waiting in all."""
        return sum(self.waits_s)


def reduce_here(
    reducer: Reducer, gradient: Gradient, *, group: Any = None, seed: int = 0, step: int = 0
) -> LocalReduction:
    """Run a reducer's program as a process of a group (default: all); ``seed`` and ``step`` are equal on all ranks."""
    begun_s = time.perf_counter()
    clock = _WaitClock()
    rank = ProcessRank(group_members(group), step, seed, clock)
    # Overflows show in the mean, as between ranks in memory.
    with np.errstate(over="ignore", invalid="ignore"):
        reduced = drive(reducer.reduce(rank, gradient))
    return LocalReduction(reduced, clock.waits_s, time.perf_counter() - begun_s, clock.sent_bytes)


def learn_here(reducer: Reducer, gradient: Gradient, *, seed: int) -> None:
    """Run the part of a reducer's program that sets its state for later steps, between all processes."""
    drive(reducer.learn(ProcessRank(group_members(), 0, seed, _WaitClock()), gradient))


def drive(program: Generator[Any, None, T]) -> T:
    """Run a program on a `ProcessRank` to its end, and return its result."""
    while True:
        try:
            handle = next(program)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if not isinstance(handle, Handle):
            raise S2SimError(f"a program yields a {type(handle).__name__}: it yields the collectives that it waits for")
        collective: Any
        for _, collective in handle.parts:
            collective.wait()


@dataclass(slots=True)
class _WaitClock:
    waits_s: list[float] = field(default_factory=list)
    sent_bytes: float = 0.0

    def timed(self, wait: Callable[[], T]) -> T:
        begun_s = time.perf_counter()
        try:
            return wait()
        finally:
            self.waits_s.append(time.perf_counter() - begun_s)


@dataclass(slots=True, eq=False)
class _PostedCollective:
    label: str
    flight: AsyncWork[Any]
    clock: _WaitClock
    arrived: bool = False
    value: Any = None

    def wait(self) -> None:
        if not self.arrived:
            self.value = self.clock.timed(self.flight.wait)
            self.arrived = True


class ProcessRank:
    """The rank of this process in a group; implements `s2sim.reducers.rank.Rank`."""

    def __init__(self, members: Members, step: int, seed: int, clock: _WaitClock) -> None:
        self.members = members
        self.index, self.size = members.index, members.size
        self.step, self.seed = step, seed
        self._clock = clock

    def all_reduce(self, payload: Contribution, op: str = "sum", *, label: str, **how: bool) -> Handle:
        self._count(2 * (self.size - 1) / self.size, [payload])
        return self._reduction("all_reduce", [payload], payload, op, 0, label)

    def reduce(self, payload: Contribution, op: str = "sum", *, root: int, label: str, **how: bool) -> Handle:
        check_member(self, root, f"the root of {label!r}")
        self._count(float(self.index != root), [payload])
        return self._reduction("reduce", [payload], payload, op, root, label)

    def reduce_scatter(self, payloads: Sequence[Contribution], op: str = "sum", *, label: str, **how: bool) -> Handle:
        check_one_each(self, payloads, label)
        self._count((self.size - 1) / self.size, payloads)
        return self._reduction("reduce_scatter", payloads, payloads[self.index], op, 0, label)

    def broadcast(self, payload: Contribution | None, *, root: int, label: str, **how: bool) -> Handle:
        check_member(self, root, f"the root of {label!r}")
        if self.index == root and payload is None:
            raise S2SimError(f"rank {root} is the root of {label!r} and broadcasts nothing")
        self._count(float(self.size > 1), [] if payload is None else [payload])
        return self._posted(label, payload, lambda: transfers.broadcast(self.members, payload, root, **how))

    def all_gather(self, payload: Contribution, *, label: str, spreads: bool = False, **how: bool) -> Handle:
        self._count(self.size - 1, [payload])
        return self._posted(label, (payload,), lambda: transfers.all_gather(self.members, payload, **how))

    def all_to_all(self, payloads: Sequence[Contribution], *, label: str, **how: bool) -> Handle:
        check_one_each(self, payloads, label)
        self._count(1, [payload for place, payload in enumerate(payloads) if place != self.index])
        return self._posted(label, tuple(payloads), lambda: transfers.all_to_all(self.members, payloads, **how))

    def exchange(self, payloads: Mapping[int, Contribution], *, label: str, **how: bool) -> Handle:
        for peer in payloads:
            check_member(self, peer, f"a peer in {label!r}")
        if self.index in payloads:
            raise S2SimError(f"rank {self.index} sends to itself in {label!r}: leave that out")
        self._count(1, payloads.values())
        return self._posted(label, {}, lambda: transfers.exchange(self.members, payloads, **how))

    def subgroup(self, ranks: Iterable[int]) -> ProcessRank:
        places = sorted(ranks)
        for place in places:
            check_member(self, place, "a member of a group")
        if self.index not in places or len(set(places)) < len(places):
            raise S2SimError(f"rank {self.index} asks for a group of the ranks {places}: itself and others, each once")
        return ProcessRank(self._clock.timed(lambda: self.members.among(places)), self.step, self.seed, self._clock)

    def await_gradient(self) -> None:
        """Do nothing: the gradient is there."""

    def work(self, work: Work) -> None:
        """Do nothing: what the program computes takes the time it takes."""

    def synchronise(self) -> None:
        """Do nothing: arrays are in host memory."""

    def replicated(self, compute: Callable[[], T]) -> T:
        return compute()

    def _count(self, times: float, payloads: Iterable[Contribution]) -> None:
        """Add the bytes of payloads, each of which a rank sends so many times in a ring."""
        self._clock.sent_bytes += times * sum(leaf.nbytes for payload in payloads for leaf in leaves_of(payload))

    def _reduction(
        self, kind: Kind, payloads: Sequence[Contribution], like: Contribution, op: str, root: int, label: str
    ) -> Handle:
        check_operation(op, label)
        arrays = [_flat(payload, label) for payload in payloads]
        flight = (
            AsyncWork((), lambda: arrays[0]) if self.size == 1 else reduce_arrays(self.members, kind, arrays, op, root)
        )
        return self._handle(label, flight.then(lambda found: _rebuild_payload(like, found)))

    def _posted(self, label: str, alone: Any, post: Callable[[], AsyncWork[Any]]) -> Handle:
        """Post a collective; a group of one has the value ``alone``."""
        return self._handle(label, AsyncWork((), lambda: alone) if self.size == 1 else self._clock.timed(post))

    def _handle(self, label: str, flight: AsyncWork[Any]) -> Handle:
        parts: Any = ((self, _PostedCollective(label, flight, self._clock)),)
        return Handle(parts)

    def value(self, posted: _PostedCollective) -> Any:
        """Return the result of a collective that the program has waited for."""
        if not posted.arrived:
            raise S2SimError(f"the value of {posted.label!r} was read before the program waited for it: yield it first")
        return posted.value


def _flat(payload: Contribution, label: str) -> NDArray[Any]:
    dtypes = list(dict.fromkeys(leaf.dtype for leaf in leaves_of(payload)))
    if len(dtypes) > 1:
        raise S2SimError(
            f"{label!r} combines {' and '.join(map(str, dtypes))} at once, which no library does: post one for each"
        )
    return pack(payload).view(dtypes[0])


def _rebuild_payload(payload: Contribution, found: NDArray[Any] | None) -> Any:
    """Return combined values in the structure of a payload, read-only; None for none."""
    if found is None:
        return None
    found.setflags(write=False)
    leaves = leaves_of(payload)
    parts = split_sizes(found, [leaf.size for leaf in leaves])
    return rebuild(payload, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])


# After this pause no traffic is under way when a counter is read.
_SETTLE_S = 0.05
_COUNTED = ("sent_bytes", "again_bytes", "connections")


def run_checks(rank: int, ranks: int, arguments: Mapping[str, Any], tell: Callable[[Any], None]) -> dict[str, Any]:
    """Run every reducer for its steps, report each, and return the total counts.

    ``arguments``: ``trace``, ``seed``, ``nodes`` (the node of each rank), ``folder`` for means, and ``reducers``, each
    with ``text`` and ``steps``, pairs of step number and step of the trace.
    """
    trace = load_trace(arguments["trace"], workers=ranks, seed=arguments["seed"])
    begun = _settled_counters()
    for number, asked in enumerate(arguments["reducers"]):
        told: dict[str, Any] = {"reducer": number}
        try:
            told["steps"] = _steps(number, asked, trace.gradient, rank, arguments)
        except S2SimError as error:
            told["refused"] = str(error)
        tell(told)
    return {name: value - getattr(begun, name) for name, value in asdict(_settled_counters()).items()}


def _steps(
    number: int,
    asked: Mapping[str, Any],
    gradient_of: Callable[[int, int], Gradient],
    rank: int,
    arguments: Mapping[str, Any],
) -> list[dict[str, Any]]:
    import torch.distributed as dist

    seed = arguments["seed"]
    reducer = make_reducer(asked["text"]).placed(arguments["nodes"])
    members = group_members()
    if reducer.traits.warm:
        learn_here(reducer, gradient_of(asked["steps"][0][1], rank), seed=seed)
    found, folder = [], Path(arguments["folder"])
    for step, of_trace in asked["steps"]:
        gradient = gradient_of(of_trace, rank)
        members.size_headers.clear()
        dist.barrier()
        before = read_counters()
        here = reduce_here(reducer, gradient, seed=seed, step=step)
        dist.barrier()
        after = read_counters()
        counts = {name: getattr(after, name) - getattr(before, name) for name in _COUNTED}
        headers = [asdict(each) for each in members.size_headers]
        values = flat_vector(here.reduced.mean)
        name = f"{number}-{step}-{hashlib.sha256(values.tobytes()).hexdigest()}.npy"
        if not (folder / name).exists():  # Equal results of ranks are written once.
            partial = folder / f"{name}.{time.monotonic_ns()}.npy"
            np.save(partial, values)
            partial.rename(folder / name)
        found.append({**counts, "told": headers, "mean": name, "waited_s": here.waited_s, "total_s": here.total_s})
    return found


def _settled_counters() -> KernelCounters:
    import torch.distributed as dist

    dist.barrier()
    time.sleep(_SETTLE_S)
    counted = read_counters()
    time.sleep(_SETTLE_S)
    dist.barrier()
    return counted
