"""A reducer around another one: it is described by what it wraps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from s2sim.reducers.rank import Reducer

if TYPE_CHECKING:
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.error_bound import ErrorBound


@dataclass(slots=True)
class Wrapper(Reducer):
    """A reducer that changes how another one runs, not what it is.

    Attributes
    ----------
    inner : Reducer
        What is wrapped; every instance has its own.
    """

    inner: Reducer

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

    # Class attributes everywhere else; here they are those of the instance that is wrapped, hence the exemptions.
    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the inner reducer."""
        return self.inner.name

    @property
    def summary(self) -> str:  # type: ignore[override]
        """Summary of the inner reducer."""
        return self.inner.summary

    @property
    def source(self) -> str:  # type: ignore[override]
        """Source of the inner reducer."""
        return self.inner.source

    @property
    def lossless(self) -> bool:  # type: ignore[override]
        """Whether the inner reducer is."""
        return self.inner.lossless

    @property
    def rounds_only(self) -> bool:  # type: ignore[override]
        """Whether the inner reducer loses rounding alone."""
        return self.inner.rounds_only

    @property
    def granularity(self) -> str:  # type: ignore[override]
        """What the inner reducer sends row-sparse layers by."""
        return self.inner.granularity
