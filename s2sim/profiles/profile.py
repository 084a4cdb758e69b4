"""A compute profile: when each gradient of a model is ready in backward, on one GPU and for one mini-batch."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from s2sim.files import StrictFields
from s2sim.gradients.gradient import Shaped
from s2sim.gradients.models import MOST_ELEMENTS, ModelLayer
from s2sim.tables import group_by
from s2sim.topology.hardware import Gpu
from s2sim.units import PS_PER_S, parse_time_ps

Kind: TypeAlias = Literal["measured", "computed", "estimated", "user"]
Precision: TypeAlias = Literal["fp32", "tf32", "fp16", "bf16"]


@dataclass(frozen=True, slots=True)
class TensorTiming(Shaped):
    """One parameter, in the order in which gradients become ready."""

    name: str  # Of the parameter, as the model has it
    shape: tuple[int, ...]  # Rows first
    sparse: bool  # Whether a mini-batch touches only some rows of it
    forward_ps: int  # What its layer's forward pass takes, 0 where another parameter of the layer has it
    backward_ps: int  # From when the gradient before it was ready, or backward began, until its own is
    rows: int = 0  # Rows that one sample looks up, of a table; 0 where that is not known


@dataclass(frozen=True, slots=True)
class ComputeProfile:
    """What one GPU computes in an iteration of one model.

    Forward visits parameters in the reverse order of readiness: what is used last gets its gradient first.
    """

    # name, model: of the profile, and of the model
    name: str
    model: str
    gpu: str  # Name in the hardware catalogue, or as its source calls it
    batch: int  # Samples in one GPU's mini-batch
    sample: str  # What one of them is: image, sentence, sequence of 1,024 tokens
    tensors: tuple[TensorTiming, ...]  # Every parameter, in the order of readiness
    optimizer_ps: int  # What the optimizer takes once all gradients are reduced
    memory_bound: float  # Share of compute time, from 0 to 1, in which the memory and not the arithmetic is busy
    kind: Kind  # How sure its times are; computed ones are operations over a share of the GPU's peak
    source: str  # What they rest on
    precision: Precision = "fp32"  # Of matrix products and of what passes through memory

    @property
    def setting(self) -> str:
        """GPU, precision and mini-batch, as in ``h100 bf16 batch 32``."""
        return f"{self.gpu} {self.precision} batch {self.batch}"

    @property
    def forward_ps(self) -> int:
        """Of all layers."""
        return sum(tensor.forward_ps for tensor in self.tensors)

    @property
    def backward_ps(self) -> int:
        """Until the last gradient is ready."""
        return sum(tensor.backward_ps for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        """Elements of all parameters."""
        return sum(tensor.size for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class RecordedProfile:
    """A profile from a recording or a trace, and notes for users: what was missing, and what replaces it."""

    profile: ComputeProfile
    notes: tuple[str, ...]


PS_PER_US = 10**6


def tensor_timings(
    names: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    sparse: Sequence[bool],
    forward_us: Sequence[float],
    ready_us: Sequence[float],
) -> tuple[TensorTiming, ...]:
    """Return the timing of each parameter, in the order of readiness.

    Times are in microseconds; ``ready_us`` count from the start of backward.
    """
    forward_ps, ready_ps = ([round(PS_PER_US * each) for each in times_us] for times_us in (forward_us, ready_us))
    between_ps = [ready - before for before, ready in pairwise([0, *ready_ps])]
    return tuple(map(TensorTiming, names, (shape or (1,) for shape in shapes), sparse, forward_ps, between_ps))


Rule: TypeAlias = Literal["sgd-momentum", "adam"]
MOST_EFFICIENCY = 4  # Winograd's algorithm takes a quarter of the products that are counted (arXiv:1509.09308)


@dataclass(frozen=True, slots=True)
class SourcedNumber(StrictFields):
    """A number with what it rests on."""

    value: int | float
    kind: Kind
    source: str

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"{self.value} is not a finite number")
        if not self.source.strip():
            raise ValueError("source is empty: say what the number rests on")


@dataclass(frozen=True, slots=True)
class TensorEntry(StrictFields):
    """One parameter of a measured profile; its shape is that of the layer table where none is given."""

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
        if self.shape is not None and (not self.shape or min(self.shape) < 1 or math.prod(self.shape) > MOST_ELEMENTS):
            raise ValueError(f"tensor {self.name!r} needs a shape of numbers from 1, up to {MOST_ELEMENTS:,} elements")


@dataclass(frozen=True, slots=True)
class OptimizerEntry(StrictFields):
    """What the optimizer takes: a ``time``, or the ``rule`` by which it moves parameters, gradients and its state."""

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
class ProfileFile(StrictFields):
    """One profile as its file has it: with ``tensors`` it was measured, with an ``efficiency`` it is computed."""

    description: str
    model: str  # Name of a layer table, or the path of one; any other text where all tensors have shapes
    gpu: str
    batch: SourcedNumber  # Samples of one GPU's mini-batch
    # kind, source: how sure its times are and what they rest on; they hold for every number that has none of its own
    kind: Kind
    source: str
    optimizer: OptimizerEntry  # What it takes once gradients are reduced
    sample: str | None = None  # What one of them is; as the layer table says unless given
    # Share of compute time in which the memory is busy; a computed profile counts it itself
    memory_bound: SourcedNumber | None = None
    forward: SourcedNumber | None = None  # Forward as a share of backward, where nobody measured it
    # Share of the GPU's peak that matrix products reach, counted as the layer table counts them
    efficiency: SourcedNumber | None = None
    precision: Precision = "fp32"  # Of matrix products and of what passes through memory
    tensors: tuple[TensorEntry, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.tensors) == (self.efficiency is not None):
            raise ValueError("give either tensors with measured times or an efficiency, by which times are computed")
        if not self.source.strip():
            raise ValueError("source is empty: say what the times rest on")
        if not isinstance(self.batch.value, int) or self.batch.value < 1:
            raise ValueError(f"batch is {self.batch.value}: write a whole number from 1")
        if self.tensors:
            self._check_tensors()
        elif self.efficiency is not None and not 0 < self.efficiency.value <= MOST_EFFICIENCY:
            most = f"above 0 and at most {MOST_EFFICIENCY} (40 % is 0.4)"
            raise ValueError(f"efficiency is {self.efficiency.value}: it is a share of the peak, {most}")
        elif self.memory_bound is not None or self.forward is not None:
            raise ValueError("memory_bound and forward change nothing: a computed profile counts them itself")

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
            raise ValueError(f"tensor {next(name for name in names if names.count(name) > 1)!r} is there twice")


MOVED_BYTES: dict[Rule, int] = {"sgd-momentum": 5 * 4, "adam": 7 * 4}
"""Bytes a parameter in float32, each value once, as fused kernels move them.

