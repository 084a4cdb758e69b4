"""Ranks that faults hold back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats, Ints
    from s2sim.replay.faults.fault import Fault


def held_back(faults: Sequence[Fault], ranks: int) -> tuple[Floats, Ints]:
    """Return how much longer the GPU work of each rank takes, and by how many picoseconds each comes later."""
    factors, late_ps = np.ones(ranks), np.zeros(ranks, np.int64)
    for fault in faults:
        fault.hold_back(factors, late_ps)
    return factors, late_ps


def arrivals_ps(faults: Sequence[Fault], ranks: int, where: str) -> Ints:
    """Return by how much each rank comes later where nothing but delays can slow one, int64 picoseconds.

    `OptionError` for slow GPU work, of which there is none ``where`` this is asked.
    """
    for fault in faults:
        if (held_back([fault], ranks)[0] > 1).any():
            raise OptionError(
                f"{fault.text} slows GPU work, and {where} has none: give delay= for a rank that comes late"
            )
    return held_back(faults, ranks)[1]
