"""Samples of logs, and times of their schedules as functions of constants.

The terms of a schedule hold while the same resource is busiest, and bound its time from below elsewhere: the highest of
the terms at several values of constants is taken for the time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from math import exp
from pathlib import Path
from typing import TypeAlias

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import make_demand
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError
from s2sim.experiment.scenario.cluster import Scenario, resolve_cluster
from s2sim.files import read_bytes
from s2sim.libraries.constants import ConstantOverrides, common_version
from s2sim.libraries.lowering import choose_library
from s2sim.libraries.nccl import NcclProfile
from s2sim.traffic.log_table import MeasuredRow, MeasuredTable
from s2sim.traffic.measured_files import read_measured
from s2sim.traffic.nccl_tests import MAX_BYTES
from s2sim.uncertainty.constant_fit import CalibrationPoint, CandidateSchedule, TermModel, candidate_of
from s2sim.units import PS_PER_S, format_number_of
from s2sim.validation.calibrate_spec import CalibrateSpec
from s2sim.validation.compare_log import ChosenTables, check_bus_factors, choose_tables
from s2sim.validation.compare_log_result import contradictions, table_notes

# A schedule slower than the fastest by this factor is not the fastest with fitted constants either.
_CANDIDATE_FACTOR = 3.0
# Simulating more takes longer than people wait for.
MAX_RANKS, _MAX_SIZES = 2**13, 64
_choose = partial(choose_tables, ask="--collective")
# What is beyond is a slip of the pen, as in `s2sim.validation.curve`.
_MAX_SIZE_BYTES, _MAX_S = 2**46, 1e6


class ScheduleLinearisations:
    """The schedules that may run at each size, with the terms that each had at several values of constants."""

    def __init__(self) -> None:
        self._found: dict[Key, dict[str, list[CandidateSchedule]]] = {}

    def add(self, key: Key, candidates: Mapping[str, CandidateSchedule], logs: Mapping[str, float]) -> None:
        """Add candidates by their texts, expanded at constants that are exp(``logs``) times the shipped ones."""
        schedules = self._found.setdefault(key, {})
        for text, candidate in candidates.items():
            parts = tuple(
                (part_ps / exp(sum(logs.get(name, 0.0) * power for name, power in powers)), powers)
                for part_ps, powers in candidate.parts
            )
            schedules.setdefault(text, []).append(CandidateSchedule(parts))

    def model(self, samples: Sequence[Sample], names: Sequence[str]) -> LinearisedModel:
        """Return the times of samples as a function of some constants."""
        points: list[CalibrationPoint] = []
        cuts_of: list[int] = []
        for sample in samples:
            schedules = self._found[sample.key].values()
            cuts_of += map(len, schedules)
            of = sample.log, sample.log, sample.size_bytes, sample.measured_s, False
            points.append(CalibrationPoint(*of, tuple(chain.from_iterable(schedules))))
        return LinearisedModel(points, names, np.repeat(np.arange(len(cuts_of)), cuts_of))


class LinearisedModel(TermModel):
    """Predictions of points by their fastest schedule, as slow as its slowest cut; ``schedule``: int64, of each cut."""

    def __init__(self, points: Sequence[CalibrationPoint], names: Sequence[str], schedule: Ints) -> None:
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
        return super()._fastest(np.where(times_s < by_schedule[self._schedule], np.inf, times_s))


def make_predictor(spec: CalibrateSpec, libraries: Collection[str] = ()) -> MachinePredictor:
    """Return the predictor of a spec's machine and the version named; `OptionError` without constants to fit."""
    named = {text.split()[0].lower() for text in libraries}
    text = spec.library or (named.pop() if len(named) == 1 else "nccl")
    library = choose_library(text)
    if not isinstance(library.measured, NcclProfile):
        raise OptionError(f"--library {text} has no constants that are fitted: nccl and rccl have")
    if library.calibration is not None:
        raise OptionError(f"--library {text} is fitted already: give {library.name}")
    return MachinePredictor(resolve_cluster(spec), replace(library.measured, version=common_version(libraries)))


class MachinePredictor:
    """Predicts collectives on a machine, with overrides of a library's shipped constants."""

    def __init__(self, scenario: Scenario, profile: NcclProfile) -> None:
        self._profile, self._timer_of = profile, cache(scenario.timer)
        # Whose constants hold, the name of the machine, and the machine with so many ranks
        self.library, self.topology, self.cluster = profile.library, scenario.shape.name, scenario.cluster

    def nodes(self, workers: int) -> int:
        """Return the number of nodes of ``workers`` ranks."""
        return len(np.unique(self.cluster(workers).node_of_rank[:workers]))

    def time_s(self, run: MeasuredRun, size_bytes: int, own: ConstantOverrides) -> float:
        """Return the predicted time in seconds of a size as nccl-tests counts it."""
        return self._timer(run, own).time(make_demand(run.kind, size_bytes, run.workers)).duration_ps / PS_PER_S

    def candidates(self, run: MeasuredRun, size_bytes: int, own: ConstantOverrides) -> dict[str, CandidateSchedule]:
        """Return the schedules that may be fastest with similar constants, by text; the first is fastest now."""
        timer, demand = self._timer(run, own), make_demand(run.kind, size_bytes, run.workers)
        found = timer.candidates(demand, _CANDIDATE_FACTOR)
        return {timed.schedule.text: candidate_of(timed, timer.cluster) for timed in found}

    def _timer(self, run: MeasuredRun, own: ConstantOverrides) -> Timer:
        profile = replace(self._profile, one_process=run.one_process or self._profile.one_process, own=own)
        return self._timer_of(run.workers).with_profile(profile)


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The collective of a log; with ``one_process`` the GPUs of a node are launched sequentially."""

    kind: Kind
    workers: int
    one_process: bool


Key: TypeAlias = tuple[MeasuredRun, int]
"""A run and its size in bytes, with one prediction."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured time."""

    log: str
    line: int
    run: MeasuredRun
    size_bytes: int
    measured_s: float

    @property
    def key(self) -> Key:
        """What it is of."""
        return self.run, self.size_bytes


