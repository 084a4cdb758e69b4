"""Reads safetensors bytes as NumPy arrays, bfloat16 included.

The package's own NumPy reader opens a path, so that nobody could tell the checksum of what was read, and refuses
bfloat16; its `deserialize` does neither.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Floats32

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4"}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file: the format's name of its type, such as ``"BF16"``, and the values (bfloat16: its bits)."""

    dtype: str
    array: NDArray[Any]


def parse_safetensors(data: bytes, label: str) -> dict[str, StoredTensor]:
    """Return every tensor of a safetensors file, in the order of its header; ``label`` names it in errors."""
    from safetensors import SafetensorError, deserialize

    try:
        stored = dict(deserialize(data))  # type: ignore[no-untyped-call]  # safetensors ships no annotations of this function
    except SafetensorError as error:
        raise TraceError(
            f"{label} is truncated, damaged or no safetensors file ({error}): record, export or copy the file again"
        ) from error
    for name, tensor in stored.items():
        if tensor["dtype"] not in _DTYPES:
            raise TraceError(f"{label}: tensor {name!r} has the type {tensor['dtype']}; known: {', '.join(_DTYPES)}")
    # The package returns tensors in an order of its own; eight bytes of length stand before the header.
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {
        name: StoredTensor(
            stored[name]["dtype"],
            np.frombuffer(stored[name]["data"], _DTYPES[stored[name]["dtype"]]).reshape(stored[name]["shape"]),
        )
        for name in header
        if name in stored
    }


def to_float32(tensor: StoredTensor) -> Floats32 | None:
    """Return a tensor as a new float32 array, or None if its type holds no floating-point numbers that NumPy has."""
    return tensor.array.astype(np.float32) if tensor.dtype in ("F16", "F32", "F64") else None
