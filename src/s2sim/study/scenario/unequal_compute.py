"""How much longer each rank computes in each iteration: drawn by a distribution, or as somebody has measured it."""

from __future__ import annotations

import csv
import io
from math import isfinite, log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError
from s2sim.seeds import named_generator
from s2sim.text_files import read_text, user_path

if TYPE_CHECKING:
    from s2sim.arrays import Floats

_SHOWN = 40
# Milliseconds: beyond is a slip of the pen.
_MOST_MS = 1e9


def drawn(iterations: int, ranks: int, cv: float, seed: int) -> Floats:
    """Return factors of mean 1, float64 of shape (iterations, ranks), whose standard deviation is ``cv``; lognormal."""
    if not cv:
        return np.ones((iterations, ranks))
    sigma = sqrt(log(1 + cv**2))
    draws = named_generator(seed, "compute").standard_normal((iterations, ranks))
    return np.exp(sigma * draws - sigma**2 / 2)


def as_measured(times_ms: tuple[tuple[float, ...], ...], iterations: int, ranks: int, stated_ms: float) -> Floats:
    """Return measured times over what is stated, float64 of shape (iterations, ranks), each in turn where too few."""
    times = np.array(times_ms)
    rows, columns = np.arange(iterations) % times.shape[0], np.arange(ranks) % times.shape[1]
    return times[np.ix_(rows, columns)] / stated_ms


def read_compute_times(text: str) -> tuple[tuple[float, ...], ...]:
    """Return the compute times in milliseconds of a CSV file: a row an iteration, a column a rank."""
    path = user_path(text, S2SimError)
    rows: list[tuple[float, ...]] = []
    reader = csv.reader(io.StringIO(read_text(path)))
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{path.name}, row {reader.line_num}"
        rows.append(tuple(_time_ms(cell, where) for cell in cells))
        if len(rows[-1]) != len(rows[0]):
            raise S2SimError(f"{where}: it has {len(rows[-1])} ranks and the first row {len(rows[0])}")
    if not rows:
        raise S2SimError(f"{path.name} has no row: write a line an iteration, a time in ms a rank, separated by commas")
    return tuple(rows)


def _time_ms(cell: str, where: str) -> float:
    try:
        time_ms = float(cell)
    except ValueError:
        time_ms = float("nan")
    if not isfinite(time_ms) or not 0 < time_ms <= _MOST_MS:
        raise S2SimError(f"{where}: {cell.strip()[:_SHOWN]!r} is no time in milliseconds above 0")
    return time_ms
