"""Durations as whole picoseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError
from s2sim.network.flights import LONGEST_PS, ROUNDING_PS, TOO_LONG

if TYPE_CHECKING:
    from numpy.typing import NDArray


def whole_ps(durations_ps: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return durations rounded up to whole picoseconds, so that no time falls under its bandwidth lower bound."""
    if len(durations_ps) and not durations_ps.max() < LONGEST_PS:
        raise S2SimError(TOO_LONG)
    whole: NDArray[np.int64] = np.ceil(durations_ps - ROUNDING_PS).astype(np.int64)
    return whole
