"""Bandwidth lower bounds: what no algorithm can beat on a topology (DESIGN law 4)."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.collectives.schedule import Demand
    from s2sim.topology.cuts import Cuts


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The time that bandwidth alone forces.

    Attributes
    ----------
    seconds : float
        No schedule is faster.
    derivation : str
        The cut or partition that forces it.
    """

    seconds: float
    derivation: str


def _bytes_by_group(demand: Demand, group_of_rank: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    sizes = np.asarray(demand.elements, np.int64) * demand.itemsize
    return np.bincount(group_of_rank, sizes, groups).astype(np.int64)


def lower_bound(demands: Sequence[Demand], cuts: Cuts) -> LowerBound:
    """Return the bound for collectives that run one after another or at once, by the largest of all cuts.

    Over every cut the bytes of all of them are added. An all-reduce of D bytes moves at least D out of and D into every
    set of ranks, and 2(g-1)·D out of all groups of any partition into g together, unless a switch reduces. An
    all-gather moves each set's own bytes out of it and all others into it.
    """
    best = LowerBound(0.0, "nothing has to leave a rank")
    for family in cuts.families:
        count = family.groups
        out, into = np.zeros((2, count))
        together_out = together_in = 0.0
        for demand in demands:
            if demand.kind == "all_reduce":
                out += demand.buffer_bytes
                into += demand.buffer_bytes
                together_out += 2 * (count - 1) * demand.buffer_bytes
                together_in += 2 * (count - 1) * demand.buffer_bytes
            else:
                own = _bytes_by_group(demand, family.group_of_rank, count)
                out += own
                into += own.sum() - own
                together_in += float((own.sum() - own).sum())
        for seconds, text in (
            (float((out / family.egress_Bps).max()), f"bytes out of one of {count} {family.name}s"),
            (float((into / family.ingress_Bps).max()), f"bytes into one of {count} {family.name}s"),
            (together_out / float(family.egress_Bps.sum()), f"bytes out of all {count} {family.name}s"),
            (together_in / float(family.ingress_Bps.sum()), f"bytes into all {count} {family.name}s"),
        ):
            # Rounded down to the picosecond, as times are rounded up.
            whole = floor(seconds * PS_PER_S) / PS_PER_S
            if whole > best.seconds:
                best = LowerBound(whole, f"{text} over the capacity of their links")
    return best
