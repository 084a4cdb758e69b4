"""Which gradients of a row's model leave together, and the scripts of its reducer on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError, nearest
from s2sim.replay.iteration.disciplines.discipline import ReadyTensors
from s2sim.replay.iteration.disciplines.registry import make_discipline
from s2sim.replay.iteration.exchange import Leaving
from s2sim.study.collective.sizes import make_demand
from s2sim.study.validate.iterations.implementations import believed_latency, implementation_of
from s2sim.study.validate.iterations.recorded import as_implemented, record_on, with_packing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.timing.timer import Timer
    from s2sim.profiles.profile import Ready
    from s2sim.reducers.scripts.script import Recording
    from s2sim.replay.iteration.compute import Compute
    from s2sim.replay.iteration.disciplines.discipline import Discipline
    from s2sim.study.validate.iterations.row import IterationRow

_VALUE_BYTES = 4
_DISCIPLINES = {
    "none": "after-backward",
    "wfbp": "per-tensor",
    "mg-wfbp": "mg-wfbp",
    "ddp": "ddp",
    "bytescheduler": "two-priorities:bucket=4MiB",
}


def discipline_of(row: IterationRow) -> Discipline:
    """Return how a row's gradients are exchanged; `S2SimError` where it does not say."""
    name = _DISCIPLINES.get(row.overlap_kind)
    if name is None:
        known = nearest(row.overlap_kind, _DISCIPLINES)
        raise S2SimError(f"how communication overlaps is not known: overlap_kind {row.overlap_kind!r}{known}")
    latency = believed_latency(row) if name == "mg-wfbp" else None
    return make_discipline(name if latency is None else f"{name}:latency={latency}")


def exchange_of(
    row: IterationRow,
    tensors: Sequence[Ready],
    compute: Compute,
    discipline: Discipline,
    option_string: str,
    timer: Timer,
) -> tuple[Leaving, ...]:
    """Return the buckets of a row's gradients in the order in which they leave, with what its reducer does."""
    ready = ReadyTensors(
        bytes=np.array([_VALUE_BYTES * tensor.size for tensor in tensors], np.int64),
        ready_ps=np.cumsum(compute.backward_ps),
        sparse=np.zeros(len(tensors), np.bool_),
    )

    def exchange_ps(size_bytes: int) -> int:
        return timer.time(make_demand("all_reduce", size_bytes, row.workers)).duration_ps

    found = []
    for bucket in discipline.buckets(ready, exchange_ps):
        own = [tensors[place] for place in bucket.tensors]
        found.append(Leaving(bucket, _recorded(row, own, option_string)))
    return tuple(found)


def _recorded(row: IterationRow, tensors: Sequence[Ready], option_string: str) -> Recording:
    elements = sum(tensor.size for tensor in tensors)
    recording = record_on(option_string, tuple(tensor.shape for tensor in tensors), row.workers)
    recording = as_implemented(recording, implementation_of(row), elements)
    return with_packing(recording, elements, at_once=row.sent_densely) if row.packs else recording
