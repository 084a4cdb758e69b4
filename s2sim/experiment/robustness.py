"""The numbers of workers, mini-batches and hardware constants with which a choice holds.

A reducer pays if it gains 1 % or more of an iteration on dense: some of the last bucket is always exposed, so smaller
gains mean little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise

from s2sim.experiment.choice import WORTHWHILE, Candidate, Choice, choose, judged_time_s
from s2sim.experiment.execute import ExecutedRecording
from s2sim.experiment.row_parts import CountPays, Flip
from s2sim.experiment.rows import Row
from s2sim.experiment.scenario.cluster import estimated_ranges, format_constant, with_constant
from s2sim.uncertainty.interval import format_interval
from s2sim.units import PS_PER_S

HIGHEST_BATCH = 4096
"""Samples of one GPU: more than memories hold of any model that computes long enough to matter."""


def over_batches(dense: ExecutedRecording, others: dict[str, ExecutedRecording]) -> tuple[CountPays, ...]:
    """Return for each reducer the mini-batches of a GPU with which it pays, from 1 to `HIGHEST_BATCH`.

    The recording is replayed with the compute of another mini-batch, in the same buckets. Between two of the
    smallest, the largest and the given batch with which it pays, it is taken to pay throughout.
    """
    training = dense.scenario.training
    if training is None or dense.recording.workers == 1:
        return ()
    own = min(training.profile.batch, HIGHEST_BATCH)
    dense_ps: dict[int, int] = {}

    def time_ps(executed: ExecutedRecording, batch: int) -> int:
        scenario = executed.scenario
        other = training.with_batch(batch, scenario, scenario.machines, executed.recording.workers)
        return replace(executed, scenario=replace(scenario, training=other)).compared_ps

    def pays(executed: ExecutedRecording, batch: int) -> bool:
        if batch not in dense_ps:
            dense_ps[batch] = time_ps(dense, batch)
        return time_ps(executed, batch) * WORTHWHILE <= dense_ps[batch]

    found = []
    for name, executed in others.items():
        known = {batch: pays(executed, batch) for batch in sorted({1, own, HIGHEST_BATCH})}
        for low, high in pairwise(list(known)):
            known |= _bracket_change(partial(pays, executed), known, low, high)
        found.append(_to_count_pays(name, "batch", known))
    return tuple(found)


def over_workers(rows: Sequence[Row]) -> tuple[CountPays, ...]:
    """Return for each reducer except dense the numbers of workers of the run with which it pays."""
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
                known[count] = own_s * WORTHWHILE <= dense_s
        if len(known) == len(counts):
            found.append(_to_count_pays(name, "workers", known))
    return tuple(found)


def _bracket_change(pays: Callable[[int], bool], known: dict[int, bool], low: int, high: int) -> dict[int, bool]:
    """Return the two neighbours between which the outcome changes, with their outcomes; nothing if it does not."""
    first, last = known[low], known[high]
    if first == last:
        return {}
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) == first else (low, middle)
    return {low: first, high: last}


def _to_count_pays(name: str, field: str, known: dict[int, bool]) -> CountPays:
    counts = sorted(known)
    return CountPays(name, field, tuple(_paying_ranges(counts, known)), counts[0], counts[-1])


def _paying_ranges(counts: Sequence[int], known: dict[int, bool]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each contiguous range in which it pays."""
    for gains, stretch in groupby(counts, key=known.__getitem__):
        if gains:
            first, *others = stretch
            yield first, [first, *others][-1]


def find_sensitive_constants(
    candidates: Sequence[Candidate], executed: Sequence[ExecutedRecording], choice: Choice, max_error: float | None
) -> tuple[Flip, ...]:
    """Return the estimated constants of the GPU with which another choice is made, each at that end of its range.

    ``candidates`` and ``executed`` are in one order, one per reducer; ``choice`` is that of the candidates.
    """
    scenario = executed[0].scenario
    flips = []
    ranges = estimated_ranges(scenario.gpu, [each.recording for each in executed])
    for constant, value in ((constant, value) for constant, ends in ranges.items() for value in ends):
        gpu = with_constant(scenario.gpu, constant, value)
        changed = replace(scenario, machines=replace(scenario.machines, gpu=gpu))
        times_s: dict[object, float] = {}
        varied = []
        for each, one in zip(candidates, executed, strict=True):
            if each.baseline or each.rejected:
                varied.append(each)
                continue
            # Reducers that delegate everything to another have its recordings, and the same time.
            same = (one.timer, *(id(leaving.recording) for leaving in one.bucket_exchanges))
            if same not in times_s:
                times_s[same] = replace(one, scenario=changed).compared_ps / PS_PER_S
            varied.append(replace(each, time_s=times_s[same]))
        best = choice_name(choose(varied, max_error))
        if best != choice_name(choice):
            flips.append(Flip(constant, value, format_constant(scenario.gpu, constant), best))
    return tuple(flips)


def choice_name(choice: Choice) -> str:
    """Return the option string of a choice, ``dense`` for no compression, or ``undecided``."""
    if choice.decision == "undecided":
        return choice.decision
    return "dense" if choice.best.baseline else choice.best.name


# An answer that wins less of the band is none.
_CERTAIN = 0.9


@dataclass(frozen=True, slots=True)
class IntervalRobustness:
    """Who would be named first with each draw of the constants."""

    shares: tuple[tuple[str, float], ...]  # By name the share of the draws, the largest first

    def share_of(self, name: str) -> float:
        """Return the share of the draws in which one is named first."""
        return dict(self.shares).get(name, 0.0)

    def sentence(self, name: str) -> str:
        """Return what that says of an answer.

        >>> IntervalRobustness((("union", 0.95), ("dense", 0.05))).sentence("union")
        'union wins in 95 % of the band'
        >>> IntervalRobustness((("union", 0.6), ("fp16", 0.4))).sentence("union")
        'undecided between union and fp16 in the band: 60% and 40%'
        """
        share = self.share_of(name)
        if share >= _CERTAIN or len(self.shares) == 1:
            return f"{name} wins in {100 * share:.0f} % of the band"
        (first, one), (second, other) = self.shares[:2]
        return f"undecided between {first} and {second} in the band: {one:.0%} and {other:.0%}"


def interval_robustness(
    rows: Sequence[Row], candidates: Sequence[Candidate], max_error: float | None
) -> IntervalRobustness | None:
    """Return the shares of the draws in which each is named first; None if a time has no measured constants."""
    drawn = {row.reducer: row.band_draws_s for row in rows if row.band is not None}
    if not drawn or any(candidate.name not in drawn for candidate in candidates):
        return None
    draws = min(map(len, drawn.values()))
    winners: Counter[str] = Counter()
    for draw in range(draws):
        times_s = (max(each.time_s + drawn[each.name][draw], 0.0) for each in candidates)
        varied = [replace(each, time_s=time_s) for each, time_s in zip(candidates, times_s, strict=True)]
        winners[choose(varied, max_error).best.name] += 1
    return IntervalRobustness(tuple((name, count / draws) for name, count in winners.most_common()))


def interval_texts(rows: Sequence[Row]) -> dict[str, str]:
    """Return the 90 % interval of each compared time in parentheses, by reducer."""
    texts = {}
    for row in rows:
        if row.band is not None:
            beside_s = judged_time_s(row) - row.time_s.total
            ends = (max(end + beside_s, 0.0) for end in (row.band.low_s, row.band.high_s))
            texts[row.reducer] = f" ({format_interval(*ends)})"
    return texts
