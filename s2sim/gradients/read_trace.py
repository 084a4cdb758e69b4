"""Opens gradient traces and reads them lazily, one rank's gradient of one step at a time.

Reads safetensors bytes as NumPy arrays, bfloat16 included.

The package's own NumPy reader opens a path, so that nobody could tell the checksum of what was read, and refuses
bfloat16; its `deserialize` does neither.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from s2sim.arrays import Array
from s2sim.codecs.floats import BFLOAT16, from_half
from s2sim.errors import TraceError, unknown_name
from s2sim.files import data_directory
from s2sim.gradients.gradient import Gradient, RowSparse, stored
from s2sim.gradients.manifest import MANIFEST_NAME, LayerEntry, Manifest, gradient_file_name, read_inside, read_manifest
from s2sim.gradients.statistics import Statistics, check_place, trace_statistics
from s2sim.units import format_bytes, format_number_of

# What an archive may expand to in bytes, or in times its own size if that is more.
_ROOM_BYTES, _MOST_EXPANSION = 2**31, 20


def refuse_archive_bomb(path: Path) -> None:
    """Refuse a small archive that would fill the memory; `zipfile.BadZipFile` for what is no archive."""
    with ZipFile(path) as archive:
        # No member is read beyond the size that is told here.
        expanded = sum(member.file_size for member in archive.infolist())
    if expanded > max(_ROOM_BYTES, _MOST_EXPANSION * path.stat().st_size):
        raise TraceError(f"{path} expands to {format_bytes(expanded)}: save it without compression")


_STEP, _RANK = (re.compile(rf"{word}[-_=]?(\d+)", re.ASCII | re.IGNORECASE) for word in ("step", "rank"))
_EXAMPLE = "name all of them like step3-rank1.npz"


def sort_by_step_and_rank(paths: Sequence[Path]) -> tuple[tuple[Path, ...], ...]:
    """Return the files of each step in the order of ranks; without a step in any name, one step in the order given.

    The last number after "step", and after "rank", in the file's name or its directory's counts. Steps and ranks need
    not begin at 0. Files whose names tell steps and no ranks are of one rank. `TraceError` if some names tell less than
    others, two tell the same, or a step lacks a rank that another has.
    """
    steps = _numbers(paths, _STEP, "step")
    if steps is None:
        return (tuple(paths),)
    ranks = _numbers(paths, _RANK, "rank") or [0] * len(paths)
    places: dict[tuple[int, int], Path] = {}
    for path, step, rank in zip(paths, steps, ranks, strict=True):
        if (step, rank) in places:
            raise TraceError(f"{places[step, rank]} and {path} are both of step {step}, rank {rank}: {_EXAMPLE}")
        places[step, rank] = path
    for step in steps:
        for rank in ranks:
            if (step, rank) not in places:
                raise TraceError(f"step {step} has no file of rank {rank}: every step needs one of every rank")
    return tuple(tuple(places[step, rank] for rank in sorted(set(ranks))) for step in sorted(set(steps)))


def _numbers(paths: Sequence[Path], pattern: re.Pattern[str], what: str) -> list[int] | None:
    """Return the number that each name tells; None where none does."""
    found = [pattern.findall("/".join(path.parts[-2:])) for path in paths]
    if not any(found):
        return None
    for path, numbers in zip(paths, found, strict=True):
        if not numbers:
            raise TraceError(f"{path} does not tell its {what}, and other files do: {_EXAMPLE}")
    return [int(numbers[-1]) for numbers in found]


_DTYPES = {name: np.dtype(code) for name, code in (("F64", "<f8"), ("F32", "<f4"), ("F16", "<f2"), ("I32", "<i4"))}
_DTYPES["BF16"] = BFLOAT16
TYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
"""The format's name of each type that is read."""


def parse_safetensors(data: bytes, label: str) -> dict[str, Array]:
    """Return every tensor of a safetensors file, in the order of its header; ``label`` names it in errors."""
    from safetensors import SafetensorError, deserialize

    read: Callable[[bytes], Any] = deserialize  # It has no annotations.
    try:
        found = dict(read(data))
    except SafetensorError as error:
        raise TraceError(
            f"{label} is truncated, damaged or no safetensors file ({error}): record, export or copy the file again"
        ) from error
    for name, tensor in found.items():
        if tensor["dtype"] not in _DTYPES:
            raise TraceError(f"{label}: tensor {name!r} has the type {tensor['dtype']}; known: {', '.join(_DTYPES)}")
    # The package returns tensors in an order of its own; eight bytes of length stand before the header.
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {
        name: np.frombuffer(found[name]["data"], _DTYPES[found[name]["dtype"]]).reshape(found[name]["shape"])
        for name in header
        if name in found
    }


