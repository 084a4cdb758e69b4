"""Increasing positions as distances of 16 bits, with fillers where the next one is further away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import CodecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Ints

_FURTHEST = 2**16 - 1


def encode_distances(positions: Ints, values: NDArray[Any]) -> tuple[NDArray[np.uint16], NDArray[Any]]:
    """Return the distance of each position to the one before it, the first to -1, and the values.

    Where that does not fit into 16 bits, zeros stand between at the largest distance. ``positions``, int64 of shape
    (k,), increase strictly from 0 on; ``values`` has the same shape.

    >>> encode_distances(np.array([2, 70000]), np.array([1.5, 2.5]))
    (array([    3, 65535,  4463], dtype=uint16), array([1.5, 0. , 2.5]))
    """
    gaps = np.diff(positions, prepend=-1)
    fillers = (gaps - 1) // _FURTHEST
    places = np.cumsum(fillers + 1) - 1
    count = int(places[-1]) + 1 if len(places) else 0
    distances = np.full(count, _FURTHEST, np.uint16)
    distances[places] = gaps - fillers * _FURTHEST
    filled = np.zeros(count, values.dtype)
    filled[places] = values
    return distances, filled


def decode_distances(distances: NDArray[np.uint16], elements: int) -> Ints:
    """Return the positions, those of fillers among them; `CodecError` if they do not lie in so many elements."""
    positions: Ints = np.cumsum(distances, dtype=np.int64) - 1
    if len(positions) and (not distances.all() or positions[-1] >= elements):
        raise CodecError(f"these distances do not lead to {len(positions)} elements of {elements}")
    return positions
