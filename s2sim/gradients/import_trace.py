"""Reads the layers of one file of a user's gradients, whatever wrote it."""

import struct
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from tokenize import TokenError
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np

from s2sim.arrays import Array
from s2sim.codecs.floats import BFLOAT16, widen
from s2sim.errors import TraceError, warn
from s2sim.gradients import manifest, statistics
from s2sim.gradients.gradient import (
    SPARSE_BELOW,
    Gradient,
    Layer,
    RowSparse,
    as_row_sparse,
    map_values,
    stored,
    to_dense,
)
from s2sim.gradients.read_trace import TYPE_NAMES, Trace, parse_safetensors, refuse_archive_bomb, sort_by_step_and_rank
from s2sim.gradients.write_trace import check_target, write_trace
from s2sim.units import format_number_of

Layers = dict[str, Layer]

# Before, a file could run code even where only tensors were asked for (CVE-2025-32434).
_OLDEST = (2, 6)
_MAX_ROWS = 2**31
_SAVE = "save a dictionary of layer name to gradient, or one tensor"


def _read_torch(path: Path) -> Layers:
    """Return the tensors of a file; one that is sparse in its rows becomes rows + values.

    Needs the extra ``torch``; `TraceError` if it is missing, or the file holds anything but tensors that it holds in
    full.
    """
    try:
        import torch
    except ImportError:
        raise TraceError(
            f"{path} is read by PyTorch: pip install 's2sim[torch]', or save .npz or .safetensors"
        ) from None
    if tuple(map(int, torch.__version__.split(".")[:2])) < _OLDEST:
        raise TraceError(f"{path} could run code in PyTorch {torch.__version__}: pip install --upgrade torch")
    size = path.stat().st_size
    # What torch.save wrote before 1.6, and plain pickles, allocate what they claim before it is read.
    if not zipfile.is_zipfile(path):
        raise TraceError(f"{path} is empty, truncated, damaged or not written by torch.save: save it again")
    refuse_archive_bomb(path)
    checked: Any = torch.sparse.check_sparse_tensor_invariants  # has no types of its own
    try:
        # Some kinds of tensors warn that PyTorch may change them; what is none of ours is refused later.
        with warnings.catch_warnings(action="ignore"), checked():
            loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        # Its own message tells how to run the code all the same.
        raise TraceError(
            f"{path} holds something else than tensors, which could run code, and is not loaded: {_SAVE}"
        ) from None
    tensors = {_SINGLE_LAYER: loaded} if isinstance(loaded, torch.Tensor) else loaded
    if not isinstance(tensors, dict):
        raise TraceError(f"{path} holds a {type(loaded).__name__}: {_SAVE}")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise TraceError(f"{path}: {name!r} is of type {type(tensor).__name__}: {_SAVE}")
    layers = {name: _to_layer(tensor, f"{path}: layer {name!r}", size) for name, tensor in tensors.items()}
    return {name: map_values(layer, partial(_from_numpy, name=name, path=path)) for name, layer in layers.items()}


def _to_layer(tensor: Any, label: str, file_bytes: int) -> Layer:
    """Return a tensor as NumPy has it; ``label`` names it in errors."""
    import torch

    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise TraceError(f"{label} has the type {tensor.dtype}; gradients are float16, bfloat16, 32 or 64")
    if tensor.is_nested or tensor.device.type != "cpu" or tensor.layout not in (torch.strided, torch.sparse_coo):
        raise TraceError(f"{label} is no plain tensor and no sparse_coo one: save it with .to_dense().cpu()")
    values = tensor = tensor.detach()
    if is_sparse := tensor.layout == torch.sparse_coo:
        if tensor.sparse_dim() != 1 or tensor.shape[0] >= _MAX_ROWS:
            raise TraceError(f"{label} is sparse in more than its rows, or has too many: save it with .to_dense()")
        tensor = tensor.coalesce()
        values = tensor.values()
    # An expanded tensor of a few bytes may claim more elements than there is memory.
    if values.numel() * values.element_size() > file_bytes:
        raise TraceError(f"{label} claims more elements than the file holds: save it with .contiguous()")
    narrow = values.dtype == torch.bfloat16
    array: Array = (values.contiguous().view(torch.int16) if narrow else values).numpy()
    array = array.view(BFLOAT16) if narrow else array
    return RowSparse(tensor.indices()[0].numpy(), array, tuple(tensor.shape)) if is_sparse else array