@dataclass(frozen=True, slots=True)
class LogMeasurements:
    """Samples of some logs in their order."""

    samples: tuple[Sample, ...]
    tables: tuple[ChosenTables, ...]
    origins: tuple[str, ...]  # Of each log its name, the SHA-256 of its bytes, and the lines of its tables
    versions: tuple[str, ...]  # Libraries that the logs name
    notes: tuple[str, ...]  # What was left out

    def notes_on(self, machine: MachinePredictor) -> Iterator[str]:
        """Yield what logs lack or what else to know of them; `OptionError` where they contradict a machine."""
        for of, table in ((chosen, table) for chosen in self.tables for table in chosen.tables):
            cluster = machine.cluster(of.workers)
            for text in contradictions(of.kind, table, of.workers, cluster):
                raise OptionError(f"{of.log}: {text}")
            found = table_notes(of.kind, of.workers, machine.library, table, cluster)
            yield from (f"{of.log}: {text}" for text in found)


def read_runs(spec: CalibrateSpec) -> LogMeasurements:
    """Return the measurements in a spec's logs; `S2SimError` for one unreadable, or not of the asked collective."""
    samples: list[Sample] = []
    every: list[ChosenTables] = []
    origins, notes = [], []
    versions: list[str] = []
    for log in spec.logs:
        found = read_measured(Path(log))
        chosen = [each for kind in _choose_kinds(spec, found, log) for each in _choose_tables(spec, found, log, kind)]
        every += chosen
        lines = []
        for of, table in ((tables, table) for tables in chosen for table in tables.tables):
            rows, left_out = _usable_rows(table)
            run = MeasuredRun(of.kind, of.workers, (table.gpus_per_thread or 1) > 1)
            samples += (Sample(log, row.line, run, row.size_bytes, row.time_s) for row in rows)
            notes += [f"{log}, table at line {table.line}: {text}" for text in left_out]
            lines.append(table.line)
            versions += filter(None, [table.library])
        digest = hashlib.sha256(read_bytes(Path(log), MAX_BYTES)).hexdigest()
        origins.append(f"{Path(log).name}, SHA-256 {digest}, tables at lines {', '.join(map(str, sorted(lines)))}")
    if spec.logs and not samples:
        raise OptionError(f"{', '.join(spec.logs)}: no row has both a size and a time")
    return LogMeasurements(tuple(samples), tuple(every), tuple(origins), tuple(dict.fromkeys(versions)), tuple(notes))


def _choose_kinds(spec: CalibrateSpec, tables: Sequence[MeasuredTable], log: str) -> list[str]:
    if spec.collective is not None:
        return [spec.collective.replace("-", "_")]
    firsts: dict[str | None, MeasuredTable] = {}
    for table in tables:
        firsts.setdefault(table.collective, table)
    if len(firsts) > 1 and None in firsts:
        raise OptionError(f"{log} has tables that name no collective beside others: give --collective")
    return [_choose(tables, log, kind, each.ranks or spec.workers or 1).kind for kind, each in firsts.items()]


def _choose_tables(spec: CalibrateSpec, tables: Sequence[MeasuredTable], log: str, kind: str) -> list[ChosenTables]:
    counts = {table.ranks for table in tables if table.collective in (None, kind) and table.ranks is not None}
    asked = [spec.workers] if spec.workers is not None or not counts else sorted(counts)
    found = [_choose(tables, log, kind, workers) for workers in asked]
    for each in found:
        if not 2 <= each.workers <= MAX_RANKS:
            raise OptionError(f"{log} is of {format_number_of(each.workers, 'rank')}: give logs of 2 to {MAX_RANKS}")
        check_bus_factors(each)
    return found


def _usable_rows(table: MeasuredTable) -> tuple[list[MeasuredRow], list[str]]:
    able = [row for row in table.timed if row.size_bytes <= _MAX_SIZE_BYTES and row.time_s <= _MAX_S]
    notes, late = [], table.hiccups
    if unable := len(table.rows) - len(able):
        notes.append(f"{format_number_of(unable, 'row')} left out: no bytes, no time, or beyond reason")
    able = [row for row in able if row.line not in late]
    if len(sizes := sorted({row.size_bytes for row in able})) > _MAX_SIZES:
        taken = {sizes[round(place * (len(sizes) - 1) / (_MAX_SIZES - 1))] for place in range(_MAX_SIZES)}
        able = [row for row in able if row.size_bytes in taken]
        notes.append(f"{len(taken)} of {len(sizes)} sizes taken, spread evenly")
    return able, notes
