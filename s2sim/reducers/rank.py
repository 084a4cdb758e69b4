"""The world as a reducer's program sees it: its rank, and the collectives it can post."""

from __future__ import annotations

import typing
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import reduce
from math import ceil
from operator import and_
from types import FunctionType
from typing import Any, ClassVar, Literal, NotRequired, Protocol, Self, TypeAlias, TypedDict, TypeVar, Unpack

from s2sim.arrays import Array, Floats32
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse, from_plain, to_plain
from s2sim.options import CheckedOptions, non_default
from s2sim.reducers import catalogue, script

T = TypeVar("T")

GradientDtype: TypeAlias = Literal["fp32", "bf16"]
Conserves: TypeAlias = Literal["sum", "gradient", "nothing"]
Scope: TypeAlias = Literal["bucket", "gradient"]
Certainty: TypeAlias = Literal["code read", "paper read", "summary read", "recalled", "title read", "ours"]
"""How a system is known, by the least certain thing that its bytes or values rest on; ours is published nowhere."""

Contribution: TypeAlias = "Array | RowSparse | Gradient | tuple[Contribution, ...]"
"""The payload of a collective: an array, a row-sparse array (sent in its dense form), or several in one buffer."""


class Pending(Protocol):
    """One or more collectives in flight; a program yields it to wait, or gets its value by ``yield from``."""

    def __iter__(self) -> Waits[Any]:
        """Wait for it and return its value."""

    def __and__(self, other: Pending) -> Pending:
        """Return what waits for both."""

    @property
    def value(self) -> Any:
        """The result, read-only, one object for all ranks with the same result; an error before the wait for it."""


Waits: TypeAlias = Generator[Pending, None, T]
"""Part of a program: a generator that yields what it waits for."""


def wait_all(*pending: Pending | None) -> Waits[None]:
    """Wait for all that is in flight, if anything is; None stands for nothing."""
    if waits := [posted for posted in pending if posted is not None]:
        yield reduce(and_, waits)


class PostOptions(TypedDict):
    """Options of the methods of `Rank` that post a collective; all but the label are false unless given."""

    label: str
    size_from_data: NotRequired[bool]
    wraps: NotRequired[bool]
    unequal: NotRequired[bool]
    spreads: NotRequired[bool]


