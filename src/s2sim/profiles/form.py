"""What stands in a file with a compute profile; pydantic checks files against it, and an unknown key is an error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from s2sim.profiles.profile import Kind  # noqa: TC001  (pydantic reads it when it checks a file)
from s2sim.units import parse_time_ps

Rule: TypeAlias = Literal["sgd-momentum", "adam"]
Precision: TypeAlias = Literal["fp32", "tf32", "fp16", "bf16"]

_STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Stated:
    """A number with what it rests on."""

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    value: int | float
    kind: Kind
    source: str

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"{self.value} is not a finite number")
        if not self.source.strip():
            raise ValueError("source is empty: say what the number rests on")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One parameter of a measured profile; its shape is that of the layer table where none is given.

    ``backward`` is from when the gradient before it was ready, or backward began, until its own is. ``kind`` and
    ``source`` are those of the file unless given.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    name: str
    backward: str
    forward: str | None = None
    shape: tuple[int, ...] | None = None
    sparse: bool | None = None
    kind: Kind | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        for time in (self.backward, self.forward):
            if time is not None:
                parse_time_ps(time)
        if self.shape is not None and (not self.shape or min(self.shape) < 1):
            raise ValueError(f"tensor {self.name!r} needs a shape of numbers from 1")


@dataclass(frozen=True, slots=True)
class Optimizer:
    """What the optimizer takes: a ``time``, or the ``rule`` by which it moves parameters, gradients and its state."""

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    kind: Kind
    source: str
    time: str | None = None
    rule: Rule | None = None

    def __post_init__(self) -> None:
        if (self.time is None) == (self.rule is None):
            raise ValueError("give either a time, such as '1.2ms', or a rule: sgd-momentum or adam")
        if self.time is not None:
            parse_time_ps(self.time)


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """One profile as its file has it: with ``tensors`` it was measured, with an ``efficiency`` it is computed.

    Attributes
    ----------
    model : str
        Name of a layer table, or the path of one; any other text where all tensors have shapes.
    kind, source : str
        How sure its times are and what they rest on; they hold for every number that has none of its own.
    batch : Stated
        Samples of one GPU's mini-batch.
    sample : str or None
        What one of them is; as the layer table says unless given.
    optimizer : Optimizer
        What it takes once gradients are reduced.
    memory_bound : Stated or None
        Share of compute time in which the memory is busy; a computed profile counts it itself.
    forward : Stated or None
        Forward as a share of backward, where nobody measured it.
    efficiency : Stated or None
        Share of the GPU's peak that matrix products reach, counted as the layer table counts them.
    precision : str
        Of matrix products and of what passes through memory.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    description: str
    model: str
    gpu: str
    batch: Stated
    kind: Kind
    source: str
    optimizer: Optimizer
    sample: str | None = None
    memory_bound: Stated | None = None
    forward: Stated | None = None
    efficiency: Stated | None = None
    precision: Precision = "fp32"
    tensors: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.tensors) == (self.efficiency is not None):
            raise ValueError("give either tensors with measured times or an efficiency, by which times are computed")
        if not self.source.strip():
            raise ValueError("source is empty: say what the times rest on")
        if not isinstance(self.batch.value, int) or self.batch.value < 1:
            raise ValueError(f"batch is {self.batch.value}: write a whole number from 1")
        self._check_tensors() if self.tensors else self._check_computed()

    def _check_tensors(self) -> None:
        if self.memory_bound is None:
            raise ValueError("memory_bound is missing: state a share from 0 to 1 with its kind and source")
        if not 0 <= self.memory_bound.value <= 1:
            raise ValueError(f"memory_bound is {self.memory_bound.value}: it is a share from 0 to 1")
        without = [tensor.name for tensor in self.tensors if tensor.forward is None]
        if without and self.forward is None:
            raise ValueError(
                f"tensor {without[0]!r} has no forward: give it one, or all a share of backward with [forward]"
            )
        if self.forward is not None and self.forward.value < 0:
            raise ValueError(f"forward is {self.forward.value}: it is a share of backward, from 0")
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"tensor {twice!r} is there twice")

    def _check_computed(self) -> None:
        if self.efficiency is not None and not self.efficiency.value > 0:
            raise ValueError(f"efficiency is {self.efficiency.value}: it is a share of the peak, above 0")
        if self.memory_bound is not None or self.forward is not None:
            raise ValueError("memory_bound and forward change nothing: a computed profile counts them itself")
