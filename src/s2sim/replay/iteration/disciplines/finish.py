"""When exchanges end where the network takes one bucket at a time: the closed form of an iteration's communication."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints
    from s2sim.replay.iteration.disciplines.discipline import Bucket, Exchange, ReadyTensors


def finish_ps(buckets: Sequence[Bucket], tensors: ReadyTensors, exchange_ps: Exchange) -> Ints:
    """Return when the exchange of each bucket ends, from the beginning of backward.

    What has begun is not interrupted, and of buckets that are ready the one of smallest priority goes first. Where
    priorities are equal and bucket i is ready after those before it, that is

        e_i = max(e_{i-1}, ready_i) + exchange(bytes_i).

    Returns
    -------
    int64 array, shape (buckets,)
        Picoseconds.
    """
    last = [bucket.tensors[-1] for bucket in buckets]
    ready = tensors.ready_ps[last].tolist() if buckets else []
    coming = [(at, number) for number, at in enumerate(ready)]
    heapify(coming)
    waiting: list[tuple[int, int, int]] = []
    ends = np.zeros(len(buckets), np.int64)
    now = 0
    while coming or waiting:
        if not waiting:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            at, number = heappop(coming)
            heappush(waiting, (buckets[number].priority, at, number))
        _, _, number = heappop(waiting)
        now += exchange_ps(int(tensors.bytes[list(buckets[number].tensors)].sum()))
        ends[number] = now
    return ends
