"""The numbers of workers, mini-batches and hardware constants with which a choice holds."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, pairwise
from math import inf, sqrt

import numpy as np

from s2sim.experiment import choice as choices
from s2sim.experiment.break_even import pays, search_loads
from s2sim.experiment.execute import ExecutedRecording
from s2sim.experiment.prediction import Prediction
from s2sim.experiment.progress import SILENT, ProgressWatcher, watched
from s2sim.experiment.row_parts import CountPays, Flip
from s2sim.experiment.rows import Row
from s2sim.experiment.scenario.cluster import estimated_ranges, format_constant, with_constant
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.uncertainty.interval import format_interval
from s2sim.units import PS_PER_S

HIGHEST_BATCH = 4096
"""Samples of one GPU: more than memories hold of any model that computes long enough to matter."""


def over_batches(
    predictions: Sequence[Prediction], max_error: float | None, progress: ProgressWatcher = SILENT
) -> tuple[CountPays, ...]:
    """Return by reducer the mini-batches of a GPU, up to `HIGHEST_BATCH` or that of the run, with which it pays.

    None where another mini-batch has other buckets, with measured compute times, and where bytes follow looked-up rows.
    """
    dense = next(each.executed for each in predictions if each.row.baseline)
    training = dense.scenario.training
    scenario, alone = dense.scenario, dense.recording.workers == 1
    if training is None or training.discipline.by_times or training.compute_times_ms or alone:
        return ()
    looks_up = scenario.target is not None and any(layer.most_rows for layer in training.model.layers)

    @cache
    def with_batch(batch: int) -> ReducerScenario:
        other = training.with_batch(batch, scenario, scenario.machines, dense.recording.workers)
        return replace(scenario, training=other)

    @cache
    def dense_ps(batch: int) -> int:
        return replace(dense, scenario=with_batch(batch)).compared_ps

    found = []
    others = [
        each for each in predictions if not (each.row.baseline or (looks_up and not each.recorded.reducer.size_only))
    ]
    for each in watched(progress, "looking for break-even over mini-batches", others):
        doubt = 1.0 if each.row.extrapolated is None else each.row.extrapolated.doubt

        def times_at(batch: float, each: Prediction = each, doubt: float = doubt) -> tuple[float, float]:
            own = replace(each.executed, scenario=with_batch(int(batch)))
            return dense_ps(int(batch)), choices.required_dense(
                own.compared_ps, each.row, doubt, each.executed.replay.total_ps
            )

        highest = max(HIGHEST_BATCH, training.profile.batch)
        gains = {1: False, highest: False}
        if choices.rejected(each.row, max_error) is None:
            gains = _locate_changes(times_at, search_loads(times_at, 1, highest, _middle))
        found.append(_to_count_pays(each.row.reducer, "batch", gains))
    return tuple(found)


def _middle(low: float, high: float) -> float | None:
    """Return a whole number between two, nearest to their geometric mean; None if there is none."""
    middle = min(max(round(sqrt(low * high)), int(low) + 1), int(high) - 1)
    return middle if low < middle < high else None


def _locate_changes(
    times_at: Callable[[float], tuple[float, float]], known: Mapping[float, tuple[float, float]]
) -> dict[int, bool]:
    """Return whether a reducer pays at each number, with all neighbours between which that changes."""
    gains = {int(number): pays(times) for number, times in known.items()}
    for ends in pairwise(list(gains)):
        low, high = ends
        while gains[low] != gains[high] and high - low > 1:
            middle = (low + high) // 2
            gains[middle] = pays(times_at(middle))
            low, high = (middle, high) if gains[middle] == gains[low] else (low, middle)
    return gains


def over_workers(rows: Sequence[Row], max_error: float | None) -> tuple[CountPays, ...]:
    """Return for each reducer except dense the numbers of workers of the run with which it pays."""
    counts = sorted({row.workers for row in rows if row.iteration is not None})
    if len(counts) < 2:
        return ()
    gains: dict[str, dict[int, bool]] = {}
    for count in counts:
        candidates = choices.candidates_of([row for row in rows if row.workers == count], max_error)
        baseline = next(each for each in candidates if each.baseline)
        for each in candidates:
            if not each.baseline:
                gains.setdefault(each.name, {})[count] = each.pays_over(baseline)
    found = {name: _to_count_pays(name, "workers", known) for name, known in gains.items() if len(known) == len(counts)}
    return tuple(replace(each, tried=tuple(counts)) for each in found.values())


def _to_count_pays(name: str, field: str, known: Mapping[int, bool]) -> CountPays:
    counts = sorted(known)
    paying = [list(stretch) for pays, stretch in groupby(counts, key=known.__getitem__) if pays]
    return CountPays(name, field, tuple((each[0], each[-1]) for each in paying), counts[0], counts[-1])


def find_sensitive_constants(
    candidates: Sequence[choices.Candidate], executed: Sequence[ExecutedRecording], max_error: float | None
) -> tuple[Flip, ...]:
    """Return the GPU's estimated constants with another choice at an end of their range than now."""
    scenario, now = executed[0].scenario, choice_name(choices.choose(candidates, max_error))
    baseline_first = sorted(zip(candidates, executed, strict=True), key=lambda pair: not pair[0].baseline)
    own_s, flips = baseline_first[0][0].time_s, []
    ranges = estimated_ranges(scenario.gpu, [each.recording for each in executed])
    for constant, value in ((constant, value) for constant, ends in ranges.items() for value in ends):
        gpu = with_constant(scenario.gpu, constant, value)
        changed = replace(scenario, machines=replace(scenario.machines, gpu=gpu))
        times_s: dict[object, float] = {}
        varied: list[choices.Candidate] = []
        for each, one in baseline_first:
            other = replace(one, scenario=changed)
            least, most = (1.0, 1.0) if each.rejected else work_ratios(one, other)
            if each.rejected or (each.baseline and least == most == 1):
                varied.append(each)
                continue
            # What stays slower than dense changes no choice: with k times the work nothing takes less than k times.
            least_s = one.compared_ps / PS_PER_S * least
            if varied and least_s >= varied[0].time_s and each.time_s >= own_s:
                varied.append(replace(each, time_s=max(each.time_s, least_s)))
                continue
            # Reducers that delegate everything to another have its recordings, and the same time.
            same = (one.timer, *(id(leaving.recording) for leaving in one.bucket_exchanges))
            if same not in times_s:
                times_s[same] = (one if least == most == 1 else other).compared_ps / PS_PER_S
            varied.append(replace(each, time_s=times_s[same]))
        best = choice_name(choices.choose(varied, max_error))
        if best != now:
            flips.append(Flip(constant, value, format_constant(scenario.gpu, constant), best))
    return tuple(flips)


