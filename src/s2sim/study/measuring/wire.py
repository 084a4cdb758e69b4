"""Bytes on the wire of what a library executes, by the pinned ring algorithms (DESIGN section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.blocks import exchanged_bytes
from s2sim.reducers.scripts.script import Call
from s2sim.reducers.scripts.traffic import ring_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from s2sim.collectives.schedules.demand import Demand
    from s2sim.replay.run import Replay


def sent_bytes(demand: Demand) -> NDArray[np.int64]:
    """Return what each rank sends, int64 of shape (ranks,); what it receives is what the rank before it sends.

    An all-reduce and an all-gather go around the ring; a broadcast goes along it from its root, so that all but the
    last rank send it once; of an all-to-all each rank sends all but its own block.
    """
    ranks, size = demand.ranks, demand.buffer_bytes
    if demand.kind == "broadcast":
        return np.where(np.arange(ranks) == (demand.root - 1) % ranks, 0, size).astype(np.int64)
    if demand.kind == "all_to_all":
        return exchanged_bytes(demand)[0]
    assert demand.kind in ("all_reduce", "all_gather")
    sent, _ = ring_bytes(Call(demand.kind, "", "", demand.itemsize, demand.elements, size_from_data=False, label=""))
    return sent


def received_bytes(demand: Demand) -> NDArray[np.int64]:
    """Return what each rank receives, int64 of shape (ranks,)."""
    if demand.kind == "all_to_all":
        return exchanged_bytes(demand)[1]
    return np.roll(sent_bytes(demand), 1)


def ring_traffic(demands: Iterable[Demand], ranks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (sent, received) bytes of each rank over all that is launched."""
    total = np.zeros((2, ranks), np.int64)
    for demand in demands:
        total += sent_bytes(demand), received_bytes(demand)
    return total[0], total[1]


def schedule_traffic(replay: Replay, ranks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (sent, received) bytes of each rank, of the algorithms that ran."""
    total = np.zeros((2, ranks), np.int64)
    for launch in replay.launches:
        total += np.stack(launch.timed.schedule.traffic())[:, :ranks]
    return total[0], total[1]
