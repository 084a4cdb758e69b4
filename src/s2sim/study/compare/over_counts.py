"""With which numbers of workers, and with which mini-batches, a reducer gains 1 % or more of an iteration on dense.

What is exposed of the last bucket is never nothing, so that any gain at all would tell little.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from s2sim.study.compare.choice import WORTHWHILE
from s2sim.study.measuring.verdict_row import CountPays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s2sim.study.measuring.executed import Executed
    from s2sim.study.measuring.result import Row

HIGHEST_BATCH = 4096
"""Samples of one GPU: more than memories hold of any model that computes long enough to matter."""


def over_batches(dense: Executed, others: dict[str, Executed]) -> tuple[CountPays, ...]:
    """Return for each of some reducers with which mini-batches of a GPU it gains that, from 1 to `HIGHEST_BATCH`.

    What was recorded is replayed beside the compute of another mini-batch, in the same buckets. Where a reducer
    gains with two of the least, the largest and the one that was asked for, it is taken to do so between them.
    """
    training = dense.scenario.training
    if training is None or dense.recording.workers == 1:
        return ()
    own = min(training.profile.batch, HIGHEST_BATCH)
    dense_ps: dict[int, int] = {}

    def time_ps(executed: Executed, batch: int) -> int:
        scenario = executed.scenario
        other = training.with_batch(batch, scenario, scenario.machines, executed.recording.workers)
        return replace(executed, scenario=replace(scenario, training=other)).judged_ps

    def pays(executed: Executed, batch: int) -> bool:
        if batch not in dense_ps:
            dense_ps[batch] = time_ps(dense, batch)
        return _gains(time_ps(executed, batch), dense_ps[batch])

    found = []
    for name, executed in others.items():
        known = {batch: pays(executed, batch) for batch in sorted({1, own, HIGHEST_BATCH})}
        for low, high in pairwise(list(known)):
            known |= _around_change(partial(pays, executed), known, low, high)
        found.append(_count_pays(name, "batch", known))
    return tuple(found)


def over_workers(rows: Sequence[Row]) -> tuple[CountPays, ...]:
    """Return for each reducer beside dense with which of the numbers of workers that ran it gains that."""
    times = {(row.reducer, row.workers): row.iteration_s for row in rows if row.iteration is not None}
    counts = sorted({workers for _, workers in times})
    dense = next((row.reducer for row in rows if row.baseline), None)
    if dense is None or len(counts) == 1:
        return ()
    found = []
    for name in dict.fromkeys(name for name, _ in times if name != dense):
        known = {}
        for count in counts:
            own_s, dense_s = times.get((name, count)), times.get((dense, count))
            if own_s is not None and dense_s is not None:
                known[count] = _gains(own_s, dense_s)
        if len(known) == len(counts):
            found.append(_count_pays(name, "workers", known))
    return tuple(found)


def _gains(own: float, dense: float) -> bool:
    return own * WORTHWHILE <= dense


def _around_change(pays: Callable[[int], bool], known: dict[int, bool], low: int, high: int) -> dict[int, bool]:
    """Return what is known of the two neighbours between which what is known of two numbers changes, if it does."""
    first, last = known[low], known[high]
    if first == last:
        return {}
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) == first else (low, middle)
    return {low: first, high: last}


def _count_pays(name: str, field: str, known: dict[int, bool]) -> CountPays:
    counts = sorted(known)
    return CountPays(name, field, tuple(_spans(counts, known)), counts[0], counts[-1])


def _spans(counts: Sequence[int], known: dict[int, bool]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each stretch with which it pays."""
    for gains, stretch in groupby(counts, key=known.__getitem__):
        if gains:
            first, *others = stretch
            yield first, [first, *others][-1]
