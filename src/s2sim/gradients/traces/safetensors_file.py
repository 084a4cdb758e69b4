"""Reads safetensors bytes as NumPy arrays, bfloat16 included, without copying and without running anything.

The format (https://github.com/huggingface/safetensors#format): eight bytes with the header's length, little
endian; the header as JSON, tensor name to dtype, shape and data offsets; the data. The ``safetensors`` package
writes it; reading stays here because that package's NumPy side refuses bfloat16 and cannot hash the very bytes it
reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The package's own limit; a longer header is an attack or an accident.
_MAX_HEADER_BYTES = 100_000_000
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file.

    Attributes
    ----------
    dtype : str
        The format's own name, for example ``"F16"`` or ``"BF16"``.
    array : array
        The values, a read-only view of the file's bytes; bfloat16 as its uint16 bits.
    """

    dtype: str
    array: NDArray[Any]


def _is_naturals(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def parse_safetensors(data: bytes, label: str) -> dict[str, StoredTensor]:
    """Return every tensor of a safetensors file, in the order of its header.

    Parameters
    ----------
    data : bytes
        The whole file.
    label : str
        The file's name, for messages.

    Raises
    ------
    TraceError
        If the file is truncated, too long, or its header contradicts itself.
    """
    again = "record, export or copy the file again"
    header_end = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or header_end - 8 > _MAX_HEADER_BYTES or header_end > len(data):
        raise TraceError(f"{label} is truncated or no safetensors file ({len(data)} bytes): {again}")
    try:
        header = json.loads(data[8:header_end])
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, AttributeError, RecursionError) as error:
        raise TraceError(f"{label} has a header that is not a JSON object: {again}") from error
    tensors: dict[str, StoredTensor] = {}
    covered = 0
    for name, entry in entries.items():
        fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
        shape, offsets, dtype = fields.get("shape", ()), fields.get("data_offsets", ()), fields.get("dtype")
        if not _is_naturals(shape) or not _is_naturals(offsets) or len(offsets) != 2:
            raise TraceError(f"{label}: tensor {name!r} has no valid shape and offsets in the header: {again}")
        if dtype not in _DTYPES:
            raise TraceError(f"{label}: tensor {name!r} has the type {dtype!r}; known: {', '.join(_DTYPES)}")
        numpy_dtype = np.dtype(_DTYPES[dtype])
        count = prod(shape)
        start, stop = (header_end + offset for offset in offsets)
        if stop - start != count * numpy_dtype.itemsize:
            raise TraceError(f"{label}: tensor {name!r} has {stop - start} bytes, which its shape {shape} contradicts")
        if stop > len(data):
            raise TraceError(f"{label} is truncated: tensor {name!r} ends {stop - len(data)} bytes behind it: {again}")
        array = np.frombuffer(data, numpy_dtype, count, start).reshape(shape)
        tensors[name] = StoredTensor(dtype, array)
        covered += stop - start
    if covered != len(data) - header_end:
        raise TraceError(f"{label}: its tensors hold {covered} bytes, the file {len(data) - header_end}: {again}")
    return tensors


def to_float32(tensor: StoredTensor) -> NDArray[np.float32] | None:
    """Return a tensor as a new float32 array, or None if its type holds no floating-point numbers."""
    if tensor.dtype == "BF16":
        # A bfloat16 number is the upper half of a float32 one.
        return (tensor.array.astype(np.uint32) << 16).view(np.float32)
    return tensor.array.astype(np.float32) if tensor.dtype in ("F16", "F32", "F64") else None
