"""The inner loops of the count sketch, compiled by numba (extra ``numba``).

They make of keys what `s2sim.codecs.hashing` makes of them. Each cell gets the same additions in the same order as with
NumPy, so that both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np

from s2sim.arrays import Floats32, Words
from s2sim.codecs.hashing import MIX_MULTIPLIERS
from s2sim.errors import S2SimError

Backend: TypeAlias = Literal["numpy", "numba"]
"""Whose loops add to the cells and read them: NumPy's, or those that numba compiles. The results are equal."""

_WORTHWHILE = 1 << 29
"""Times that a key is hashed for a row of a sketch: each saves about 4 ns, and importing and compiling take 1.6 s."""


def backend_for(hashes: int) -> Backend:
    """Return what adds to a sketch's cells in less time where keys are hashed so often: numba if it is there and pays.

    Both give the same bits.
    """
    return "numba" if hashes >= _WORTHWHILE and find_spec("numba") is not None else "numpy"


def add_rows(cells: Floats32, keys: Words, seed_word: np.uint32, multipliers: Words, values: Floats32) -> None:
    """Add each value, with its sign, to one cell of each row of a sketch, float32 of shape (rows, columns).

    Values and their keys are float32 and uint32 of shape (k,); `s2sim.codecs.hashing.mix_constants` returns the others.
    """
    _compiled(_add_rows)(cells, _compiled(_mix)(keys, seed_word), multipliers, values)


def read_rows(cells: Floats32, keys: Words, seed_word: np.uint32, multipliers: Words) -> Floats32:
    """Return what each row estimates for each key, float32 of shape (rows, k); parameters as in `add_rows`."""
    estimates = np.empty((len(multipliers), len(keys)), np.float32)
    _compiled(_read_rows)(cells, _compiled(_mix)(keys, seed_word), multipliers, estimates)
    return estimates


@cache
def _compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    try:
        from numba import njit
    except ImportError as error:
        raise S2SimError("backend numba needs numba: pip install 's2sim[numba]', or take backend numpy") from error
    compiled: Callable[..., Any] = njit(nogil=True)(loop)
    return compiled


# Numba widens products of 32-bit numbers to 64 bits; np.uint32 cuts them off again, as NumPy's arrays do.


def _mix(keys: Any, seed_word: Any) -> Any:
    mixed = np.empty(len(keys), np.uint32)
    for index in range(len(keys)):
        word = keys[index] ^ seed_word
        word = np.uint32((word ^ (word >> np.uint32(16))) * MIX_MULTIPLIERS[0])
        word = np.uint32((word ^ (word >> np.uint32(15))) * MIX_MULTIPLIERS[1])
        mixed[index] = word ^ (word >> np.uint32(15))
    return mixed


# One row after the other: keys stay in the cache, and so do the cells of one row.


def _add_rows(cells: Any, mixed: Any, multipliers: Any, values: Any) -> None:
    columns = np.uint64(cells.shape[1])
    for row in range(len(multipliers)):
        line, multiplier, bit = cells[row], multipliers[row], np.uint32(row)
        for index in range(len(mixed)):
            column = (np.uint64(np.uint32(mixed[index] * multiplier)) * columns) >> np.uint64(32)
            sign = np.float32(1 - 2 * np.int32((mixed[index] >> bit) & np.uint32(1)))
            line[column] += sign * values[index]


def _read_rows(cells: Any, mixed: Any, multipliers: Any, estimates: Any) -> None:
    columns = np.uint64(cells.shape[1])
    for row in range(len(multipliers)):
        line, estimate, multiplier, bit = cells[row], estimates[row], multipliers[row], np.uint32(row)
        for index in range(len(mixed)):
            column = (np.uint64(np.uint32(mixed[index] * multiplier)) * columns) >> np.uint64(32)
            estimate[index] = line[column]
        # Cells are read one by one, but signs are vectorised in a loop of their own.
        for index in range(len(mixed)):
            estimate[index] *= np.float32(1 - 2 * np.int32((mixed[index] >> bit) & np.uint32(1)))
