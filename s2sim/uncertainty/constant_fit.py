"""The constants of a library that measured curves tell, what they are, and what a fit pulls them to."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.overheads import Powers
from s2sim.collectives.timing.terms import schedule_terms
from s2sim.collectives.timing.timer import TimedSchedule
from s2sim.errors import S2SimError
from s2sim.files import data_directory, read_toml
from s2sim.libraries.constants import load_constants
from s2sim.topology.cluster import Cluster
from s2sim.topology.quantity import Quantity, read_quantity
from s2sim.units import PS_PER_S, parse_rate_Bps, parse_time_ps

FITS = "fits"
_SHARE = "share"
# Libraries between GPUs, the ancestor first; others send between hosts.
_SENDERS = ("nccl", "rccl")
# Rings over many kinds of links reach this share of their rate, or so.
_USUAL_SHARE = 0.92
# A constant that is e times its prior costs as much as a curve that is off by so much.
_PULL_OF_LATENCIES, _PULL_OF_SHARES = 0.2, 0.3


@dataclass(frozen=True, slots=True)
class MeasuredConstant:
    """A constant of a library that was measured."""

    name: str  # As in the file of that library, with dots
    library: str
    value: float  # What is shipped
    unit: str  # ``s``, ``B/s`` or ``share``
    kind: str
    source: str  # Of the value
    prior: float  # What a fit pulls it to
    prior_source: str

    @property
    def owned(self) -> str:
        """Both names."""
        return f"{self.library}:{self.name}"

    @property
    def is_share(self) -> bool:
        """Whether it is a share of a rate, at most 1."""
        return self.unit == _SHARE


def qualified_name(library: str, name: str) -> str:
    """Return the name of a library's constant with the library that has it: a descendant has those of its ancestor.

    >>> qualified_name("rccl", "network.roce.share"), qualified_name("rccl", "launch.collective")
    ('nccl:network.roce.share', 'rccl:launch.collective')
    """
    if library not in _SENDERS:
        return f"{library}:{name}"
    ancestor = _SENDERS[0]
    inherited = _known(library).get(name) == _known(ancestor).get(name)
    return f"{ancestor if inherited else library}:{name}"


def fittable_library_constants(told: Collection[str]) -> tuple[MeasuredConstant, ...]:
    """Return the constants among ``told``, named by `qualified_name`, whose kind in their files is "measured"."""
    found = []
    for text in sorted(told):
        library, _, name = text.partition(":")
        quantity = _known(library).get(name)
        if quantity is None or quantity.kind != "measured":
            continue
        value, unit = _number(quantity)
        prior = _priors(library).get(name)
        if prior is not None:
            at, why = _number(prior)[0], prior.source
        elif unit != _SHARE:
            at, why = value, "the value itself: nothing else is known of it"
        else:
            at, why = _USUAL_SHARE, "what rings over most links reach"
        found.append(MeasuredConstant(name, library, value, unit, quantity.kind, quantity.source, at, why))
    return tuple(found)


def clear_constant_cache() -> None:
    """Read files anew, as after they were written."""
    for read in (_known, load_constants):
        read.cache_clear()


@cache
def _known(library: str) -> dict[str, Quantity]:
    return {quantity.field: quantity for quantity in load_constants(library).quantities}


@cache
def _priors(library: str) -> dict[str, Quantity]:
    path = data_directory("libraries") / FITS / "priors.toml"
    table = read_toml(path, S2SimError).get(library, {})
    return {name: read_quantity(raw, name, path.name) for name, raw in table.items()}


def _number(quantity: Quantity) -> tuple[float, str]:
    if not isinstance(quantity.value, str):
        return float(quantity.value), _SHARE
    if "B/s" in quantity.value or "bps" in quantity.value:
        return parse_rate_Bps(quantity.value), "B/s"
    return parse_time_ps(quantity.value) / PS_PER_S, "s"


@dataclass(frozen=True, slots=True)
class CandidateSchedule:
    """A schedule that may be the fastest; ``parts`` add up to its picoseconds, with the constants of each."""

    parts: tuple[tuple[float, Powers], ...]

    @property
    def duration_ps(self) -> float:
        """Its time in picoseconds."""
        return sum(part_ps for part_ps, _ in self.parts)


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """A measured size, and the schedules of which the fastest is its prediction."""

    curve: str
    source: str
    size_bytes: int
    measured_s: float
    large: bool
    candidates: tuple[CandidateSchedule, ...]


class TermModel:
    """Predictions of many points as a function of constants.

    Constants are given as the logarithms of how many times as large they are as where the terms were taken. That is
    exact as long as in each schedule the same is busiest. There is at least one point; ``names`` are the n constants,
    and others stay as they are.
    """

    def __init__(self, points: Sequence[CalibrationPoint], names: Sequence[str]) -> None:
        self.points, self.names = tuple(points), tuple(names)
        picoseconds: list[float] = []
        rows: list[list[int]] = []
        self._contender_starts: list[int] = []
        self._point_starts: list[int] = []
        for point in points:
            self._point_starts.append(len(self._contender_starts))
            for contender in point.candidates:
                self._contender_starts.append(len(picoseconds))
                # Parts that are proportional to the same powers of the constants are one.
                terms: dict[tuple[int, ...], float] = {}
                for part_ps, powers in contender.parts:
                    power_of = dict(powers)
                    row = tuple(power_of.get(name, 0) for name in names)
                    terms[row] = terms.get(row, 0) + part_ps
                picoseconds += terms.values()
                rows += map(list, terms)
        self._seconds = np.array(picoseconds) / PS_PER_S
        self._powers = np.array(rows, np.float64).reshape(-1, len(names))
        self.measured_s = np.array([point.measured_s for point in points])

    def of_source(self, source: str) -> Mask:
        """Return which points are of a source."""
        return np.array([point.source == source for point in self.points])

    def predicted_s(self, logs: Floats) -> Floats:
        """Return the seconds of the fastest schedule of each point."""
        return np.minimum.reduceat(self._times(logs)[1], self._point_starts)

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


def candidate_of(timed: TimedSchedule, cluster: Cluster, library: str = "", in_a_row: int = 1) -> CandidateSchedule:
    """Return a schedule's time over ``in_a_row`` as terms of constants, of a library by `qualified_name`."""
    parts = []
    for term in schedule_terms(timed, cluster):
        named = ((qualified_name(library, name) if library else name, power) for name, power in term.constants)
        parts.append((term.ps / in_a_row, tuple(named)))
    return CandidateSchedule(tuple(parts))