_SINGLE_LAYER = "gradient"
# How what NumPy writes begins. It takes all else for a pickle, and tells how to run the code in it.
_ARRAY, _ARCHIVE = b"\x93NUMPY", b"PK"
DAMAGED = (
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
    struct.error,
)
"""What NumPy, zipfile and PyTorch raise on damaged, encrypted or pickled content, as found by altering bytes."""


def _from_numpy(array: Array, name: str, path: Path) -> Array:
    """Return a layer's values as float32, or as they are if they are bfloat16."""
    if array.dtype == BFLOAT16:
        return array
    if array.dtype.newbyteorder("=") not in (np.float16, np.float32, np.float64):
        raise TraceError(f"{path}: layer {name!r} has the type {array.dtype}; gradients are float16, 32 or 64")
    # A float64 value beyond float32 becomes infinite and is refused as such by the caller.
    with np.errstate(over="ignore", under="ignore"):
        values = array.astype(np.float32, copy=False)
    if lost := int(np.count_nonzero(array)) - int(np.count_nonzero(values)):
        warn(
            f"{path}: {format_number_of(lost, 'value')} of layer {name!r} too small for float32 became zero: "
            "scale the gradients up before saving"
        )
    return values


def _read_numpy(path: Path) -> Layers:
    # Opened here because NumPy leaves a damaged archive open. Pickled objects could run code: NumPy refuses them
    # with a ValueError.
    with path.open("rb") as file:
        start = file.read(len(_ARRAY))
        if not start.startswith((_ARRAY, _ARCHIVE)):
            raise TraceError(f"{path} is empty, damaged or not written by NumPy: save it again")
        if start.startswith(_ARCHIVE):
            refuse_archive_bomb(path)
        file.seek(0)
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {_SINGLE_LAYER: _from_numpy(loaded, _SINGLE_LAYER, path)}
        with loaded:
            return {name: _from_numpy(loaded[name], name, path) for name in loaded.files}


def _read_safetensors(path: Path) -> Layers:
    arrays = parse_safetensors(path.read_bytes(), str(path))
    for name, array in arrays.items():
        if array.dtype.kind == "i":
            raise TraceError(
                f"{path}: layer {name!r} has the type {TYPE_NAMES[array.dtype]}; gradients are floating-point"
            )
    return {name: _from_numpy(array, name, path) for name, array in arrays.items()}


# The reader of each ending, and how such files begin.
_FORMATS = {
    ".npy": (_read_numpy, (_ARRAY, _ARCHIVE)),
    ".npz": (_read_numpy, (_ARRAY, _ARCHIVE)),
    ".safetensors": (_read_safetensors, ()),
    ".pt": (_read_torch, (_ARCHIVE, b"\x80")),
    ".pth": (_read_torch, (_ARCHIVE, b"\x80")),
}


def begins_right(path: Path) -> bool:
    """Return whether a file begins as those with its ending do: a first look at what may not be worth reading."""
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError:
        return False
    # Eight bytes tell how long the JSON is that safetensors begins with.
    _, starts = _FORMATS.get(path.suffix, (None, ()))
    return start[8:] == b"{" if path.suffix == ".safetensors" else start.startswith(starts)


def read_arrays(path: Path) -> Layers:
    """Return the layers of a ``.npy``, ``.npz``, ``.safetensors``, ``.pt`` or ``.pth`` file, float32 or `BFLOAT16`.

    A scalar has shape (1,). `TraceError` if the file is missing or damaged, or a layer is no floating-point array, is
    empty, or is not finite.
    """
    if path.suffix not in _FORMATS:
        raise TraceError(f"{path} is none of {', '.join(_FORMATS)}: save one such file a rank, or a step and rank")
    if path.exists() and not path.is_file():
        raise TraceError(f"{path} cannot be read: it is not a regular file")
    try:
        layers = {name: map_values(each, np.atleast_1d) for name, each in _FORMATS[path.suffix][0](path).items()}
    except TraceError:
        raise
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error
    except DAMAGED as error:
        large = "too large for the memory of this machine" if isinstance(error, MemoryError) else ""
        why = large or next(iter(str(error).splitlines()), type(error).__name__)
        raise TraceError(f"{path} is not a {path.suffix} file of plain arrays ({why}): save it again") from error
    if not layers:
        raise TraceError(f"{path} holds no layer")
    for name, layer in layers.items():
        if layer.size == 0:
            raise TraceError(f"{path}: layer {name!r} has the shape {list(layer.shape)}; a layer needs elements")
        if not np.isfinite(widen(stored(layer))).all():
            raise TraceError(f"{path}: layer {name!r} holds NaN, infinity, or a value too large for float32")
    return layers


