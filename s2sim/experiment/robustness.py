"""With which numbers of workers, and with which mini-batches, a reducer gains 1 % or more of an iteration on dense.

What is exposed of the last bucket is never nothing, so that any gain at all would tell little.
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
from s2sim.reducers.script import Recording
from s2sim.topology.hardware import Gpu
from s2sim.uncertainty.interval import format_interval
from s2sim.units import PS_PER_S

HIGHEST_BATCH = 4096
"""Samples of one GPU: more than memories hold of any model that computes long enough to matter."""


def over_batches(dense: ExecutedRecording, others: dict[str, ExecutedRecording]) -> tuple[CountPays, ...]:
    """Return for each of some reducers with which mini-batches of a GPU it gains that, from 1 to `HIGHEST_BATCH`.

    What was recorded is replayed beside the compute of another mini-batch, in the same buckets. Where a reducer
    gains with two of the least, the largest and the one that was asked for, it is taken to do so between them.
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
        return _is_worthwhile(time_ps(executed, batch), dense_ps[batch])

    found = []
    for name, executed in others.items():
        known = {batch: pays(executed, batch) for batch in sorted({1, own, HIGHEST_BATCH})}
        for low, high in pairwise(list(known)):
            known |= _bracket_change(partial(pays, executed), known, low, high)
        found.append(_to_count_pays(name, "batch", known))
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
                known[count] = _is_worthwhile(own_s, dense_s)
        if len(known) == len(counts):
            found.append(_to_count_pays(name, "workers", known))
    return tuple(found)


def _is_worthwhile(own: float, dense: float) -> bool:
    return own * WORTHWHILE <= dense


def _bracket_change(pays: Callable[[int], bool], known: dict[int, bool], low: int, high: int) -> dict[int, bool]:
    """Return what is known of the two neighbours between which what is known of two numbers changes, if it does."""
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
    """Yield the first and the last number of each stretch with which it pays."""
    for gains, stretch in groupby(counts, key=known.__getitem__):
        if gains:
            first, *others = stretch
            yield first, [first, *others][-1]


def find_sensitive_constants(
    candidates: Sequence[Candidate], executed: Sequence[ExecutedRecording], choice: Choice, max_error: float | None
) -> tuple[Flip, ...]:
    """Return the estimated constants of the GPU with which another choice is made, each at the end where it is.

    Parameters
    ----------
    candidates, executed : sequences of Candidate and Executed
        One a reducer, in one order, as the constants were taken.
    choice : Choice
        What was chosen of them.
    max_error : float or None
        As `choose` takes it.
    """
    scenario = executed[0].scenario
    flips = []
    for constant, value, gpu in _alternative_gpus(scenario.gpu, [one.recording for one in executed]):
        again = replace(scenario, machines=replace(scenario.machines, gpu=gpu))
        times_s: dict[object, float] = {}
        varied = []
        for each, one in zip(candidates, executed, strict=True):
            if each.baseline or each.rejected:
                varied.append(each)
                continue
            # Reducers that leave everything to another have its recordings, and take as long.
            same = (one.timer, *(id(leaving.recording) for leaving in one.bucket_exchanges))
            if same not in times_s:
                times_s[same] = _time_s(replace(one, scenario=again))
            varied.append(replace(each, time_s=times_s[same]))
        best = choice_name(choose(varied, max_error))
        if best != choice_name(choice):
            flips.append(Flip(constant, value, format_constant(scenario.gpu, constant), best))
    return tuple(flips)


def choice_name(choice: Choice) -> str:
    """Return in a word what a choice comes to: an option string, ``dense`` for no compression, or ``undecided``."""
    if choice.decision == "undecided":
        return choice.decision
    return "dense" if choice.best.baseline else choice.best.name


def _time_s(executed: ExecutedRecording) -> float:
    return executed.compared_ps / PS_PER_S


def _alternative_gpus(gpu: Gpu, recordings: Sequence[Recording]) -> Iterator[tuple[str, str, Gpu]]:
    for constant, ends in estimated_ranges(gpu, recordings).items():
        for value in ends:
            yield constant, value, with_constant(gpu, constant, value)


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
    """Return who would be named with each draw; None where some row's time was not made of measured constants."""
    drawn = {row.reducer: row.band_draws_s for row in rows if row.band is not None}
    if not drawn or any(candidate.name not in drawn for candidate in candidates):
        return None
    draws = min(map(len, drawn.values()))
    winners = Counter(
        choose([_with_longer_time(each, drawn[each.name][draw]) for each in candidates], max_error).best.name
        for draw in range(draws)
    )
    return IntervalRobustness(tuple((name, count / draws) for name, count in winners.most_common()))


def interval_texts(rows: Sequence[Row]) -> dict[str, str]:
    """Return the ends of the band around each time that a verdict is about, in parentheses; of those that have one."""
    texts = {}
    for row in rows:
        if row.band is not None:
            beside_s = judged_time_s(row) - row.time_s.total
            ends = (max(end + beside_s, 0.0) for end in (row.band.low_s, row.band.high_s))
            texts[row.reducer] = f" ({format_interval(*ends)})"
    return texts


def _with_longer_time(candidate: Candidate, more_s: float) -> Candidate:
    return replace(candidate, time_s=max(candidate.time_s + more_s, 0.0))
