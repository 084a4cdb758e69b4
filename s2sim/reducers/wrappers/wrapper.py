"""A reducer around another one: it is described by what it wraps."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from s2sim.gradients.gradient import Gradient
from s2sim.options import value_text
from s2sim.reducers.error_bound import ErrorBound
from s2sim.reducers.rank import GradientDtype, Pending, Rank, Reducer, Traits


@dataclass(slots=True)
class Wrapper(Reducer):
    """A reducer that changes how another one runs, not what it is.

    A dataclass: one of its fields is named like the option that asks for it, and its other fields are options that go
    with this one. Every instance has an inner reducer of its own.

    Attributes
    ----------
    key : str
        The option that asks for it, see `takes`.
    inner : Reducer
        What is wrapped.
    """

    key: ClassVar[str]
    inner: Reducer

    def __post_init__(self) -> None:
        self.check()
        self.inner = self.inner.fresh()

    def check(self) -> None:
        """Refuse, with a reason, options that are wrong and reducers that this does not fit around."""

    @classmethod
    def values(cls) -> tuple[str, ...]:
        """Return which texts of the option ``key`` ask for it; one in capitals stands for a number."""
        annotation = get_type_hints(cls)[cls.key]
        if get_origin(annotation) is Literal:
            return get_args(annotation)
        return ("true",) if annotation is bool else (cls.key.upper(),)

    @classmethod
    def takes(cls, text: str) -> bool:
        """Return whether this text of the option ``key`` asks for it."""
        values = cls.values()
        return values == (cls.key.upper(),) or text in values

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """Return the options that it has: its key, and those that go with it."""
        return tuple(item.name for item in fields(cls) if item.init and item.name != "inner")

    @property
    def option_text(self) -> str:
        """How people ask for it, without what goes with it: ``key=value``."""
        return f"{self.key}={value_text(getattr(self, self.key))}"

    def own_options(self) -> dict[str, Any]:
        """Return its own options, those of the inner reducer left out."""
        return {name: getattr(self, name) for name in self.option_names()}

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        """Return the same around what the inner reducer becomes."""
        return self.around(self.inner.fitted(gradients, seed))

    def held_in(self, dtype: GradientDtype) -> Self:
        """Return a fresh instance whose inner reducer is for gradients of this type."""
        again = self.around(self.inner.held_in(dtype))
        again.held = dtype
        return again

    def placed(self, nodes: Sequence[int]) -> Self:
        """Return the same around an inner reducer that knows which ranks share a node."""
        return self.around(self.inner.placed(nodes))

    def around(self, inner: Reducer) -> Self:
        """Return the same around another reducer, without state."""
        again = replace(self, inner=inner)
        again.held = self.held
        return again

    def learn(self, rank: Rank, gradient: Gradient) -> Generator[Pending, None, None]:
        """Learn what the inner reducer does."""
        yield from self.inner.learn(rank, gradient)

    def state(self) -> dict[str, Any]:
        """Return what it carries, and what the inner reducer does as ``inner``."""
        return Reducer.state(self) | {"inner": self.inner.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of both."""
        Reducer.restore(self, {name: value for name, value in state.items() if name != "inner"})
        self.inner.restore(state.get("inner", {}))

    @property
    def size_only(self) -> bool:
        """Whether it is so of the inner reducer."""
        return self.inner.size_only

    @property
    def runs_by(self) -> str | None:
        """The inner reducer's."""
        return self.inner.runs_by

    @property
    def momentum_within(self) -> float:
        """The inner reducer's."""
        return self.inner.momentum_within

    @property
    def period(self) -> int:
        """The inner reducer's."""
        return self.inner.period

    @property
    def settles_after(self) -> int:
        """The inner reducer's."""
        return self.inner.settles_after

    def held_back(self) -> Gradient | None:
        """Return what the inner reducer does."""
        return self.inner.held_back()

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return what the inner reducer compresses."""
        return self.inner.compresses(gradient)

    @property
    def least_side(self) -> int:
        """The inner reducer's."""
        return self.inner.least_side

    def unit(self, ranks: int) -> int:
        """Return the inner reducer's."""
        return self.inner.unit(ranks)

    def sized(self, elements: Mapping[str, int]) -> Self:
        """Return the same around what the inner reducer becomes."""
        return self.around(self.inner.sized(elements))

    def sorts(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return what the inner reducer does."""
        return self.inner.sorts(names)

    def notes(self) -> tuple[str, ...]:
        """Return the inner reducer's."""
        return self.inner.notes()

    def later_options(self) -> tuple[str, ...]:
        """Return the inner reducer's."""
        return self.inner.later_options()

    def error_bound(self) -> ErrorBound | None:
        """Return the inner reducer's."""
        return self.inner.error_bound()

    def options(self) -> dict[str, Any]:
        """Return the inner reducer's, and its own."""
        return self.inner.options() | self.own_options()

    @property
    def traits(self) -> Traits:
        """The inner reducer's."""
        return self.inner.traits


def unwrap_all(reducer: Reducer) -> Iterator[Reducer]:
    """Yield a reducer, what it wraps, what that wraps, and so on."""
    yield reducer
    while isinstance(reducer, Wrapper):
        reducer = reducer.inner
        yield reducer