def _compare_files(paths: tuple[tuple[Path, ...], ...]) -> tuple[statistics.GradientTable, Literal["fp32", "bf16"]]:
    """Compare the files, by step and rank, with each other; return their gradients and the type of all of them.

    Layers are row-sparse that are so in every file.
    """
    first = paths[0][0]
    shapes: dict[str, tuple[int, ...]] = {}
    sparse: set[str] = set()
    dtypes: set[np.dtype[Any]] = set()
    for path in (path for step in paths for path in step):
        read = read_arrays(path)
        dtypes |= {layer.dtype for layer in read.values()}
        layers = {name: map_values(layer, widen) for name, layer in read.items()}
        found = {name: layer.shape for name, layer in layers.items()}
        if not shapes:
            shapes = found
            sparse = {name for name, layer in layers.items() if isinstance(layer, RowSparse) or layer.ndim == 2}
        for name in {*shapes, *found}:
            if shapes.get(name) != found.get(name):
                raise TraceError(
                    f"{path}: layer {name!r} is {found.get(name, 'missing')}, in {first} it is "
                    f"{shapes.get(name, 'missing')}; every file needs the same layers and shapes"
                )
        rows = {name: len(as_row_sparse(layers[name]).rows) for name in sparse}
        sparse = {name for name, held in rows.items() if held < SPARSE_BELOW * shapes[name][0]}

    def gradient(step: int, rank: int) -> Gradient:
        read = {name: map_values(layer, widen) for name, layer in read_arrays(paths[step][rank]).items()}
        layers = (as_row_sparse(read[name]) if name in sparse else to_dense(read[name]) for name in shapes)
        return Gradient(tuple(shapes), tuple(layers))

    return statistics.GradientTable(len(paths), len(paths[0]), gradient), "bf16" if dtypes == {BFLOAT16} else "fp32"


def import_trace(
    files: Sequence[str | Path],
    out: str | Path,
    *,
    model: str = "imported gradients",
    data: str = "gradients of the user",
    licence: str = "not stated",
    overwrite: bool = False,
) -> Trace:
    """Write a trace from ``files``: one a rank in rank order, or one a step and rank, whose names tell both.

    They are ``.npy`` (one layer, called "gradient"), ``.npz``, ``.safetensors``, or ``.pt`` and ``.pth`` files of
    float16, float32, float64 or (not NumPy's) bfloat16 arrays, all with the same layers and shapes. See
    `s2sim.gradients.read_trace` for names that tell step and rank.

    Two-dimensional layers of which every rank leaves more than half of the rows at zero are stored as rows +
    values; values keep all bits of float32. Where all of them are bfloat16, so are the gradients of the trace.

    `TraceError` if a file cannot be read, holds anything but finite floating-point arrays, or differs from the first,
    or if a step lacks a rank.
    """
    if not files:
        raise TraceError("no file to import: name one .npy, .npz, .safetensors or .pt file a rank")
    check_target(Path(out), overwrite=overwrite)
    given = tuple(map(Path, files))
    paths = sort_by_step_and_rank(given)
    each = "one a rank" if len(paths) == 1 else "one a step and rank"
    origin = manifest.Origin(
        data=data,
        licence=licence,
        source=f"{format_number_of(len(given), 'file')}, {each}: {paths[0][0].name} to {paths[-1][-1].name}",
        command=f"s2sim trace import {' '.join(path.name for path in given)} --out {Path(out).name}",
        training="unknown: the gradients were imported",
    )
    source, dtype = _compare_files(paths)
    return write_trace(
        Path(out),
        source,
        kind="imported",
        model=model,
        origin=origin,
        dtype=dtype,
        max_storage_error=0.0,
        overwrite=overwrite,
    )