def work_ratios(one: ExecutedRecording, other: ExecutedRecording) -> tuple[float, float]:
    """Return how many times as long pieces of work take in another execution, at least but no more than 1, at most."""
    here, there = one.scenario.gpu, other.scenario.gpu
    shared = here.multiprocessors, here.memory_bandwidth_Bps  # With the kernels of collectives
    if shared != (there.multiprocessors, there.memory_bandwidth_Bps):
        return 0.0, inf
    own_ps, other_ps = one.work_durations_ps(), other.work_durations_ps()
    ratios = np.divide(other_ps, own_ps, out=np.where(other_ps > 0, inf, 1.0), where=own_ps > 0)
    return float(ratios.min(initial=1.0)), float(ratios.max(initial=1.0))


def choice_name(choice: choices.Choice) -> str:
    """Return the option string of a choice, ``dense`` for no compression, or ``undecided``."""
    if choice.decision == "undecided":
        return choice.decision
    return "dense" if choice.best.baseline else choice.best.name


# Answers of less are for a measurement to decide.
_FEW = 10
_LIKELY, _SURE, _ALMOST_ALL = 0.5, 0.8, 0.99


@dataclass(frozen=True, slots=True)
class IntervalRobustness:
    """Who would be named first in each draw of what predicted times are off by."""

    shares: tuple[tuple[str, float], ...]  # By name the share of the draws, the largest first

    def share_of(self, name: str) -> float:
        """Return the share of the draws in which one is named first."""
        return dict(self.shares).get(name, 0.0)

    def decides(self, name: str) -> bool:
        """Return whether one is named first in so many draws that no measurement has to tell."""
        return self.share_of(name) >= _SURE

    def qualifier(self, name: str) -> str:
        """Return what an answer that names one begins with, where that is not sure; empty where it is.

        >>> IntervalRobustness((("union", 0.6), ("fp16", 0.4))).qualifier("union")
        'Probably '
        """
        first, share = self.shares[0]
        if first == name and share >= _LIKELY:
            return "" if self.decides(name) else "Probably "
        return f"{'Too close to decide; by' if share < _SURE else 'By'} predicted times "

    def sentence(self, name: str, decision: choices.Decision = "use") -> str:
        """Return what that says of an answer, or of leaving it undecided, where ``name`` is that of the baseline.

        >>> IntervalRobustness((("union", 0.95), ("dense", 0.05))).sentence("union")
        'as far as the network goes, this is right with a probability of 95%'
        >>> IntervalRobustness((("union", 0.6), ("fp16", 0.4))).sentence("union")
        'union is best with a probability of 60%, fp16 of 40%: too close to decide without a measurement'
        >>> IntervalRobustness((("dense", 0.7), ("fp16", 0.3))).sentence("dense", "undecided")
        'compressing pays with a probability of 30%, most often with fp16: too close to decide without a measurement'
        """
        share = self.share_of(name)
        if self.decides(name):
            what = "it stays so" if decision == "undecided" else "this is right"
            return f"as far as the network goes, {what} with a probability {_probability(share)}"
        close = ": too close to decide without a measurement" if self.shares[0][1] < _SURE else ""
        if decision != "use":
            other = next(each for each, _ in self.shares if each != name)
            return f"compressing pays with a probability {_probability(1 - share)}, most often with {other}{close}"
        first, rest = ", ".join(f"{each} {_probability(one)}" for each, one in self.shares[:2]).split(" ", 1)
        return f"{first} is best with a probability {rest}{close}"


