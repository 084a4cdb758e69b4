"""What is timed between processes, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from s2sim.testbed.measured_folder import Kind

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
"""Collectives that are timed, by the names of `s2sim.collectives`."""

# Of these a rank's buffer has a part for each rank.
_IN_PARTS = ("all_gather", "reduce_scatter", "all_to_all")
ITEM_BYTES = 4


@dataclass(frozen=True, slots=True)
class Task:
    """What one row of a table tells of, see `s2sim.testbed.measured.Timed`."""

    what: str
    trace: str
    compute_s: float
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Effort:
    """How often something is repeated."""

    repeats: int = 30  # Most repetitions
    budget_s: float = 2.0  # Seconds of repetitions after which there are no more, once there are three


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured on each testbed, and how thoroughly."""

    # Returns what is to be measured between so many workers, by kind.
    tasks: Callable[[int], Mapping[Kind, Sequence[Task]]]
    effort: Effort
    seed: int = 0  # Of what reducers draw


def collective_task(what: str, size_bytes: int, ranks: int) -> Task:
    """Return a collective of so many bytes of float32, or a few less where a buffer has equal parts.

    >>> collective_task("all_gather", 1024, 3).payload_bytes
    1020
    """
    unit = ITEM_BYTES * (ranks if what in _IN_PARTS else 1)
    return Task(what, "", 0.0, max(size_bytes // unit, 1) * unit)