# Errors above it count by their size, not by their square: a mechanism that is missing must not bend constants.
_ROBUST = 0.05
_MAX_STEPS = 40
_MAX_LOG_STEP = 2.5


@dataclass(frozen=True, slots=True)
class FitRules:
    """What a fit holds to."""

    # prior, highest: what constants are pulled to, and where they end, as logarithms of how many times as large they
    # are as now
    prior: Floats
    highest: Floats
    pull: Floats  # How strongly each is pulled


def fit_rules(constants: Sequence[MeasuredConstant]) -> FitRules:
    """Return the rules of a fit of library constants: each is pulled to its prior, and shares end at 1."""
    prior = np.log([each.prior / each.value for each in constants])
    highest = np.array([-np.log(each.value) if each.is_share else np.inf for each in constants])
    pull = np.array([_PULL_OF_SHARES if each.is_share else _PULL_OF_LATENCIES for each in constants])
    return FitRules(prior, highest, pull)


def point_weights(model: TermModel) -> Floats:
    """Return the weight of each point: a source has one voice, shared by its curves, and they by their sizes.

    Large and small sizes of a curve weigh the same. Several curves of a source have the square root of their number:
    they tell more than one would, and less than as many sources.
    """
    halves = Counter((point.curve, point.large) for point in model.points)
    curves = Counter(source for source, _ in {(point.source, point.curve) for point in model.points})
    return np.array([0.5 / halves[one.curve, one.large] / np.sqrt(curves[one.source]) for one in model.points])


def fit(model: TermModel, rules: FitRules, weights: Floats) -> Floats:
    """Return the logarithms of the constants over those now, by least squares of ln(predicted/measured) and pulls."""
    from scipy.optimize import least_squares

    chosen = np.flatnonzero(weights)
    root = np.sqrt(weights[chosen])

    def residuals(logs: Floats) -> Floats:
        errors = model.errors(logs)[chosen]
        return np.concatenate([root * errors * _huber_weights(errors)[0], rules.pull * (logs - rules.prior)])

    def slopes(logs: Floats) -> Floats:
        tamed, bent = _huber_weights(model.errors(logs)[chosen])
        of_points = (root / (bent * tamed))[:, None] * model.slopes(logs)[chosen]
        return np.concatenate([of_points, np.diag(rules.pull)])

    lowest = np.full(len(rules.prior), -_MAX_LOG_STEP)
    highest = np.maximum(np.minimum(rules.highest, _MAX_LOG_STEP), 1e-9)
    start = np.clip(np.zeros(len(lowest)), lowest, highest - 1e-12)
    found = least_squares(residuals, start, slopes, bounds=(lowest, highest), max_nfev=_MAX_STEPS, x_scale=1.0)
    logs: Floats = found.x
    return logs


def _huber_weights(errors: Floats) -> tuple[Floats, Floats]:
    """Return what errors are multiplied by so that their squares grow as pseudo-Huber, and sqrt(1 + (e/s)^2)."""
    bent = np.sqrt(1 + (errors / _ROBUST) ** 2)
    return np.sqrt(2 / (1 + bent)), bent


def leave_one_out(model: TermModel, rules: FitRules, weights: Floats, sources: Sequence[str]) -> dict[str, Floats]:
    """Return for each source the constants that fit best without it."""
    return {source: fit(model, rules, np.where(model.of_source(source), 0.0, weights)) for source in sources}


def each_at_prior(model: TermModel, rules: FitRules, weights: Floats, logs: Floats) -> Floats:
    """Return the constants of a fit if one of them stayed at its prior and the others made up for it, to first order.

    ``logs`` are those of the fit, float64 of shape (n,). Row i of the result, of shape (n, n), has constant i there.
    """
    bent = _huber_weights(model.errors(logs))[1]
    slopes = model.slopes(logs)
    towards = np.linalg.inv(slopes.T @ (slopes * (weights / bent)[:, None]) + np.diag(rules.pull**2))
    moved: Floats = logs + towards * ((rules.prior - logs) / np.diag(towards))[:, None]
    return np.minimum(moved, np.maximum(rules.highest, 0.0))
