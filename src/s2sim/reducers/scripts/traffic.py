"""Bytes on the wire of a recorded collective, by the pinned ring algorithms (DESIGN section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from s2sim.arrays import Ints
    from s2sim.reducers.scripts.script import Call, Recording


def chunk_bounds(elements: int, ranks: int) -> Ints:
    """Return where ring chunks begin and end, int64 of shape (ranks + 1,): chunk i is [i·n//P, (i+1)·n//P)."""
    return np.arange(ranks + 1, dtype=np.int64) * elements // ranks


def ring_bytes(call: Call) -> tuple[Ints, Ints]:
    """Return (sent, received) bytes of each rank that takes part, int64 of shape (ranks,), under ring collectives.

    In a ring all-reduce rank r sends chunks r, r-1, ... in the reduce-scatter and r+1, r, ... in the all-gather: all
    chunks twice but for r+1 once and r+2 once. In a ring all-gather rank r passes on every block but that of rank r+1;
    in a ring reduce-scatter by itself it ends with part r, and has passed on all others. A broadcast goes around the
    ring from its root to the rank before it, a reduce the same way back. Blocks of an all-to-all, and what peers
    exchange, go straight to where they belong.
    """
    ranks = len(call.elements)
    if ranks == 1:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    size = call.elements[0] * call.itemsize
    if call.kind in ("broadcast", "reduce"):
        inner, outer = np.full((2, ranks), size, np.int64)
        inner[call.root] = outer[call.root - 1] = 0
        return (outer, inner) if call.kind == "broadcast" else (inner, outer)
    if call.kind == "reduce_scatter":
        parts = np.asarray(call.elements, np.int64) * call.itemsize
        return parts.sum() - parts, parts.sum() - np.roll(parts, 1)
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


def recording_bytes(recording: Recording) -> tuple[Ints, Ints]:
    """Return (sent, received) bytes of each rank over all collectives of a recording, as `ring_bytes`."""
    sent, received = add_up(((call.ranks, ring_bytes(call)) for call in recording.calls), recording.workers)
    return sent, received


def payload_bytes(recording: Recording) -> Ints:
    """Return the bytes that each rank hands to its collectives, int64 of shape (ranks,)."""
    handed_in = ((call.ranks, np.asarray([call.bytes_by_rank], np.int64)) for call in recording.calls)
    total: Ints = add_up(handed_in, recording.workers, rows=1)[0]
    return total


def add_up(parts: Iterable[tuple[Sequence[int], ArrayLike]], ranks: int, *, rows: int = 2) -> Ints:
    """Return sums over ranks' places, int64 of shape (rows, ranks), of parts that some ranks have; none stand for all.

    What a part has beyond its ranks, for servers, is left out.
    """
    total = np.zeros((rows, ranks), np.int64)
    for members, part in parts:
        where = np.asarray(members, np.int64) if len(members) else np.arange(ranks)
        total[:, where] += np.asarray(part)[:, : len(where)]
    return total