SGD reads parameter, gradient and momentum and writes parameter and momentum; Adam has two moments.
"""


def optimizer_ps(rule: Rule, layers: Sequence[ModelLayer], batch: int, gpu: Gpu) -> int:
    """Return the picoseconds of one step; of row-sparse tables only the rows of the mini-batch change."""
    elements = sum(min(layer.size, layer.values * batch) if layer.sparse else layer.size for layer in layers)
    return round(elements * MOVED_BYTES[rule] / gpu.stream_Bps * PS_PER_S)


VALUE_BYTES: dict[Precision, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
"""Of an activation or a weight, by the precision of matrix products."""

# By rates of training in github.com/NVIDIA/DeepLearningExamples: 0.8 (ResNet-50 in fp16 on a V100), 0.6 (on an A100),
# 0.3 (in TF32 there), of the share that they reach in fp32 by the same count.
_TENSOR_CORES = 0.5


def relative_efficiency(precision: Precision, measured: Precision) -> float:
    """Return the share of its peak that a precision's products reach, over that of the precision that was measured.

    Tensor cores wait for operands, so that of their peak about half as much is reached: an estimate.

    >>> relative_efficiency("bf16", "fp32"), relative_efficiency("bf16", "fp16")
    (0.5, 1.0)
    """
    reached, before = (1.0 if each == "fp32" else _TENSOR_CORES for each in (precision, measured))
    return reached / before


_GRADIENT_BYTES = VALUE_BYTES["fp32"]


def describe_profile(profile: ComputeProfile) -> dict[str, Any]:
    """Return all that a profile says: times in seconds, sizes as bytes of float32, tensors in order of readiness."""
    compute_ps = profile.forward_ps + profile.backward_ps + profile.optimizer_ps
    tensors: list[dict[str, Any]] = []
    ready_ps = sent = 0
    for tensor in profile.tensors:
        ready_ps += tensor.backward_ps
        sent += _GRADIENT_BYTES * tensor.size
        tensors.append(
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "sparse": tensor.sparse,
                "bytes": _GRADIENT_BYTES * tensor.size,
                "forward_s": tensor.forward_ps / PS_PER_S,
                "backward_s": tensor.backward_ps / PS_PER_S,
                "ready_s": ready_ps / PS_PER_S,
                "ready_bytes": sent,
            }
        )
    # When the first gradient, shares of all bytes, and the last gradient are ready.
    ready = [{"share": tensors[0]["ready_bytes"] / sent, "ready_s": tensors[0]["ready_s"]}]
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        first = next(tensor for tensor in tensors if tensor["ready_bytes"] >= share * sent)
        ready.append({"share": share, "ready_s": first["ready_s"]})
    ready.append({"share": 1.0, "ready_s": tensors[-1]["ready_s"]})
    names = ("name", "model", "gpu", "precision", "batch", "sample", "parameters")
    return {
        **{name: getattr(profile, name) for name in names},
        "gradient_bytes": sent,
        **{f"{part}_s": getattr(profile, f"{part}_ps") / PS_PER_S for part in ("forward", "backward", "optimizer")},
        "compute_s": compute_ps / PS_PER_S,
        "samples_per_s": profile.batch * PS_PER_S / compute_ps if compute_ps else None,
        "memory_bound": profile.memory_bound,
        "ready": ready,
        "kind": profile.kind,
        "source": profile.source,
        "tensors": tensors,
    }


def sourced_numbers(file: ProfileFile) -> list[dict[str, Any]]:
    """Return every number of a profile's file but the tensors' times, with its kind and source."""
    numbers: list[dict[str, Any]] = [
        {"field": field, **asdict(stated)}
        for field in ("batch", "efficiency", "forward", "memory_bound")
        if (stated := getattr(file, field)) is not None
    ]
    value, optimizer = file.optimizer.time or file.optimizer.rule, file.optimizer
    numbers.append({"field": "optimizer", "value": value, "kind": optimizer.kind, "source": optimizer.source})
    stated = [tensor for tensor in file.tensors if tensor.kind is not None or tensor.source is not None]
    own = group_by(stated, lambda tensor: (tensor.kind or file.kind, tensor.source or file.source))
    for (kind, source), (first, *others) in own.items():
        field = f"backward of {first.name}{f' and {len(others)} more' if others else ''}"
        numbers.append({"field": field, "value": first.backward, "kind": kind, "source": source})
    return numbers
