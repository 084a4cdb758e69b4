"""Reads the layers of one file of a user's gradients, whatever wrote it."""

from __future__ import annotations

import warnings
import zlib
from pickle import UnpicklingError
from tokenize import TokenError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from s2sim.codecs.bfloat16 import BFLOAT16, widen
from s2sim.errors import S2SimWarning, TraceError
from s2sim.gradients.gradient import RowSparse, stored
from s2sim.gradients.traces.archive import refuse_bomb
from s2sim.gradients.traces.safetensors_file import parse_safetensors, to_float32
from s2sim.gradients.traces.torch_file import read_tensors
from s2sim.words import number_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Layer

    Layers = dict[str, Layer]

_SINGLE_LAYER = "gradient"
# How what NumPy writes begins. It takes all else for a pickle, and tells how to run the code in it.
_ARRAY, _ARCHIVE = b"\x93NUMPY", b"PK"
# What NumPy, zipfile and PyTorch raise on damaged, encrypted or pickled content, as found by altering bytes at random.
_DAMAGED = (
    ValueError,
    EOFError,
    BadZipFile,
    zlib.error,
    TokenError,
    SyntaxError,
    RuntimeError,
    MemoryError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    OverflowError,
    UnpicklingError,
)


def _from_numpy(array: NDArray[Any], name: str, path: Path) -> Floats32:
    if array.dtype.newbyteorder("=") not in (np.float16, np.float32, np.float64):
        raise TraceError(f"{path}: layer {name!r} has the type {array.dtype}; gradients are float16, 32 or 64")
    # A float64 value beyond float32 becomes infinite and is refused as such by the caller.
    with np.errstate(over="ignore", under="ignore"):
        values = array.astype(np.float32, copy=False)
    _tell_underflow(array, values, name, path)
    return values


def _tell_underflow(array: NDArray[Any], values: Floats32, name: str, path: Path) -> None:
    if lost := int(np.count_nonzero(array)) - int(np.count_nonzero(values)):
        warnings.warn(
            f"{path}: {number_of(lost, 'value')} of layer {name!r} too small for float32 became zero: "
            "scale the gradients up before saving",
            S2SimWarning,
            stacklevel=2,
        )


def _read_numpy(path: Path) -> Layers:
    # Opened here because NumPy leaves a damaged archive open. Pickled objects could run code: NumPy refuses them
    # with a ValueError.
    with path.open("rb") as file:
        start = file.read(len(_ARRAY))
        if not start.startswith((_ARRAY, _ARCHIVE)):
            raise TraceError(f"{path} is empty, damaged or not written by NumPy: save it again")
        if start.startswith(_ARCHIVE):
            refuse_bomb(path)
        file.seek(0)
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {_SINGLE_LAYER: _from_numpy(loaded, _SINGLE_LAYER, path)}
        with loaded:
            return {name: _from_numpy(loaded[name], name, path) for name in loaded.files}


def _read_safetensors(path: Path) -> Layers:
    arrays: Layers = {}
    for name, tensor in parse_safetensors(path.read_bytes(), str(path)).items():
        if tensor.dtype == "BF16":
            arrays[name] = tensor.array.view(BFLOAT16)
            continue
        with np.errstate(over="ignore", under="ignore"):
            values = to_float32(tensor)
        if values is None:
            raise TraceError(f"{path}: layer {name!r} has the type {tensor.dtype}; gradients are floating-point")
        if tensor.dtype == "F64":
            _tell_underflow(tensor.array, values, name, path)
        arrays[name] = values
    return arrays


def _read_torch(path: Path) -> Layers:
    layers: Layers = {}
    for name, layer in read_tensors(path, _SINGLE_LAYER).items():
        found = stored(layer)
        values = found if found.dtype == BFLOAT16 else _from_numpy(found, name, path)
        layers[name] = layer.with_values(values) if isinstance(layer, RowSparse) else values
    return layers


_READERS = {
    ".npy": _read_numpy,
    ".npz": _read_numpy,
    ".safetensors": _read_safetensors,
    ".pt": _read_torch,
    ".pth": _read_torch,
}


def read_arrays(path: Path) -> Layers:
    """Return the layers of a ``.npy``, ``.npz``, ``.safetensors``, ``.pt`` or ``.pth`` file, float32 or `BFLOAT16`.

    `TraceError` if the file is missing or damaged, or a layer is no floating-point array, is empty, or is not finite.
    """
    if path.suffix not in _READERS:
        raise TraceError(f"{path} is none of {', '.join(_READERS)}: save one such file a rank, or a step and rank")
    if path.exists() and not path.is_file():
        raise TraceError(f"{path} cannot be read: it is not a regular file")
    try:
        layers = _READERS[path.suffix](path)
    except TraceError:
        raise
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error
    except _DAMAGED as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise TraceError(f"{path} is not a {path.suffix} file of plain arrays ({why}): save it again") from error
    if not layers:
        raise TraceError(f"{path} holds no layer")
    for name, layer in layers.items():
        if not layer.shape or layer.size == 0:
            raise TraceError(f"{path}: layer {name!r} has the shape {list(layer.shape)}; a layer needs elements")
        if not np.isfinite(widen(stored(layer))).all():
            raise TraceError(f"{path}: layer {name!r} holds NaN, infinity, or a value too large for float32")
    return layers
