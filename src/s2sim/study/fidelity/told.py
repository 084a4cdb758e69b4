"""Measured points, each told by the constants that its prediction is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.arrays import Floats, Ints, Mask
    from s2sim.collectives.schedules.per_message import Powers


@dataclass(frozen=True, slots=True)
class Contender:
    """One schedule that may be the fastest.

    ``parts`` are picoseconds that add up to its time, each with the constants that it is proportional to.
    """

    parts: tuple[tuple[float, Powers], ...]

    @property
    def duration_ps(self) -> float:
        """Its time in picoseconds."""
        return sum(part_ps for part_ps, _ in self.parts)


@dataclass(frozen=True, slots=True)
class ToldPoint:
    """A measured size, and the schedules of which the fastest is its prediction."""

    curve: str
    source: str
    size_bytes: int
    measured_s: float
    large: bool
    contenders: tuple[Contender, ...]


class TermModel:
    """Predictions of many points as a function of constants.

    Constants are given as the logarithms of how many times as large they are as where the terms were taken. That is
    exact as long as in each schedule the same is busiest.

    Parameters
    ----------
    points : sequence of ToldPoint
        At least one.
    names : sequence of str
        The constants, n of them; others stay as they are.
    """

    def __init__(self, points: Sequence[ToldPoint], names: Sequence[str]) -> None:
        self.points, self.names = tuple(points), tuple(names)
        column = {name: number for number, name in enumerate(names)}
        picoseconds: list[float] = []
        rows: list[dict[int, float]] = []
        self._contender_starts: list[int] = []
        self._point_starts: list[int] = []
        for point in points:
            self._point_starts.append(len(self._contender_starts))
            for contender in point.contenders:
                self._contender_starts.append(len(picoseconds))
                for powers, part_ps in _merged(contender, column).items():
                    picoseconds.append(part_ps)
                    rows.append(dict(powers))
        self._seconds = np.array(picoseconds) / PS_PER_S
        self._powers = np.zeros((len(rows), len(self.names)))
        for number, row in enumerate(rows):
            for where, power in row.items():
                self._powers[number, where] = power
        self.measured_s = np.array([point.measured_s for point in points])

    @property
    def sources(self) -> list[str]:
        """Whose voices the points are, in order of appearance."""
        return list(dict.fromkeys(point.source for point in self.points))

    def of_source(self, source: str) -> Mask:
        """Return which points are of a source."""
        return np.array([point.source == source for point in self.points])

    def predicted_s(self, logs: Floats) -> Floats:
        """Return the seconds of the fastest schedule of each point."""
        times_s: Floats = np.minimum.reduceat(self._times(logs)[1], self._point_starts)
        return times_s

    def errors(self, logs: Floats) -> Floats:
        """Return ln(predicted/measured) of each point."""
        errors: Floats = np.log(self.predicted_s(logs) / self.measured_s)
        return errors

    def slopes(self, logs: Floats) -> Floats:
        """Return how ln(predicted) of each point grows with each constant, float64 of shape (points, n)."""
        terms_s, times_s = self._times(logs)
        by_contender = np.add.reduceat(terms_s[:, None] * self._powers, self._contender_starts, axis=0)
        fastest = self._fastest(times_s)
        return np.divide(by_contender[fastest], times_s[fastest][:, None])

    def _times(self, logs: Floats) -> tuple[Floats, Floats]:
        terms_s = self._seconds * np.exp(self._powers @ logs)
        return terms_s, np.add.reduceat(terms_s, self._contender_starts)

    def _fastest(self, times_s: Floats) -> Ints:
        ends = [*self._point_starts[1:], len(times_s)]
        firsts = [start + int(times_s[start:end].argmin()) for start, end in zip(self._point_starts, ends, strict=True)]
        return np.array(firsts, np.int64)


def _merged(contender: Contender, column: Mapping[str, int]) -> dict[tuple[tuple[int, int], ...], float]:
    """Return the picoseconds of a contender by the powers of the constants that count."""
    found: dict[tuple[tuple[int, int], ...], float] = {}
    for part_ps, powers in contender.parts:
        key = tuple(sorted((column[name], power) for name, power in powers if name in column))
        found[key] = found.get(key, 0) + part_ps
    return found