def shipped_directories() -> dict[str, Path]:
    """Return the directory of every shipped trace by name, in alphabetical order."""
    return {path.parent.name: path.parent for path in sorted(data_directory("traces").glob(f"*/{MANIFEST_NAME}"))}


def shipped_traces() -> list[tuple[str, str, str]]:
    """Return (name, what it is, where it is from) of every shipped trace, from the manifests alone."""
    rows = []
    for name, directory in shipped_directories().items():
        manifest = read_manifest(directory)
        size = f"{manifest.parameters / 1e6:.2g} M parameters"
        extent = f"{format_number_of(manifest.world_size, 'rank')} x {format_number_of(manifest.steps, 'step')}"
        origin = f"{manifest.origin.data} ({manifest.origin.licence})"
        rows.append((name, f"{manifest.model}; {size}; {extent}", origin))
    return rows


# Statistics in a manifest are rounded by nothing but JSON; another order of summation may still move the last digits.
_STATISTICS_TOLERANCE = 1e-9
# More than any header of tensors needs; the format itself allows 100 MB.
_MAX_HEADER_BYTES = 2**24
# Of gradients of later steps.
_MOST_KEPT_BYTES = 2**28


class _Kept(dict[tuple[int, int], Gradient]):
    """Gradients by step and rank that were read, which other processes read anew."""

    def __reduce__(self) -> "tuple[type[_Kept], tuple[()]]":
        return _Kept, ()


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Gradients of every rank at some steps of a training, on disk, under a shipped name or that of their directory."""

    name: str
    directory: Path
    manifest: Manifest
    _kept: _Kept | None = field(default=None, repr=False)

    def keeping(self) -> "Trace":
        """Return the same trace, which reads each file once: a run takes the same gradients several times.

        Those of the first step are kept, which a run holds together in any case, and of others what takes less than
        256 MiB.
        """
        return replace(self, _kept=_Kept())

    @property
    def world_size(self) -> int:
        """Number of ranks recorded."""
        return self.manifest.world_size

    @property
    def steps(self) -> int:
        """Number of steps recorded."""
        return self.manifest.steps

    def gradient(self, step: int, rank: int) -> Gradient:
        """Return one rank's gradient of one step: float32 arrays, row-sparse layers as rows + values.

        The file is read now, unless it is kept, and what is read is what is checked: structure, checksum, shapes,
        types, rows in range and increasing, values finite.
        """
        check_place(self.name, self, step, rank)
        if self._kept is None:
            return self._read(step, rank)
        if (step, rank) in self._kept:
            return self._kept[step, rank]
        found = self._read(step, rank)
        if step == 0 or len(self._kept) * sum(stored(layer).nbytes for layer in found.layers) < _MOST_KEPT_BYTES:
            self._kept[step, rank] = found
        return found

    def _read(self, step: int, rank: int) -> Gradient:
        file_name = gradient_file_name(step, rank)
        label = f"trace {self.name}, {file_name}"
        # Values, row numbers, scales, and a header that names them.
        most_bytes = _MAX_HEADER_BYTES + sum(4 * (each.size + each.shape[0] + 1) for each in self.manifest.layers)
        try:
            data = read_inside(self.directory, file_name, most_bytes)
        except FileNotFoundError:
            raise TraceError(f"{label} is missing: record or copy the trace again") from None
        except OSError as error:
            raise TraceError(f"{label} cannot be read: {error.strerror}") from error
        tensors = parse_safetensors(data, label)
        found = hashlib.sha256(data).hexdigest()
        if found != self.manifest.files[file_name]:
            raise TraceError(
                f"{label} has changed: SHA-256 {found[:12]}..., manifest {self.manifest.files[file_name][:12]}...; "
                "record or copy the trace again"
            )
        return _gradient(tensors, self.manifest.layers, label)

    def verify(self) -> None:
        """Read every gradient with all its checks, and compare the statistics measured with the manifest's."""
        measured = trace_statistics(self)
        if self.manifest.statistics is not None and (field := _difference(self.manifest.statistics, measured)):
            raise TraceError(
                f"trace {self.name}: {field} in the manifest is not that of the files; record or copy the trace again"
            )