class Rank(Protocol):
    """One rank's handle on a group of ranks, on which all members post the same collectives in the same order.

    A program is given the group of all; `subgroup` makes others, of the same members the same one, with places in rank
    order, on which members post by themselves. Sums are in rank order. Integers that overflow in one are an error,
    unless ``wraps`` says that they are meant modulo 2^bits. The last collectives may only spread the mean, element by
    element (``spreads``): where ranks keep shards of it, an all-reduce is a reduce-scatter, and an all-gather of each
    rank's part is not sent.
    """

    index: int  # This rank's place in the group
    size: int  # Number of members
    step: int  # Which training step this is, from 0
    seed: int  # Root seed, the same on all ranks

    def all_reduce(self, payload: Contribution, op: str = "sum", **how: Unpack[PostOptions]) -> Pending:
        """Post an all-reduce ("sum", "max" or "or"); its value has the payload's structure, all arrays dense."""

    def reduce(self, payload: Contribution, op: str = "sum", *, root: int, **how: Unpack[PostOptions]) -> Pending:
        """Post a reduce: an all-reduce of which only ``root`` gets the result; the value of all others is None."""

    def reduce_scatter(self, payloads: Sequence[Contribution], op: str = "sum", **how: Unpack[PostOptions]) -> Pending:
        """Post a reduce-scatter of one payload for each rank; its value is all ranks' payloads for this one, combined.

        Sizes may differ from payload to payload, not from rank to rank; types may not differ.
        """

    def broadcast(self, payload: Contribution | None, *, root: int, **how: Unpack[PostOptions]) -> Pending:
        """Post a broadcast; its value is the payload of ``root``, and those of all others are not looked at."""

    def all_gather(self, payload: Contribution, **how: Unpack[PostOptions]) -> Pending:
        """Post an all-gather; its value is the tuple of all ranks' payloads, in rank order.

        Shapes are equal unless sizes depend on data, or differ as all ranks know (``unequal``).
        """

    def all_to_all(self, payloads: Sequence[Contribution], **how: Unpack[PostOptions]) -> Pending:
        """Post an all-to-all of one payload for each rank; its value is the tuple of what all ranks have for this one.

        Shapes are alike as in `all_gather`; types and structure always are.
        """

    def exchange(self, payloads: Mapping[int, Contribution], **how: Unpack[PostOptions]) -> Pending:
        """Post sends to some members and receives from all that send to this one; the value is by sender in rank order.

        Every member of the group posts, if only an empty mapping. Types and structure may not differ.
        """

    def subgroup(self, ranks: Iterable[int]) -> Rank:
        """Return this rank's handle on the group of some members, itself included, by their places in this group."""

    def await_gradient(self) -> None:
        """Mark, once and before any value is used, that all that follows needs the gradient's values.

        Anything before needs the batch alone and runs concurrently with forward and backward.
        """

    def work(self, work: script.Work) -> None:
        """Charge GPU time."""

    def synchronise(self) -> None:
        """Let the host wait for the GPU, to decide by the data what comes next."""

    def replicated(self, compute: Callable[[], T]) -> T:
        """Return ``compute()``, which gives the same on every member and is therefore run once for all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """What a reduction leaves on one rank."""

    mean: Gradient  # The average over ranks as this rank ends with it
    # Returns this rank's part of the mean times the ranks, which costs time: error feedback keeps ``input - sent()``
    sent: Callable[[], Gradient]
    # Returns what its message alone decodes to, where `sent` counts a second residual too, see `with_server_error`
    decoded: Callable[[], Gradient] | None = None

    @classmethod
    def of_step(cls, step: Gradient) -> Reduced:
        """Return a step that ranks end with and count as sent as it is: nobody would make up for the rest of it."""
        return cls(step, sent=lambda: step)


Program: TypeAlias = Waits[Reduced]


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """A bound on how far an element of the aggregate is from the exact mean."""

    element: tuple[float, ...]  # Of each compressed layer that has elements, float32's rounding of the largest aside
    relative: bool  # Whether ``element`` is a share of the L2 norm of the layer's exact mean, or in the gradients' unit
    share: float  # Share of the elements, in expectation, that the bound holds for at least; 1 if it is certain
    relative_l2: tuple[float, ...] | None  # Of each layer by a law, as RMS over hash seeds, where one is known
    source: str  # Whose theorem it is


@dataclass(frozen=True, slots=True)
class Traits:
    """Name, source and promises of a reducer."""

    name: str
    summary: str
    source: str
    baseline: bool = False  # Whether it is what training does without a compressor, with which others are compared
    lossless: bool = False  # Whether the aggregate is exact but for the rounding of float32 sums
    rounds_only: bool = False  # Whether a lossy one loses rounding alone, so that nobody would keep a residual of it
    agrees: bool = True  # Whether all ranks end with the same; where they do not, errors are those of the worst
    granularity: str = ""  # By what a row-sparse layer is sent, for people; empty where it is not compressed as one
    # carries, warm: whether a later step differs as sizes or matrices are carried over, and whether this is one
    carries: bool = False
    warm: bool = False
    before_gradient: bool = False  # Whether it begins with what the batch alone tells, before there is a gradient
    # What a rank ends with: the mean gradient, its sign, the mean of models that have drifted apart, its own part of
    # the mean and zeros elsewhere, or the step of an optimizer within it, to be taken times the learning rate
    estimates: Literal["mean", "sign", "weights", "shards", "update"] = "mean"
    # Whether training needs error feedback around it: not where it is exact or unbiased, nor where it has its own
    feedback: Literal["no", "needed", "own"] = "no"
    formula: str = ""  # Bytes that a rank sends, for people: n elements, k kept, P ranks, L layers
    certainty: Certainty = "recalled"
    # Whether ranks' contributions add up to P means; if not (medians), feedback keeps what a rank alone has lost
    adds_up: bool = True
    # Whether all ranks do the same, and what they send of dense layers follows from shapes, whatever the values
    size_only: bool = False
    # What sent and held back add up to: the gradient and what was held back before; the gradient alone, if all that was
    # ever sent counts; or neither, if some is forgotten or gathers momentum
    conserves: Conserves = "sum"
    amplifies: bool = False  # Whether sums are divided by lengths of their own, of which small ones are rounding
    assumes: str = ""  # What has to be so in training for its results to be of use, to be read after "if"
    scope: Scope = "bucket"  # Whether it runs on each bucket, with a state each, or on all layers once all are there
    # Bytes a parameter that each rank keeps from step to step: of an optimizer within too, not of feedback around it
    state_bytes: int = 0


# Methods that plug-ins override, by their names in version 0.1.0.
_RENAMED = {
    "held_in": "with_dtype",
    "leaves_to": "fallback_for",
    "settles_after": "warmup_steps",
    "sorts": "layer_classes",
    "unit": "alignment",
}


@dataclass(slots=True)
class Reducer(CheckedOptions, ABC):
    """A gradient reducer: a dataclass of options with the program that every rank runs.

    Every rank has its own instance, which may keep state between steps. ``about`` is the same for all options; that of
    own ones stands in ``systems.toml``.
    """

    about: ClassVar[Traits]
    takes_reducers: ClassVar[bool] = False  # Whether options are patterns of layer names with option strings of others
    needs_parts: ClassVar[str] = ""  # What has to be named with it, so that it says anything; empty for nothing
    compresses_all: ClassVar[bool] = False  # Whether no layer travels as plain float32
    held: GradientDtype = field(
        init=False, repr=False, compare=False, default_factory=lambda: "fp32", metadata={"fitted": True}
    )
    """Type that training holds gradients in, and in which their values travel where they are not compressed."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take what plug-ins override by its name in version 0.1.0, and answer to that name too."""
        super(Reducer, cls).__init_subclass__(**kwargs)
        if (about := catalogue.own_traits(cls)) is not None:
            cls.about = Traits(**about)
        own = vars(cls)
        for old, new in _RENAMED.items():
            if isinstance(own.get(old), (FunctionType, property)) and own[old] is not own.get(new):
                warnings.warn(f"{cls.__name__}.{old} is {new} now", DeprecationWarning, stacklevel=2)
                setattr(cls, new, own[old])
            elif new in own:
                setattr(cls, old, own[new])

    def __post_init__(self) -> None:
        """Refuse options that are no choice of their type, or out of range."""
        if hasattr(self, "about"):  # What wraps another may have its traits alone.
            self.check_limits(self.about.name)

    @property
    def traits(self) -> Traits:
        """``about``, but for what depends on the options."""
        return self.about

    @abstractmethod
    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Return the program: a generator that yields what it waits for and returns a `Reduced`."""

    def learn(self, rank: Rank, gradient: Gradient) -> Waits[None]:
        """Do as much of `reduce` as leaves what a later step starts from: all of it unless a reducer needs less."""
        yield from self.reduce(rank, gradient)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return the indices of the layers that do not travel as plain float32: none, or all by `compresses_all`."""
        return tuple(range(len(gradient.layers))) if self.compresses_all else ()

    def layer_classes(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return a class number for each layer by its name; layers of a class are treated equally."""
        return (0,) * len(names)

    @property
    def least_side(self) -> int:
        """Shortest side of a matrix from which on sizes follow from its sides; 0 if only the element count matters.

        1 if a side is cut into chunks of its largest divisor up to `alignment`.
        """
        return 0

    def alignment(self, ranks: int) -> int:
        """Return the number of elements of a dense layer of which a density keeps one; 1 without a density."""
        density = self.options().get("density")
        return 1 if density is None else ceil(1 / density)

    def sized(self, elements: Mapping[str, int]) -> Self:
        """Return one for small copies of layers of so many elements; most need not know, and grow with the layers."""
        return self

    def fallback_for(self, gradient: Gradient) -> Reducer | None:
        """Return the reducer to which it leaves all of a gradient with such layers; None where it does something."""
        return None

    def fresh(self) -> Self:
        """Return an instance with the same options and fitted fields, and without state."""
        return self.variant()

    def variant(self, **changes: Any) -> Self:
        """Return an instance without state that differs in some options or fitted fields.

        Fitted fields are no options and have ``fitted`` in their metadata.
        """
        kept = {item.name: getattr(self, item.name) for item in fields(self) if "fitted" in item.metadata}
        again = replace(self, **{name: value for name, value in changes.items() if name not in kept})
        for name, value in kept.items():
            setattr(again, name, changes.get(name, value))
        return again

    def with_dtype(self, dtype: GradientDtype) -> Self:
        """Return a fresh instance for gradients of this type."""
        return self.variant(held=dtype)

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        """Return a reducer whose sizes follow from the statistics of these gradients, one a rank."""
        return self

    def with_server_error(self) -> Self:
        """Return one that keeps what a sum loses when its owner encodes it, for the next sum; most encode no sums."""
        return self

    def take_norms(self, norms: Callable[[], Floats32]) -> None:
        """Take the L2 norm of the weights of each layer before a step of training; most need none and do not ask."""

    def placed(self, nodes: Sequence[int]) -> Self:
        """Return a reducer for ranks of which rank r runs on the node number ``nodes[r]``; most do not care."""
        return self

    def state(self) -> dict[str, Any]:
        """Return by field what the next step starts from, options and ``fitted`` ones aside, in dicts and lists."""
        return {name: to_plain(getattr(self, name)) for name in self._carried()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` of an instance with the same options, bit for bit; `S2SimError` for any other."""
        if set(state) != set(names := self._carried()):
            raise S2SimError(
                f"{self.traits.name} carries {', '.join(names) or 'nothing'} from step to step, and the state has "
                f"{', '.join(state) or 'nothing'}: give that of a reducer with the same options"
            )
        hints = typing.get_type_hints(type(self)) if names else {}
        for name in names:
            setattr(self, name, from_plain(state[name], hints[name]))

    def _carried(self) -> list[str]:
        return [
            item.name
            for item in fields(self)
            if not (item.init or "fitted" in item.metadata or item.default is item.default_factory is MISSING)
        ]

    def held_back(self) -> Gradient | None:
        """Return what was not sent and will be in later steps; None where nothing is kept."""
        return None

    @property
    def runs_by(self) -> str | None:
        """Name of the algorithm by which its collectives have to run; None for any."""
        return None

    @property
    def size_only(self) -> bool:
        """See `Traits`."""
        return self.traits.size_only

    @property
    def momentum_within(self) -> float:
        """The momentum that is in what ranks end with, which the optimizer then has not to add; 0 for none."""
        return 0.0

    @property
    def period(self) -> int:
        """Steps after which it does the same again; 1 unless it skips some."""
        return 1

    @property
    def warmup_steps(self) -> int:
        """Steps at the beginning that go otherwise than all later ones, sizes that are carried over aside."""
        return 0

    def notes(self) -> tuple[str, ...]:
        """Return what a reader should know of choices that were made for these options."""
        return ()

    def contraction(self, gradient: Gradient) -> float | None:
        """Return the largest delta with E ||x - sent||² <= (1 - delta) ||x||² for any x of these shapes, or None."""
        return None

    def error_bound(self) -> ErrorBound | None:
        """Return what theory says of the elements of the last step's aggregate; None where nothing is known."""
        return None

    def later_options(self) -> tuple[str, ...]:
        """Return the given options that act only from the second step on."""
        return ()

    def written(self) -> dict[str, str]:
        """Return the options as people write them, defaults left out."""
        return non_default(self)

    def options(self) -> dict[str, Any]:
        """Return every option with the value it has in effect."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init}


for _old, _new in _RENAMED.items():
    setattr(Reducer, _old, vars(Reducer)[_new])
