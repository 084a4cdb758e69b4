"""Durations as whole picoseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDING_PS = 1e-3
"""What floating-point arithmetic leaves above a whole number, below this, is no part of a duration.

At the usual rates a byte takes a whole number of picoseconds, and some hundred events round a duration of ten
milliseconds by as much.
"""

LONGEST_PS = 2.0**61
"""About 27 days: longer ones would not fit in 64 bits with room to add."""

TOO_LONG = "a transfer would take over 27 days: check its size and the rates of its links"


def whole_ps(durations_ps: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return durations rounded up to whole picoseconds, so that no time falls under its bandwidth lower bound."""
    if len(durations_ps) and not durations_ps.max() < LONGEST_PS:
        raise S2SimError(TOO_LONG)
    whole: NDArray[np.int64] = np.ceil(durations_ps - ROUNDING_PS).astype(np.int64)
    return whole
