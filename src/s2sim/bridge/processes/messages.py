"""Payloads as the bytes that pass between processes, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.codecs.bfloat16 import BFLOAT16
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse, to_dense
from s2sim.reducers.group.combine import leaves_of, rebuild

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Ints
    from s2sim.reducers.rank import Contribution

    Bytes = NDArray[np.uint8]

WORD_BYTES = 8


def pack(payload: Contribution) -> Bytes:
    """Return the bytes of all arrays of a payload one after the other, row-sparse ones in their dense form."""
    return _joined([_bytes_of(to_dense(leaf)) for leaf in leaves_of(payload)])


def shapes_of(payload: Contribution) -> Ints:
    """Return the lengths of all arrays along all axes, int64 of shape (axes of all,)."""
    return np.array([length for leaf in leaves_of(payload) for length in leaf.shape], np.int64)


def unpack(like: Contribution, data: Bytes, shapes: Ints | None = None) -> Any:
    """Return the payload of such bytes, read-only: its structure and types are those of ``like``.

    Parameters
    ----------
    shapes : int64 array or None
        What `shapes_of` says of it, where these differ.
    """
    leaves, at, axis = [], 0, 0
    for leaf in leaves_of(like):
        axes = len(leaf.shape)
        shape = leaf.shape if shapes is None else tuple(map(int, shapes[axis : axis + axes]))
        size = int(np.prod(shape, dtype=np.int64)) * leaf.dtype.itemsize
        # A copy begins where its type wants it to.
        array = data[at : at + size].copy().view(leaf.dtype).reshape(shape)
        array.setflags(write=False)
        leaves.append(as_row_sparse(array) if isinstance(leaf, RowSparse) else array)
        at, axis = at + size, axis + axes
    return rebuild(like, leaves)


def envelope(payload: Contribution) -> Bytes:
    """Return the bytes of a payload behind a description of it, for those who know nothing of it."""
    described = np.frombuffer(json.dumps(_described(payload)).encode(), np.uint8)
    return _joined([_bytes_of(np.array([len(described)], np.int64)), described, pack(payload)])


def opened(message: Bytes) -> Any:
    """Return the payload of an `envelope`."""
    end = WORD_BYTES + int(message[:WORD_BYTES].copy().view(np.int64)[0])
    like = _like(json.loads(message[WORD_BYTES:end].tobytes()))
    return unpack(like, message[end:])


def _described(payload: Contribution) -> Any:
    """Return structure, types and shapes as JSON."""
    if isinstance(payload, tuple):
        return ["tuple", *map(_described, payload)]
    if isinstance(payload, Gradient):
        return ["gradient", payload.names, *map(_described, payload.layers)]
    kind = "rows" if isinstance(payload, RowSparse) else "array"
    return [kind, "bfloat16" if payload.dtype == BFLOAT16 else payload.dtype.str, payload.shape]


def _like(described: Sequence[Any]) -> Any:
    """Return a payload without values of which `_described` says this."""
    kind, *rest = described
    if kind == "tuple":
        return tuple(map(_like, rest))
    if kind == "gradient":
        return Gradient(tuple(rest[0]), tuple(map(_like, rest[1:])))
    name, shape = rest
    dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
    if kind == "rows":
        return RowSparse(np.empty(0, np.int64), np.empty((0, *shape[1:]), dtype), tuple(shape))
    # One element that stands for all of them.
    return np.broadcast_to(np.empty((), dtype), shape)


def _bytes_of(array: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _joined(parts: Sequence[Bytes]) -> Bytes:
    return np.concatenate([np.empty(0, np.uint8), *parts])