def _probability(share: float) -> str:
    return f"above {_ALMOST_ALL:.0%}" if share > _ALMOST_ALL else f"of {share:.0%}"


def interval_robustness(
    rows: Sequence[Row], candidates: Sequence[choices.Candidate], max_error: float | None
) -> IntervalRobustness | None:
    """Return the shares of the draws in which each is named first; None if a time has no draws."""
    drawn = {row.reducer: row.band_draws_s for row in rows if row.band_draws_s}
    if not drawn or any(candidate.name not in drawn for candidate in candidates):
        return None
    draws = min(map(len, drawn.values()))
    able = [each for each in candidates if each.rejected is None or each.baseline]
    times_s = np.maximum([each.time_s + np.array(drawn[each.name][:draws]) for each in able], 0.0)
    # Draws in which all comparisons end alike have one choice; of many candidates hardly any do.
    compared = choices.compare_times(able, times_s) if len(able) <= _FEW else np.arange(draws)[:, None]
    _, first, counts = np.unique(compared, axis=0, return_index=True, return_counts=True)
    winners: Counter[str] = Counter()
    for draw, count in sorted(zip(first.tolist(), counts.tolist(), strict=True)):
        pairs = zip(able, times_s[:, draw].tolist(), strict=True)
        varied = [replace(each, time_s=time_s) for each, time_s in pairs]
        winners[choices.choose(varied, max_error).best.name] += count
    return IntervalRobustness(tuple((name, count / draws) for name, count in winners.most_common()))


def interval_texts(rows: Sequence[Row]) -> dict[str, str]:
    """Return the 90 % interval of each compared time in parentheses, by reducer."""
    texts = {}
    for row in rows:
        if row.band is not None:
            beside_s = choices.judged_time_s(row) - (row.time_s.total if row.iteration_s is None else row.iteration_s)
            low_s, high_s = (max(end + beside_s, 0.0) for end in (row.band.low_s, row.band.high_s))
            texts[row.reducer] = f" ({format_interval(low_s, choices.judged_time_s(row), high_s)})"
    return {name: text for name, text in texts.items() if " to " in text}
