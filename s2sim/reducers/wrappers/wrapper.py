"""A reducer around another one: it is described by what it wraps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from s2sim.gradients.gradient import Gradient
from s2sim.options import check_intervals, value_text
from s2sim.reducers.rank import GradientDtype, Reducer


def _inner(name: str) -> Any:
    """Return a property that is the inner reducer's: a value, or a method that is bound to it."""
    return property(lambda self: getattr(self.inner, name))


@dataclass(slots=True)
class Wrapper(Reducer):
    """A reducer that changes how another one runs, not what it is.

    A dataclass: one of its fields is named like the option that asks for it, and its other fields are options that go
    with this one. Every instance has an inner reducer of its own.
    """

    key: ClassVar[str]  # The option that asks for it, see `takes`
    inner: Reducer  # What is wrapped

    def __post_init__(self) -> None:
        check_intervals(self, self.inner.traits.name, self.intervals)
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

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        return self.around(self.inner.fitted(gradients, seed))

    def with_dtype(self, dtype: GradientDtype) -> Self:
        return self.variant(inner=self.inner.with_dtype(dtype), held=dtype)

    def placed(self, nodes: Sequence[int]) -> Self:
        return self.around(self.inner.placed(nodes))

    def around(self, inner: Reducer) -> Self:
        """Return the same around another reducer, without state."""
        return self.variant(inner=inner)

    def state(self) -> dict[str, Any]:
        """Return what it carries, and what the inner reducer does as ``inner``."""
        return Reducer.state(self) | {"inner": self.inner.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        Reducer.restore(self, {name: value for name, value in state.items() if name != "inner"})
        self.inner.restore(state.get("inner", {}))

    size_only = _inner("size_only")
    runs_by = _inner("runs_by")
    momentum_within = _inner("momentum_within")
    period = _inner("period")
    warmup_steps = _inner("warmup_steps")
    least_side = _inner("least_side")
    traits = _inner("traits")
    held_back = _inner("held_back")
    compresses = _inner("compresses")
    alignment = _inner("alignment")
    layer_classes = _inner("layer_classes")
    notes = _inner("notes")
    later_options = _inner("later_options")
    error_bound = _inner("error_bound")
    reduce = _inner("reduce")
    take_norms = _inner("take_norms")
    learn = _inner("learn")

    def sized(self, elements: Mapping[str, int]) -> Self:
        return self.around(self.inner.sized(elements))

    def options(self) -> dict[str, Any]:
        return self.inner.options() | {name: getattr(self, name) for name in self.option_names()}


def unwrap_all(reducer: Reducer) -> Iterator[Reducer]:
    """Yield a reducer, what it wraps, what that wraps, and so on."""
    yield reducer
    while isinstance(reducer, Wrapper):
        reducer = reducer.inner
        yield reducer
