"""The content of a trace's ``manifest.json`` as frozen values."""

import errno
import json
import os
from dataclasses import dataclass
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Literal

from s2sim.errors import TraceError
from s2sim.files import MAX_BYTES, StrictFields, read_bytes, validated
from s2sim.gradients.gradient import Shaped
from s2sim.gradients.statistics import Statistics

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


_MOST_ELEMENTS = 2**48


@dataclass(frozen=True, slots=True)
class LayerEntry(StrictFields, Shaped):
    """One layer of the recorded model; ``sparse`` where it is stored as rows + values.

    ``dtype`` is that of the stored values, which are read as float32. ``storage_error`` is the largest relative L2
    difference, over ranks and steps, between what training produced and what is stored.
    """

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
        if self.size > _MOST_ELEMENTS:
            raise TraceError(f"layer {self.name!r} has the shape {list(self.shape)}: more than any memory holds")
        if not (isfinite(self.storage_error) and self.storage_error >= 0):
            raise TraceError(f"layer {self.name!r} has the storage error {self.storage_error}")


@dataclass(frozen=True, slots=True)
class Origin(StrictFields):
    """Where a trace comes from: data, licence and address, the command that recorded it, and how the model trained."""

    data: str
    licence: str
    source: str
    command: str
    training: str


@dataclass(frozen=True, slots=True)
class Manifest(StrictFields):
    """The description of a trace; None stands for what is unknown."""

    schema_version: Literal[1]
    kind: Literal["recorded", "imported", "synthetic"]  # By training, or from a user's arrays
    model: str
    layers: tuple[LayerEntry, ...]
    scaling: str  # How stored values become float32 gradients
    batch: int | None  # Samples (tokens, for language models) in one rank's mini-batch
    steps: int
    world_size: int
    warmup_steps: int | None  # Training steps before the first recorded one
    seed: int | None
    origin: Origin
    statistics: Statistics | None  # Measured on the stored values; None for a synthetic trace, drawn on demand
    files: dict[str, str]  # File name to SHA-256 of its bytes, in hexadecimal digits
    dtype: Literal["fp32", "bf16"] = "fp32"  # Type that training held the gradients in, whatever they are stored as

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


MANIFEST_NAME = "manifest.json"
# Problems named in one message; a file with more is another kind of file.
_MAX_PROBLEMS = 5


def read_inside(directory: Path, name: str, most_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of the regular file ``name`` inside ``directory``; `OSError` where it is something else.

    Through a link that leads out of the directory a trace that somebody sends could read other files.
    """
    path = directory / name
    if os.path.commonpath([os.path.realpath(directory), os.path.realpath(path)]) != os.path.realpath(directory):
        raise OSError(errno.EINVAL, "it is a link that leads out of the trace")
    return read_bytes(path, most_bytes)


def _first_name(names: set[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{min(names)}{more}"


def read_manifest(directory: Path) -> Manifest:
    """Return the checked manifest of the trace in ``directory``; `TraceError` names all problems in one line."""
    path = directory / MANIFEST_NAME
    try:
        text = read_inside(directory, MANIFEST_NAME)
        content = json.loads(text)
    except FileNotFoundError:
        raise TraceError(
            f"{directory} holds no {MANIFEST_NAME}: a trace is a directory written by 's2sim trace record' or "
            "'s2sim trace import'"
        ) from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise TraceError(f"{path} is not JSON: record or copy the trace again") from None
    if not isinstance(content, dict):
        raise TraceError(f"{path} is not a JSON object: record or copy the trace again")
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        shown = repr(version) if isinstance(version, int | None) and abs(version or 0) < 10**9 else "of another kind"
        raise TraceError(f"{path} has schema_version {shown}; this s2sim reads {SCHEMA_VERSION}")
    manifest = validated(Manifest, text, f"{path} is not a valid manifest", TraceError, _MAX_PROBLEMS)
    if manifest.steps * manifest.world_size != len(manifest.files):
        raise TraceError(
            f"{path} lists {len(manifest.files)} files for {manifest.steps} steps of {manifest.world_size} ranks: "
            "record or copy the trace again"
        )
    needed = {gradient_file_name(step, rank) for step in range(manifest.steps) for rank in range(manifest.world_size)}
    if missing := needed - set(manifest.files):
        raise TraceError(f"{path} lists no checksum for {_first_name(missing)}: record or copy the trace again")
    if unused := set(manifest.files) - needed:
        raise TraceError(
            f"{path} lists {_first_name(unused)}, which none of its {manifest.steps} steps and "
            f"{manifest.world_size} ranks uses: record or copy the trace again"
        )
    return manifest
