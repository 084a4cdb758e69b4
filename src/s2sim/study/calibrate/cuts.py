"""Times of schedules as functions of constants, where what is busiest changes with these.

The terms of a schedule hold as long as the same is busiest. What is busiest elsewhere takes longer there than what was:
terms that were taken at several values of constants bound a time from below everywhere, each exact where it was taken,
and the highest of them is taken for the time.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

import numpy as np

from s2sim.study.fidelity.told import Contender, TermModel, ToldPoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.arrays import Floats, Ints
    from s2sim.study.calibrate.runs import Key, Sample


class Cuts:
    """The schedules that may run at each size, with the terms that each had at several values of constants."""

    def __init__(self) -> None:
        self._found: dict[Key, dict[str, list[Contender]]] = {}

    def add(self, key: Key, told: Mapping[str, Contender], logs: Mapping[str, float]) -> None:
        """Add schedules by their texts, told where constants are as many times as large as ``logs`` say."""
        schedules = self._found.setdefault(key, {})
        for text, contender in told.items():
            parts = tuple(
                (part_ps / exp(sum(logs.get(name, 0.0) * power for name, power in powers)), powers)
                for part_ps, powers in contender.parts
            )
            schedules.setdefault(text, []).append(Contender(parts))

    def model(self, samples: Sequence[Sample], names: Sequence[str]) -> CutModel:
        """Return the times of samples as a function of some constants."""
        points, numbers = [], []
        schedules = 0
        for sample in samples:
            found = self._found[sample.key]
            numbers += [schedules + place for place, cuts in enumerate(found.values()) for _ in cuts]
            schedules += len(found)
            contenders = tuple(cut for cuts in found.values() for cut in cuts)
            points.append(ToldPoint(sample.log, sample.log, sample.size_bytes, sample.measured_s, False, contenders))
        return CutModel(points, names, np.array(numbers, np.int64))


class CutModel(TermModel):
    """Predictions of points by the fastest schedule, each as slow as the slowest of its cuts.

    Parameters
    ----------
    schedule : int64 array, shape (contenders,)
        Of which schedule each contender is a cut, in the order of the points.
    """

    def __init__(self, points: Sequence[ToldPoint], names: Sequence[str], schedule: Ints) -> None:
        super().__init__(points, names)
        self._schedule = schedule

    def predicted_s(self, logs: Floats) -> Floats:
        """Return the seconds of the fastest schedule of each point."""
        times_s = self._times(logs)[1]
        return np.take(times_s, self._fastest(times_s))

    def _fastest(self, times_s: Floats) -> Ints:
        by_schedule = np.full(int(self._schedule[-1]) + 1, -np.inf)
        np.maximum.at(by_schedule, self._schedule, times_s)
        # A cut below another of its schedule is never the time.
        able_s = np.where(times_s < by_schedule[self._schedule], np.inf, times_s)
        return super()._fastest(able_s)
