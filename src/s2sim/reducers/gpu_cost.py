"""Costs of GPU work, in bytes of memory traffic and kernels: the sizes that all is counted with, and whole arrays.

A program says ``rank.work(cost.select(...))``; such functions stand here and in the ``cost`` modules of `row_sparse`
and `sketching`, each with the source of what it counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Phase

VALUE_BYTES = 4
"""A float32 value."""

HALF_BYTES = 2
"""A float16 value."""

INDEX_BYTES = 4
"""A uint32 element index."""

ROW_ID_BYTES = 8
"""An int64 row number, as frameworks keep the coordinates of sparse tensors."""

GATHER_BYTES = 32
"""What reading one value at a random address moves: memory is read in sectors of 32 bytes (NVIDIA CUDA C++ Best
Practices Guide, "Coalesced Access to Global Memory"). Pessimistic where the array fits in the cache."""

SCATTER_BYTES = 64
"""What adding to one value at a random address moves: its sector is read and written back."""

SELECT_LAUNCHES = 2
"""Kernels of one stream compaction: set up, then a single pass (CUB ``DeviceSelect``; D. Merrill, M. Garland,
"Single-pass parallel prefix scan with decoupled look-back", NVIDIA NVR-2016-002)."""

# A radix select reads the 32-bit magnitudes once for each of its four 8-bit digits, building a histogram
# (T. Alabi et al., "Fast k-selection algorithms for graphics processing units", ACM JEA 2012).
_HISTOGRAM_PASSES = 4


def cast(values: int, phase: Phase) -> Work:
    """Return the cost of one pass over float32 values that writes them in half precision, or back."""
    return Work(phase, values * (VALUE_BYTES + HALF_BYTES))


def add(values: int) -> Work:
    """Return the cost of adding or subtracting arrays: two operands are read, one result is written."""
    return Work("encode", 3 * VALUE_BYTES * values)


def compact(size_bytes: int, found: int) -> Work:
    """Return the cost of finding the values of a dense array that are not zero: their places and themselves."""
    return Work("encode", size_bytes + found * (ROW_ID_BYTES + VALUE_BYTES), launches=SELECT_LAUNCHES)


def select(values: int, k: int) -> Work:
    """Return the cost of the k largest magnitudes: the histograms, then one more pass that writes out the pairs."""
    moved = (_HISTOGRAM_PASSES + 1) * values * VALUE_BYTES + k * (INDEX_BYTES + VALUE_BYTES)
    return Work("encode", moved, launches=_HISTOGRAM_PASSES + SELECT_LAUNCHES)


def add_pairs(result_bytes: int, pairs: int) -> Work:
    """Return the cost of clearing a result, reading pairs of index and value, and adding each where it belongs."""
    return Work("decode", result_bytes + pairs * (INDEX_BYTES + VALUE_BYTES + SCATTER_BYTES), launches=2)


def keep_pairs(result_bytes: int, pairs: int) -> Work:
    """Return the cost of clearing a result and copying the values at some indices into it."""
    return Work("encode", result_bytes + pairs * (INDEX_BYTES + GATHER_BYTES), launches=2)


def find_scale(values: int) -> Work:
    """Return the cost of one pass that reads float32 values and finds a scale of them."""
    return Work("encode", VALUE_BYTES * values)


def write_codes(values: int, code_bytes: int) -> Work:
    """Return the cost of one pass over float32 values that writes their codes."""
    return Work("encode", VALUE_BYTES * values + code_bytes)


def encode_values(values: int, code_bytes: int) -> Work:
    """Return the cost of a pass that finds a scale of float32 values and one that writes their codes."""
    return Work("encode", 2 * VALUE_BYTES * values + code_bytes, launches=2)


def add_codes(values: int, messages: int, code_bytes: int) -> Work:
    """Return the cost of adding what messages of ``values`` values each stand for, one kernel a message."""
    return Work("decode", code_bytes + messages * 2 * VALUE_BYTES * values, launches=max(messages, 1))


def permute(size_bytes: int, arrays: int) -> Work:
    """Return the cost of writing the rows of some arrays in another order: each is read and written."""
    return Work("decode", 2 * size_bytes, launches=arrays)
