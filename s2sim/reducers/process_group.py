"""The in-memory process group: drives all ranks' programs as far as each can go, moves the arrays, records scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, stored
from s2sim.reducers.rank import Contribution, PostOptions, Program, Rank, Reduced, Reducer, T, Waits
from s2sim.reducers.reduction import OPERATIONS, OVERFLOW, CallHeader, Collective
from s2sim.reducers.script import AwaitGradient, Call, HostSync, Post, Recording, Step, Wait, Work


def check_member(rank: Rank, place: int, what: str) -> None:
    """Raise `S2SimError` if there is no such place in the group of ``rank``."""
    if not 0 <= place < rank.size:
        raise S2SimError(f"rank {rank.index} names rank {place} as {what}: there are {rank.size}, from 0 on")


def check_one_each(rank: Rank, payloads: Sequence[Contribution], label: str) -> None:
    """Raise `S2SimError` unless there is one payload for each rank."""
    if len(payloads) != rank.size:
        raise S2SimError(
            f"rank {rank.index} posts {label!r} with {len(payloads)} payloads: give one for each of {rank.size} ranks"
        )


def check_operation(op: str, label: str) -> None:
    """Raise `S2SimError` unless payloads can be combined by ``op``."""
    if op not in OPERATIONS:
        raise S2SimError(f"{label!r} is to be combined by {op!r}; known: {', '.join(OPERATIONS)}")


class ProcessGroup:
    """Some ranks, in their order: their collectives, and what is computed once for all of them."""

    def __init__(self, world: World, ranks: tuple[int, ...]) -> None:
        self.world = world
        self.ranks = ranks
        self.calls: list[int] = []
        """Numbers of its collectives among those of all groups, in the order in which members post them."""
        self.shared: list[Any] = []

    def post(self, member: int, place: int, heading: CallHeader, payloads: Mapping[int, Contribution]) -> int:
        """Take what a member hands in to the group's collective number ``place``; return its number among all."""
        if place == len(self.calls):
            self.calls.append(len(self.world.collectives))
            self.world.collectives.append(Collective(heading, self.ranks))
        self.world.collectives[self.calls[place]].add(member, heading, payloads)
        return self.calls[place]


class World:
    """All ranks, their groups, and the collectives of all of these in the order in which they were first posted."""

    def __init__(self, size: int) -> None:
        self.collectives: list[Collective] = []
        self.all = ProcessGroup(self, tuple(range(size)))
        self.groups = {self.all.ranks: self.all}

    def group(self, ranks: tuple[int, ...]) -> ProcessGroup:
        """Return the group of these ranks; the same for the same ones."""
        return self.groups.setdefault(ranks, ProcessGroup(self, ranks))

    def forget(self) -> None:
        """Drop payloads and what was shared: groups know the world, and memory would wait for a garbage collection."""
        self.collectives.clear()
        for group in self.groups.values():
            group.shared.clear()

    def record(self) -> tuple[Call, ...]:
        """Return what the scripts keep of all collectives."""
        everybody = self.all.ranks
        return tuple(
            replace(each.record(), ranks=() if each.ranks == everybody else each.ranks) for each in self.collectives
        )


@dataclass(slots=True)
class RankProgress:
    """How far one rank's program has come."""

    rank: int
    script: list[Step] = field(default_factory=list)  # What it has done
    # posted, waited: collectives that it has posted and waited for
    posted: set[int] = field(default_factory=set)
    waited: set[int] = field(default_factory=set)
    waits_for: tuple[int, ...] = ()  # Those that it waits for now
    awaits: bool = False  # Whether it has awaited the gradient
    members: dict[ProcessGroup, Member] = field(default_factory=dict)  # Its handles

    def wait(self, handle: object) -> None:
        """Begin to wait for what the program has yielded."""
        if not isinstance(handle, Handle):
            raise S2SimError(
                f"rank {self.rank} yields a {type(handle).__name__}: a program yields the collectives it waits for"
            )
        self.waits_for = tuple(call for _, call in handle.parts)
        self.script.append(Wait(self.waits_for))
        self.waited.update(self.waits_for)

    def member(self, group: ProcessGroup, step: int, seed: int) -> Member:
        """Return this rank's handle on a group."""
        if group not in self.members:
            self.members[group] = Member(group, self, group.ranks.index(self.rank), len(group.ranks), step, seed)
        return self.members[group]


