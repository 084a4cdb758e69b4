"""On which overlap a verdict on iterations rests, and what of dense's communication hides behind compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.study.compare.choice import WORTHWHILE
from s2sim.units import format_seconds
from s2sim.words import number_of

if TYPE_CHECKING:
    from s2sim.study.measuring.result import Row

# A share that is told in whole percents is all from here on.
_ALL = 0.995


def overlap_text(dense: Row, compute: str | None) -> str | None:
    """Return what runs beside what, and on what compute it rests; None where only communication is compared.

    Parameters
    ----------
    dense : Row
        Of the reducer that others are compared with.
    compute : str or None
        Whose compute it is, where that was simulated.
    """
    if dense.iteration is not None:
        iteration = dense.iteration
        streams = ", codec beside compute" if iteration.streams > 1 else ""
        whose = "" if compute is None else f", {compute}"
        return f"{iteration.discipline} in {number_of(iteration.buckets, 'bucket')}{streams}{whose}"
    if dense.iteration_s is None:
        return None
    return f"{format_seconds(dense.iteration_s - dense.time_s.total)} of compute without overlap"


def hidden_text(dense: Row, behind: str) -> str | None:
    """Return how much of dense's communication hides behind what; None where nothing does."""
    if dense.iteration is None or not dense.iteration.hidden_communication:
        return None
    share = dense.iteration.hidden_share
    percent = 100 if share >= _ALL else min(99, max(1, round(100 * share)))
    return f"dense hides {percent}% of its communication behind {behind}"


def left_to_gain(dense: Row) -> float:
    """Return the share of an iteration of dense in which communication is exposed; 1 where that is not simulated."""
    if dense.iteration is None or not dense.iteration.total_s:
        return 1.0
    return (dense.iteration.exposed_communication + dense.iteration.waiting) / dense.iteration.total_s


def cannot_be_beaten(dense: Row) -> bool:
    """Return whether so little of dense's communication is exposed that nothing could gain by sending less."""
    return left_to_gain(dense) < WORTHWHILE - 1
