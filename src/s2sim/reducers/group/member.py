"""One rank's handles on its groups."""

# ruff: noqa: D102  (Member implements the protocol `s2sim.reducers.rank.Rank`, whose methods have the docstrings)

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, TypeVar, Unpack

from s2sim.errors import S2SimError
from s2sim.reducers.group.checks import check_member, check_one_each, check_operation
from s2sim.reducers.group.collective import Collective, Heading, begin
from s2sim.reducers.scripts.script import AwaitGradient, Call, HostSync, Post, Step, Wait, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from s2sim.reducers.rank import Contribution

T = TypeVar("T")


class How(TypedDict):
    """What `Rank` lets a program say of what it posts."""

    label: str
    size_from_data: NotRequired[bool]
    wraps: NotRequired[bool]
    unequal: NotRequired[bool]


class Group:
    """Some ranks, in their order: their collectives, and what is computed once for all of them."""

    def __init__(self, world: World, ranks: tuple[int, ...]) -> None:
        self.world = world
        self.ranks = ranks
        self.calls: list[int] = []
        """Numbers of its collectives among those of all groups, in the order in which members post them."""
        self.shared: list[Any] = []

    def post(self, member: int, place: int, heading: Heading, payloads: Mapping[int, Contribution]) -> int:
        """Take what a member hands in to the group's collective number ``place``; return its number among all."""
        if place == len(self.calls):
            self.calls.append(len(self.world.collectives))
            self.world.collectives.append(begin(heading, self.ranks))
        self.world.collectives[self.calls[place]].add(member, heading, payloads)
        return self.calls[place]


class World:
    """All ranks, their groups, and the collectives of all of these in the order in which they were first posted."""

    def __init__(self, size: int) -> None:
        self.collectives: list[Collective] = []
        self.all = Group(self, tuple(range(size)))
        self.groups = {self.all.ranks: self.all}

    def group(self, ranks: tuple[int, ...]) -> Group:
        """Return the group of these ranks; the same for the same ones."""
        return self.groups.setdefault(ranks, Group(self, ranks))

    def record(self) -> tuple[Call, ...]:
        """Return what the scripts keep of all collectives."""
        everybody = self.all.ranks
        return tuple(
            replace(each.record(), ranks=() if each.ranks == everybody else each.ranks) for each in self.collectives
        )


@dataclass(slots=True)
class Progress:
    """How far one rank's program has come.

    Attributes
    ----------
    script : list of Step
        What it has done.
    posted, waited : set of int
        Collectives that it has posted and waited for.
    waits_for : tuple of int
        Those that it waits for now.
    awaits : bool
        Whether it has awaited the gradient.
    members : dict of Group to Member
        Its handles.
    """

    rank: int
    script: list[Step] = field(default_factory=list)
    posted: set[int] = field(default_factory=set)
    waited: set[int] = field(default_factory=set)
    waits_for: tuple[int, ...] = ()
    awaits: bool = False
    members: dict[Group, Member] = field(default_factory=dict)

    def wait(self, handle: object) -> None:
        """Begin to wait for what the program has yielded."""
        if not isinstance(handle, Handle):
            raise S2SimError(
                f"rank {self.rank} yields a {type(handle).__name__}: a program yields the collectives it waits for"
            )
        self.waits_for = tuple(call for _, call in handle.parts)
        self.script.append(Wait(self.waits_for))
        self.waited.update(self.waits_for)

    def member(self, group: Group, step: int, seed: int) -> Member:
        """Return this rank's handle on a group."""
        if group not in self.members:
            self.members[group] = Member(group, self, group.ranks.index(self.rank), len(group.ranks), step, seed)
        return self.members[group]


class Handle:
    """What a program holds of collectives in flight."""

    def __init__(self, parts: tuple[tuple[Member, int], ...]) -> None:
        self.parts = parts

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

    group: Group
    progress: Progress
    index: int
    size: int
    step: int
    seed: int
    posted: int = 0
    shared: int = 0

    def all_reduce(self, payload: Contribution, op: str = "sum", **how: Unpack[How]) -> Handle:
        check_operation(op, how["label"])
        return self._post(Heading("all_reduce", op, **how), {0: payload})

    def reduce(self, payload: Contribution, op: str = "sum", *, root: int, **how: Unpack[How]) -> Handle:
        check_member(self, root, f"the root of {how['label']!r}")
        check_operation(op, how["label"])
        return self._post(Heading("reduce", op, root=root, **how), {0: payload})

    def reduce_scatter(self, payloads: Sequence[Contribution], op: str = "sum", **how: Unpack[How]) -> Handle:
        check_one_each(self, payloads, how["label"])
        check_operation(op, how["label"])
        return self._post(Heading("reduce_scatter", op, **how), dict(enumerate(payloads)))

    def broadcast(self, payload: Contribution | None, *, root: int, **how: Unpack[How]) -> Handle:
        check_member(self, root, f"the root of {how['label']!r}")
        own: dict[int, Contribution] = {}
        if self.index == root:
            if payload is None:
                raise S2SimError(f"rank {self.progress.rank} is the root of {how['label']!r} and broadcasts nothing")
            own[0] = payload
        return self._post(Heading("broadcast", "copy", root=root, **how), own)

    def all_gather(self, payload: Contribution, **how: Unpack[How]) -> Handle:
        return self._post(Heading("all_gather", "gather", **how), {0: payload})

    def all_to_all(self, payloads: Sequence[Contribution], **how: Unpack[How]) -> Handle:
        check_one_each(self, payloads, how["label"])
        return self._post(Heading("all_to_all", "exchange", **how), dict(enumerate(payloads)))

    def exchange(self, payloads: Mapping[int, Contribution], **how: Unpack[How]) -> Handle:
        for peer in payloads:
            check_member(self, peer, f"a peer in {how['label']!r}")
        if self.index in payloads:
            raise S2SimError(f"rank {self.progress.rank} sends to itself in {how['label']!r}: leave that out")
        return self._post(Heading("all_to_all", "peers", **how), payloads)

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

    def _post(self, heading: Heading, payloads: Mapping[int, Contribution]) -> Handle:
        call = self.group.post(self.index, self.posted, heading, payloads)
        self.posted += 1
        self.progress.posted.add(call)
        self.progress.script.append(Post(call))
        return Handle(((self, call),))