@dataclass(frozen=True, slots=True)
class Handle:
    """What a program holds of collectives in flight."""

    parts: tuple[tuple[Member, int], ...]

    def __iter__(self) -> Waits[Any]:
        yield self
        return self.value

    def __and__(self, other: Any) -> Handle:
        return Handle(self.parts + other.parts)

    @property
    def value(self) -> Any:
        """The result of the one, or the tuple of all."""
        values = [member.value(call) for member, call in self.parts]
        return values[0] if len(values) == 1 else tuple(values)


@dataclass(slots=True, eq=False)
class Member:
    """One rank in one group; implements `s2sim.reducers.rank.Rank`."""

    group: ProcessGroup
    progress: RankProgress
    index: int
    size: int
    step: int
    seed: int
    posted: int = 0
    shared: int = 0

    def all_reduce(self, payload: Contribution, op: str = "sum", **how: Unpack[PostOptions]) -> Handle:
        check_operation(op, how["label"])
        return self._post(CallHeader("all_reduce", op, **how), {0: payload})

    def reduce(self, payload: Contribution, op: str = "sum", *, root: int, **how: Unpack[PostOptions]) -> Handle:
        check_member(self, root, f"the root of {how['label']!r}")
        check_operation(op, how["label"])
        return self._post(CallHeader("reduce", op, root=root, **how), {0: payload})

    def reduce_scatter(self, payloads: Sequence[Contribution], op: str = "sum", **how: Unpack[PostOptions]) -> Handle:
        check_one_each(self, payloads, how["label"])
        check_operation(op, how["label"])
        return self._post(CallHeader("reduce_scatter", op, **how), dict(enumerate(payloads)))

    def broadcast(self, payload: Contribution | None, *, root: int, **how: Unpack[PostOptions]) -> Handle:
        check_member(self, root, f"the root of {how['label']!r}")
        own: dict[int, Contribution] = {}
        if self.index == root:
            if payload is None:
                raise S2SimError(f"rank {self.progress.rank} is the root of {how['label']!r} and broadcasts nothing")
            own[0] = payload
        return self._post(CallHeader("broadcast", "copy", root=root, **how), own)

    def all_gather(self, payload: Contribution, **how: Unpack[PostOptions]) -> Handle:
        return self._post(CallHeader("all_gather", "gather", **how), {0: payload})

    def all_to_all(self, payloads: Sequence[Contribution], **how: Unpack[PostOptions]) -> Handle:
        check_one_each(self, payloads, how["label"])
        return self._post(CallHeader("all_to_all", "exchange", **how), dict(enumerate(payloads)))

    def exchange(self, payloads: Mapping[int, Contribution], **how: Unpack[PostOptions]) -> Handle:
        for peer in payloads:
            check_member(self, peer, f"a peer in {how['label']!r}")
        if self.index in payloads:
            raise S2SimError(f"rank {self.progress.rank} sends to itself in {how['label']!r}: leave that out")
        return self._post(CallHeader("all_to_all", "peers", **how), payloads)

    def subgroup(self, ranks: Iterable[int]) -> Member:
        places = sorted(ranks)
        for place in places:
            check_member(self, place, "a member of a group")
        if len(set(places)) < len(places):
            raise S2SimError(f"a group of the ranks {places} was asked for: name each once")
        if self.index not in places:
            raise S2SimError(f"rank {self.index} asks for a group of the ranks {places}, of which it is none")
        group = self.group.world.group(tuple(self.group.ranks[place] for place in places))
        return self.progress.member(group, self.step, self.seed)

    def await_gradient(self) -> None:
        if self.progress.awaits:
            raise S2SimError(f"rank {self.progress.rank} awaits the gradient twice: it is there from the first time on")
        self.progress.awaits = True
        self.progress.script.append(AwaitGradient())

    def work(self, work: Work) -> None:
        self.progress.script.append(work)

    def synchronise(self) -> None:
        self.progress.script.append(HostSync())

    def replicated(self, compute: Callable[[], T]) -> T:
        if self.shared == len(self.group.shared):
            self.group.shared.append(compute())
        self.shared += 1
        value: T = self.group.shared[self.shared - 1]
        return value

    def value(self, call: int) -> Any:
        """Return what this member ends with in a collective that its program has waited for."""
        collective = self.group.world.collectives[call]
        if call not in self.progress.waited:
            raise S2SimError(
                f"the value of {collective.heading.label!r} was read before the program waited for it: yield it first"
            )
        return collective.value(self.index)

    def _post(self, heading: CallHeader, payloads: Mapping[int, Contribution]) -> Handle:
        call = self.group.post(self.index, self.posted, heading, payloads)
        self.posted += 1
        self.progress.posted.add(call)
        self.progress.script.append(Post(call))
        return Handle(((self, call),))


