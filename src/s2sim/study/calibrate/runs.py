"""What logs measured, as a calibration takes it: a collective over a number of ranks, launched in one way."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from s2sim.errors import OptionError
from s2sim.study.collective.against import choose_tables
from s2sim.study.measured_logs.nccl_tests import MOST_BYTES, read_nccl_tests
from s2sim.text_files import read_bytes
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.kinds import Kind
    from s2sim.study.calibrate.spec import CalibrateSpec
    from s2sim.study.collective.against import ChosenTables
    from s2sim.study.measured_logs.table import MeasuredRow, MeasuredTable

MOST_RANKS = 2**13
"""Simulating more takes longer than people wait for."""

_MOST_SIZES = 64
# What is beyond is a slip of the pen, as in `s2sim.study.validate.folder`.
_MOST_SIZE_BYTES, _MOST_S = 2**46, 1e6


@dataclass(frozen=True, slots=True)
class Run:
    """What ran: equal ones are predicted alike. In one process all GPUs of a node are launched one after the other."""

    kind: Kind
    workers: int
    one_process: bool


Key: TypeAlias = tuple[Run, int]
"""What is predicted alike: a run and its size in bytes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured time."""

    log: str
    line: int
    run: Run
    size_bytes: int
    measured_s: float

    @property
    def key(self) -> Key:
        """What it is of."""
        return self.run, self.size_bytes


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples of some logs in their order, the libraries that these name, and what was left out or assumed.

    ``origins`` has of each log its name, the SHA-256 of its bytes, and the lines of its tables.
    """

    samples: tuple[Sample, ...]
    origins: tuple[str, ...]
    versions: tuple[str, ...]
    notes: tuple[str, ...]


def read_runs(spec: CalibrateSpec) -> Measured:
    """Return what the logs of a spec measured.

    Raises
    ------
    S2SimError
        Where a log cannot be read, is of something else than was asked for, or does not say what it is of.
    """
    samples: list[Sample] = []
    origins, notes = [], []
    versions: dict[str, None] = {}
    for log in spec.logs:
        found = read_nccl_tests(Path(log))
        chosen = [each for kind in _kinds(spec, found, log) for each in _of_kind(spec, found, log, kind)]
        lines = []
        for each in chosen:
            for table in each.tables:
                rows, left_out = _rows(table)
                run = Run(each.kind, each.workers, (table.gpus_per_thread or 1) > 1)
                samples += (Sample(log, row.line, run, row.size_bytes, row.time_s) for row in rows)
                notes += [f"{log}, table at line {table.line}: {text}" for text in left_out]
                lines.append(table.line)
                if table.library:
                    versions[table.library] = None
        digest = hashlib.sha256(read_bytes(Path(log), MOST_BYTES)).hexdigest()
        origins.append(f"{Path(log).name}, SHA-256 {digest}, tables at lines {', '.join(map(str, sorted(lines)))}")
    if spec.logs and not samples:
        raise OptionError(f"{', '.join(spec.logs)}: no row has both a size and a time")
    return Measured(tuple(samples), tuple(origins), tuple(versions), tuple(notes))


def _kinds(spec: CalibrateSpec, tables: Sequence[MeasuredTable], log: str) -> list[str]:
    if spec.collective is not None:
        return [spec.collective.replace("-", "_")]
    firsts: dict[str | None, MeasuredTable] = {}
    for table in tables:
        firsts.setdefault(table.collective, table)
    if len(firsts) > 1 and None in firsts:
        raise OptionError(f"{log} has tables that name no collective beside others: give --collective")
    return [choose_tables(tables, log, kind, each.ranks or spec.workers or 1).kind for kind, each in firsts.items()]


def _of_kind(spec: CalibrateSpec, tables: Sequence[MeasuredTable], log: str, kind: str) -> list[ChosenTables]:
    counts = {table.ranks for table in tables if table.collective in (None, kind) and table.ranks is not None}
    asked = [spec.workers] if spec.workers is not None or not counts else sorted(counts)
    found = [choose_tables(tables, log, kind, workers) for workers in asked]
    for each in found:
        if not 2 <= each.workers <= MOST_RANKS:
            raise OptionError(f"{log} is of {number_of(each.workers, 'rank')}: give logs of 2 to {MOST_RANKS}")
    return found


def _rows(table: MeasuredTable) -> tuple[list[MeasuredRow], list[str]]:
    """Return the rows to take, and in words what is left out of them."""
    able = [row for row in table.rows if 0 < row.size_bytes <= _MOST_SIZE_BYTES and 0 < row.time_s <= _MOST_S]
    notes = []
    if len(able) < len(table.rows):
        notes.append(f"{number_of(len(table.rows) - len(able), 'row')} left out: no bytes, no time, or beyond reason")
    sizes = sorted({row.size_bytes for row in able})
    if len(sizes) > _MOST_SIZES:
        taken = {sizes[round(place * (len(sizes) - 1) / (_MOST_SIZES - 1))] for place in range(_MOST_SIZES)}
        able = [row for row in able if row.size_bytes in taken]
        notes.append(f"{len(taken)} of {len(sizes)} sizes taken, spread evenly")
    if table.unfinished:
        notes.append(f"{number_of(len(table.unfinished), 'row')} without figures left out")
    return able, notes