def _tensor(tensors: dict[str, Array], name: str, dtype: str, shape: tuple[int, ...] | None, label: str) -> Array:
    """Return one tensor after checking its type and, unless None, its shape."""
    if name not in tensors:
        raise TraceError(f"{label} lacks the tensor {name!r}: record or copy the trace again")
    tensor = tensors[name]
    if tensor.dtype != np.dtype(dtype):
        raise TraceError(f"{label}: tensor {name!r} has the type {TYPE_NAMES[tensor.dtype]}, the manifest says {dtype}")
    if shape is not None and tensor.shape != shape:
        raise TraceError(f"{label}: tensor {name!r} has the shape {list(tensor.shape)}, not {list(shape)}")
    return tensor


def _gradient(tensors: dict[str, Array], entries: tuple[LayerEntry, ...], label: str) -> Gradient:
    scales = _tensor(tensors, "scales", "float32", (len(entries),), label)
    layers: list[Array | RowSparse] = []
    expected = {"scales"}
    for entry, scale in zip(entries, scales, strict=True):
        expected.add(values_name := f"{entry.name}/values")
        rows, shape = None, entry.shape
        if entry.sparse:
            expected.add(rows_name := f"{entry.name}/rows")
            stored = _tensor(tensors, rows_name, "int32", None, label)
            rows = stored.astype(np.int64).reshape(-1)
            if stored.ndim != 1 or (rows[1:] <= rows[:-1]).any():
                raise TraceError(f"{label}: tensor {rows_name!r} is not a strictly increasing list of rows")
            if len(rows) and (rows[0] < 0 or rows[-1] >= entry.shape[0]):
                raise TraceError(f"{label}: tensor {rows_name!r} has rows outside 0 to {entry.shape[0] - 1}")
            shape = (len(rows), *entry.shape[1:])
        kept = _tensor(tensors, values_name, entry.dtype, shape, label)
        values = from_half(kept) if entry.dtype == "float16" else kept.astype(np.float32)
        if scale != 1:
            # Finite halves times a scale cannot warn usefully: the check below names the tensor instead.
            with np.errstate(over="ignore", invalid="ignore"):
                values *= scale
        if not np.isfinite(values).all():
            raise TraceError(f"{label}: tensor {values_name!r} holds NaN or infinity; record the trace again")
        layers.append(values if rows is None else RowSparse(rows, values, entry.shape))
    if unknown := set(tensors) - expected:
        raise TraceError(f"{label} holds the tensor {min(unknown)!r}, which the manifest does not name")
    return Gradient(tuple(entry.name for entry in entries), tuple(layers))


def _difference(claimed: Statistics, measured: Statistics) -> str | None:
    if claimed.union_ranks != measured.union_ranks or set(claimed.layers) != set(measured.layers):
        return "the list of layers or of rank counts"
    pairs = [("the whole gradient", claimed.whole, measured.whole)]
    pairs += [(f"layer {name!r}", claimed.layers[name], measured.layers[name]) for name in measured.layers]
    for owner, left, right in pairs:
        for figure in ("density", "union_density", "top_percent_energy", "kurtosis"):
            # None stands for "undefined" and must meet None: NaN equals NaN here.
            a, b = (np.atleast_1d(np.array(getattr(side, figure), np.float64)) for side in (left, right))
            if a.shape != b.shape or not np.allclose(a, b, rtol=_STATISTICS_TOLERANCE, atol=0, equal_nan=True):
                return f"{figure} of {owner}"
    return None


def open_trace(path_or_name: str | Path) -> Trace:
    """Return the trace of a shipped name or in a directory; gradients are read when asked for.

    A shipped name wins over a directory of the same name; write ``./name`` for the directory.
    """
    shipped = shipped_directories()
    text = str(path_or_name)
    if isinstance(path_or_name, str) and text in shipped:
        return Trace(text, shipped[text], read_manifest(shipped[text]))
    path = Path(path_or_name)
    # Without a name the path would be the working directory. `os.path` says no to a text that is too long for a path,
    # which is an error of `Path.is_dir`.
    if text and os.path.isdir(text):  # noqa: PTH112  (Path.is_dir raises for a text too long)
        return Trace(path.resolve().name, path, read_manifest(path))
    if text and os.path.exists(text):  # noqa: PTH110  (as above)
        raise TraceError(f"{text} is a file; a trace is a directory (import a file with 's2sim trace import {text}')")
    if os.sep in text or "/" in text:
        raise TraceError(f"there is no trace directory {text}; 's2sim trace record' or a JobRecorder makes one")
    raise unknown_name("trace", text, shipped)
