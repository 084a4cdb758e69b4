"""Imports a user's own gradients, one file a rank, as a trace."""

from __future__ import annotations

import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from s2sim.errors import S2SimWarning, TraceError
from s2sim.gradients.gradient import Gradient, as_row_sparse
from s2sim.gradients.traces.manifest import Origin
from s2sim.gradients.traces.safetensors_file import parse_safetensors, to_float32
from s2sim.gradients.traces.write import check_target, write_trace
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.gradients.traces.read import Trace

    Arrays = dict[str, NDArray[np.float32]]

# A 2-D layer is stored as rows + values when every rank leaves more than half of its rows at zero.
_SPARSE_BELOW = 0.5
_SINGLE_LAYER = "gradient"
# What NumPy and zipfile raise on damaged, encrypted or pickled content, as found by altering bytes at random.
_DAMAGED = (ValueError, EOFError, BadZipFile, zlib.error, TokenError, SyntaxError, RuntimeError, MemoryError, KeyError)


def _from_numpy(array: NDArray[Any], name: str, path: Path) -> NDArray[np.float32]:
    if array.dtype.newbyteorder("=") not in (np.float16, np.float32, np.float64):
        raise TraceError(f"{path}: layer {name!r} has the type {array.dtype}; gradients are float16, 32 or 64")
    # A float64 value beyond float32 becomes infinite and is refused as such by the caller.
    with np.errstate(over="ignore", under="ignore"):
        values = array.astype(np.float32)
    _tell_underflow(array, values, name, path)
    return values


def _tell_underflow(array: NDArray[Any], values: NDArray[np.float32], name: str, path: Path) -> None:
    if lost := int(np.count_nonzero(array)) - int(np.count_nonzero(values)):
        warnings.warn(
            f"{path}: {number_of(lost, 'value')} of layer {name!r} too small for float32 became zero: "
            "scale the gradients up before saving",
            S2SimWarning,
            stacklevel=2,
        )


def _read_numpy(path: Path) -> Arrays:
    # Opened here because NumPy leaves a damaged archive open. Pickled objects could run code: NumPy refuses them
    # with a ValueError.
    with path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {_SINGLE_LAYER: _from_numpy(loaded, _SINGLE_LAYER, path)}
        with loaded:
            return {name: _from_numpy(loaded[name], name, path) for name in loaded.files}


def _read_safetensors(path: Path) -> Arrays:
    arrays = {}
    for name, tensor in parse_safetensors(path.read_bytes(), str(path)).items():
        with np.errstate(over="ignore", under="ignore"):
            values = to_float32(tensor)
        if values is None:
            raise TraceError(f"{path}: layer {name!r} has the type {tensor.dtype}; gradients are floating-point")
        if tensor.dtype == "F64":
            _tell_underflow(tensor.array, values, name, path)
        arrays[name] = values
    return arrays


_READERS = {".npy": _read_numpy, ".npz": _read_numpy, ".safetensors": _read_safetensors}


def read_arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the layers of a ``.npy``, ``.npz`` or ``.safetensors`` file as float32 arrays.

    Raises
    ------
    TraceError
        If the file is missing or damaged, or a layer is no floating-point array, is empty, or is not finite.
    """
    if path.suffix not in _READERS:
        raise TraceError(f"{path} is none of {', '.join(_READERS)}: save one such file a rank")
    if path.exists() and not path.is_file():
        raise TraceError(f"{path} cannot be read: it is not a regular file")
    try:
        arrays = _READERS[path.suffix](path)
    except TraceError:
        raise
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error
    except _DAMAGED as error:
        raise TraceError(f"{path} is not a {path.suffix} file of plain arrays ({error}): save it again") from error
    if not arrays:
        raise TraceError(f"{path} holds no layer")
    for name, array in arrays.items():
        if array.ndim == 0 or array.size == 0:
            raise TraceError(f"{path}: layer {name!r} has the shape {list(array.shape)}; a layer needs elements")
        if not np.isfinite(array).all():
            raise TraceError(f"{path}: layer {name!r} holds NaN, infinity, or a value too large for float32")
    return arrays


@dataclass(frozen=True, slots=True)
class _Files:
    """The user's files as a source of gradients."""

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    sparse: frozenset[str]
    steps: int = 1

    @property
    def world_size(self) -> int:
        return len(self.paths)

    def gradient(self, step: int, rank: int) -> Gradient:
        assert step == 0
        arrays = read_arrays(self.paths[rank])
        layers = tuple(as_row_sparse(arrays[name]) if name in self.sparse else arrays[name] for name in self.names)
        return Gradient(self.names, layers)


def _row_share(array: NDArray[np.float32]) -> float:
    return float(array.any(axis=1).mean())


def _scan(paths: tuple[Path, ...]) -> _Files:
    """Compare the files with each other and find the layers that are row-sparse on every rank."""
    shapes: dict[str, tuple[int, ...]] = {}
    sparse: set[str] = set()
    for path in paths:
        arrays = read_arrays(path)
        found = {name: array.shape for name, array in arrays.items()}
        if not shapes:
            shapes = found
            sparse = {name for name, shape in shapes.items() if len(shape) == 2}
        for name in {*shapes, *found}:
            if shapes.get(name) != found.get(name):
                raise TraceError(
                    f"{path}: layer {name!r} is {found.get(name, 'missing')}, in {paths[0]} it is "
                    f"{shapes.get(name, 'missing')}; every rank's file needs the same layers and shapes"
                )
        sparse = {name for name in sparse if _row_share(arrays[name]) < _SPARSE_BELOW}
    return _Files(paths, tuple(shapes), frozenset(sparse))


def import_trace(
    files: Sequence[str | Path],
    out: str | Path,
    *,
    model: str = "imported gradients",
    data: str = "gradients of the user",
    licence: str = "not stated",
    overwrite: bool = False,
) -> Trace:
    """Write a trace of one step from ``files``, one a rank in rank order.

    Two-dimensional layers of which every rank leaves more than half of the rows at zero are stored as rows +
    values; values keep all bits of float32.

    Parameters
    ----------
    files : sequence of path
        ``.npy`` (one layer, called "gradient"), ``.npz`` or ``.safetensors`` files of float16, float32, float64 or
        (safetensors) bfloat16 arrays, all with the same layers and shapes.

    Raises
    ------
    TraceError
        If a file cannot be read, holds anything but finite floating-point arrays, or differs from the first.
    """
    if not files:
        raise TraceError("no file to import: name one .npy, .npz or .safetensors file a rank")
    check_target(Path(out), overwrite=overwrite)
    paths = tuple(map(Path, files))
    origin = Origin(
        data=data,
        licence=licence,
        source=f"{len(paths)} file(s), one a rank: {paths[0].name} to {paths[-1].name}",
        command=f"s2sim trace import {' '.join(path.name for path in paths)} --out {Path(out).name}",
        training="unknown: the gradients were imported",
    )
    return write_trace(
        Path(out), _scan(paths), kind="imported", model=model, origin=origin, max_storage_error=0.0, overwrite=overwrite
    )
