"""A reducer around another one: it is described by what it wraps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from s2sim.reducers.rank import Reducer

if TYPE_CHECKING:
    from collections.abc import Generator

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.error_bound import ErrorBound
    from s2sim.reducers.rank import Held, Pending, Rank, Traits


@dataclass(slots=True)
class Wrapper(Reducer):
    """A reducer that changes how another one runs, not what it is.

    Attributes
    ----------
    inner : Reducer
        What is wrapped; every instance has its own.
    """

    inner: Reducer

    def held_in(self, dtype: Held) -> Self:
        """Return a fresh instance whose inner reducer is for gradients of this type."""
        again = self.fresh()
        again.inner = self.inner.held_in(dtype)
        again.held = dtype
        return again

    def learn(self, rank: Rank, gradient: Gradient) -> Generator[Pending, None, None]:
        """Learn what the inner reducer does."""
        yield from self.inner.learn(rank, gradient)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return what the inner reducer compresses."""
        return self.inner.compresses(gradient)

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
        """Return the inner reducer's."""
        return self.inner.options()

    @property
    def traits(self) -> Traits:
        """The inner reducer's."""
        return self.inner.traits
