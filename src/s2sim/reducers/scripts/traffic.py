"""Bytes on the wire of a recorded collective, by the pinned ring algorithms (DESIGN section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.reducers.scripts.script import Call, Recording


def chunk_bounds(elements: int, ranks: int) -> NDArray[np.int64]:
    """Return where ring chunks begin and end, int64 of shape (ranks + 1,): chunk i is [i·n//P, (i+1)·n//P)."""
    return np.arange(ranks + 1, dtype=np.int64) * elements // ranks


def ring_bytes(call: Call) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (sent, received) bytes of each rank, int64 of shape (ranks,), under ring collectives.

    In a ring all-reduce rank r sends chunks r, r-1, ... in the reduce-scatter and r+1, r, ... in the all-gather: all
    chunks twice but for r+1 once and r+2 once. In a ring all-gather rank r passes on every block but that of rank r+1.
    """
    ranks = len(call.elements)
    if ranks == 1:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    if call.kind == "all_to_all":
        blocks = np.asarray(call.blocks, np.int64) * call.itemsize
        np.fill_diagonal(blocks, 0)
        return blocks.sum(axis=1), blocks.sum(axis=0)
    if call.kind == "all_reduce":
        chunks = np.diff(chunk_bounds(call.elements[0], ranks)) * call.itemsize
        sent = 2 * chunks.sum() - np.roll(chunks, -1) - np.roll(chunks, -2)
    else:
        contributions = np.asarray(call.bytes_by_rank, np.int64)
        sent = contributions.sum() - np.roll(contributions, -1)
    return sent, np.roll(sent, 1)


def recording_bytes(recording: Recording) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (sent, received) bytes of each rank over all collectives of a recording, as `ring_bytes`."""
    total = np.zeros((2, recording.workers), np.int64)
    for call in recording.calls:
        total += ring_bytes(call)
    return total[0], total[1]
