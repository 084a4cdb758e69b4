"""Costs of GPU work on drawn or selected elements: found, copied out, added up and put in their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.reducers.gpu_cost import GATHER_BYTES, INDEX_BYTES, SCATTER_BYTES, SELECT_LAUNCHES, VALUE_BYTES
from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Phase


def draw(draws: int, segments: int, phase: Phase) -> Work:
    """Return the cost of drawing indices: each is written once, by a kernel a segment; generators stay in registers."""
    return Work(phase, draws * INDEX_BYTES, launches=segments)


def copy_out(values: int, *, scattered: bool) -> Work:
    """Return the cost of copying values into a message, from random addresses, whose indices are read, or from runs."""
    read = INDEX_BYTES + GATHER_BYTES if scattered else VALUE_BYTES
    return Work("encode", values * (read + VALUE_BYTES))


def put_back(result_bytes: int, values: int, *, scattered: bool) -> Work:
    """Return the cost of clearing a result and adding values to it, at random addresses or in runs."""
    written = INDEX_BYTES + SCATTER_BYTES if scattered else 2 * VALUE_BYTES
    return Work("decode", result_bytes + values * (VALUE_BYTES + written), launches=2)


def merge(pairs: int, merged: int, lists: int) -> Work:
    """Return the cost of merging sorted lists of pairs two by two, and of adding up those of one index.

    A pass reads and writes all pairs, the sum reads them once more (CUB ``DeviceMerge``, ``DeviceReduce``).
    """
    passes = max(lists - 1, 0).bit_length()
    moved = ((2 * passes + 1) * pairs + merged) * (INDEX_BYTES + VALUE_BYTES)
    return Work("encode", moved, launches=(passes + 1) * SELECT_LAUNCHES)


def insert_keys(keys: int, hashes: int, bits: int) -> Work:
    """Return the cost of a Bloom filter: it is cleared, and each hash of each key sets a bit."""
    return Work("encode", bits // 8 + keys * (INDEX_BYTES + hashes * SCATTER_BYTES), launches=2)


def test_keys(keys: int, filters: int, phase: Phase) -> Work:
    """Return the cost of testing keys for Bloom filters of which half the bits are set: two hashes on average.

    Those of all keys are read from a table in order, as DeepReduce keeps them; filters stay in the cache. The keys that
    pass are found by a stream compaction.
    """
    return Work(phase, filters * keys * 2 * INDEX_BYTES, launches=filters * SELECT_LAUNCHES)
