"""The content of a trace's ``manifest.json`` as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, prod
from pathlib import PurePosixPath
from typing import ClassVar, Literal

from s2sim.errors import TraceError
from s2sim.gradients.statistics import STRICT, Statistics

SCHEMA_VERSION: Literal[1] = 1
SCALING = (
    "float32 value = stored value x scales[i] (a power of two, so exact); scales is a float32 tensor in each file, "
    "one entry a layer in the order of this manifest"
)


def gradient_file_name(step: int, rank: int) -> str:
    """Return the name, relative to the trace, of the file that holds one rank's gradient of one step.

    >>> gradient_file_name(0, 63)
    'step-0000/rank-0063.safetensors'
    """
    return f"step-{step:04d}/rank-{rank:04d}.safetensors"


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """One layer of the recorded model; ``sparse`` where it is stored as rows + values.

    ``dtype`` is that of the stored values, which are read as float32. ``storage_error`` is the largest relative L2
    difference, over ranks and steps, between what training produced and what is stored.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    name: str
    shape: tuple[int, ...]
    sparse: bool
    dtype: Literal["float16", "float32"]
    storage_error: float

    def __post_init__(self) -> None:
        if not self.name:
            raise TraceError("a layer has an empty name")
        if not self.shape or min(self.shape) < 1:
            raise TraceError(
                f"layer {self.name!r} has the shape {list(self.shape)}; every dimension must be at least 1"
            )
        if not (isfinite(self.storage_error) and self.storage_error >= 0):
            raise TraceError(f"layer {self.name!r} has the storage error {self.storage_error}")

    @property
    def size(self) -> int:
        """Elements of the layer, zeros included."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a trace comes from: data, licence and address, the command that recorded it, and how the model trained."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    data: str
    licence: str
    source: str
    command: str
    training: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a trace.

    Attributes
    ----------
    kind : str
        ``"recorded"`` by training, ``"imported"`` from a user's arrays, or ``"synthetic"``.
    scaling : str
        How stored values become float32 gradients.
    batch, warmup_steps : int or None
        Samples (tokens, for language models) in one rank's mini-batch, and training steps before the first recorded
        one; None where unknown.
    statistics : Statistics or None
        Measured on the stored values; None for a synthetic trace, which is drawn on demand.
    dtype : {"fp32", "bf16"}
        Type that training held the gradients in, whatever they are stored as.
    files : dict of str to str
        File name to SHA-256 of its bytes, in hexadecimal digits.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    schema_version: Literal[1]
    kind: Literal["recorded", "imported", "synthetic"]
    model: str
    layers: tuple[LayerEntry, ...]
    scaling: str
    batch: int | None
    steps: int
    world_size: int
    warmup_steps: int | None
    seed: int | None
    origin: Origin
    statistics: Statistics | None
    files: dict[str, str]
    dtype: Literal["fp32", "bf16"] = "fp32"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.world_size < 1:
            raise TraceError(f"{self.steps} steps of {self.world_size} ranks: there must be at least one of each")
        names = [layer.name for layer in self.layers]
        if not names or len(set(names)) != len(names):
            raise TraceError("there must be at least one layer and no two of one name")
        for name in self.files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
                raise TraceError(f"file name {name!r} leads out of the trace; a trace names only files inside itself")

    @property
    def parameters(self) -> int:
        """Elements of all layers."""
        return sum(layer.size for layer in self.layers)
