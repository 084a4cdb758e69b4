"""Bytes on the wire of what a library executes, by the pinned ring algorithms (DESIGN section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.schedules.blocks import exchanged_bytes
from s2sim.reducers.scripts.script import Call
from s2sim.reducers.scripts.traffic import add_up, ring_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from s2sim.collectives.libraries.launches import Lowered
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.reducers.scripts.script import Recording
    from s2sim.replay.run import Replay


def demand_bytes(demand: Demand) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (sent, received) bytes of each rank, int64 of shape (ranks,); see `ring_bytes`."""
    if demand.kind == "all_to_all":
        return exchanged_bytes(demand)
    assert demand.kind != "send_recv"
    assert demand.kind != "barrier"
    return ring_bytes(
        Call(demand.kind, "", "", demand.itemsize, demand.elements, size_from_data=False, label="", root=demand.root)
    )


def ring_traffic(lowered: Iterable[Lowered], ranks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (sent, received) bytes of each rank over all that is launched."""
    sent, received = add_up(((each.ranks, demand_bytes(demand)) for each in lowered for demand in each.demands), ranks)
    return sent, received


def mean_bytes(sent_bytes: int, recording: Recording) -> int:
    """Return bytes of a whole recording as the mean over its steps, rounded up."""
    return -(-sent_bytes // recording.steps)


def schedule_traffic(replay: Replay, ranks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (sent, received) bytes of each rank, of the algorithms that ran."""
    sent, received = add_up(((launch.ranks, launch.timed.schedule.traffic()) for launch in replay.launches), ranks)
    return sent, received