def make_instances(reducer: Reducer, ranks: int) -> list[Reducer]:
    """Return one instance of ``reducer`` for each rank, with its options and without its state."""
    return [reducer.fresh() for _ in range(ranks)]


def run_group(
    reducers: Sequence[Reducer], gradients: Sequence[Gradient], *, seed: int = 0, step: int = 0
) -> tuple[list[Reduced], Recording]:
    """Run one reduction and return what each rank ends with, and the scripts.

    There is one instance (see `make_instances`) and one gradient a rank, all with the same layers; root seed and
    training step are the same for all ranks.
    """
    size = len(gradients)
    world = World(size)
    ranks = [RankProgress(index) for index in range(size)]
    running: dict[int, Program] = {
        rank.rank: reducer.reduce(rank.member(world.all, step, seed), gradient)
        for reducer, rank, gradient in zip(reducers, ranks, gradients, strict=True)
    }
    results: dict[int, Reduced] = {}
    # Sums that overflow, and what becomes of infinities, show in the mean.
    with np.errstate(over="ignore", invalid="ignore"):
        while running:
            # What each waits for that not all have posted.
            pending = {index: [c for c in ranks[index].waits_for if world.collectives[c].missing] for index in running}
            if not (free := [index for index, calls in pending.items() if not calls]):
                raise S2SimError(_deadlock_error(world, pending))
            for index in free:
                try:
                    ranks[index].wait(next(running[index]))
                except StopIteration as stop:
                    results[index] = stop.value
                    del running[index]
    _check_ended(world, ranks)
    means = {id(result.mean): result.mean for result in results.values()}.values()
    if not all(map(_is_finite, means)) and all(map(_is_finite, gradients)):
        raise S2SimError(OVERFLOW)
    recording = Recording(world.record(), tuple(tuple(rank.script) for rank in ranks))
    world.forget()
    return [results[index] for index in range(size)], recording


def _is_finite(gradient: Gradient) -> bool:
    return all(bool(np.isfinite(stored(layer)).all()) for layer in gradient.layers)


def _deadlock_error(world: World, pending: Mapping[int, Sequence[int]]) -> str:
    waits: dict[int, list[int]] = {}
    for rank, calls in pending.items():
        for call in calls:
            waits.setdefault(call, []).append(rank)
    texts = [
        f"{_format_ranks(who, 'waits', 'wait')} for {_ranks_not_posted(world, call)}" for call, who in waits.items()
    ]
    return f"the programs hang, as they would on a real cluster: {'; '.join(texts)}"


def _ranks_not_posted(world: World, call: int) -> str:
    collective = world.collectives[call]
    return f"{collective.heading.label!r}, which {_format_ranks(sorted(collective.missing), 'has', 'have')} not posted"


def _format_ranks(ranks: Sequence[int], one: str, several: str) -> str:
    """Return the ranks with their verb, runs of three and more as first-last."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(parts)} {several if len(ranks) > 1 else one}"


def _check_ended(world: World, ranks: Sequence[RankProgress]) -> None:
    """Raise if a collective is still in flight, or ranks have not done alike what all of them must."""
    for rank in ranks:
        for call in sorted(rank.posted - rank.waited):
            if world.collectives[call].missing:
                raise S2SimError(
                    f"rank {rank.rank} has posted {_ranks_not_posted(world, call)}: it would hang on a real cluster"
                )
            raise S2SimError(
                f"rank {rank.rank}'s program ends without waiting for {world.collectives[call].heading.label!r}: its "
                "buffers would still be in use"
            )
    if len({rank.awaits for rank in ranks}) > 1:
        raise S2SimError("only some ranks await the gradient: the others would start before it is there")
    for group in world.groups.values():
        members = [ranks[rank].members.get(group) for rank in group.ranks]
        if len({member.shared if member else 0 for member in members}) > 1:
            raise S2SimError("the ranks share different numbers of replicated computations: all must share the same")
