"""The fault late-ranks: ranks that come to a collective one after the other instead of together.

Source: A. Faraj, P. Patarasuk, X. Yuan, "A study of process arrival patterns for MPI collective operations", Int. J.
Parallel Programming 36(6), 2008: in real programs some ranks come later than others by more than a collective takes.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.errors import OptionError
from s2sim.options import Time, check_options
from s2sim.simulation.faults.fault import Effect, Fault
from s2sim.units import PS_PER_S, format_seconds


@dataclass(frozen=True, slots=True)
class LateRanks(Fault):
    """Ranks that come evenly one after the other, the first at once and the last by a delay."""

    name: ClassVar[str] = "late-ranks"
    example: ClassVar[str] = "late-ranks:last=1ms,order=descending"
    on_network: ClassVar[bool] = False

    last: Time
    order: Literal["ascending", "descending"] = "ascending"  # By rank

    def __post_init__(self) -> None:
        """Refuse an unknown order, and a delay of nothing."""
        check_options(self, self.name)
        if self.last.ps == 0:
            raise OptionError(f"late-ranks: last={self.last} delays nothing: leave it out")

    def hold_back(self, factors: Floats, late_ps: Ints) -> None:
        """Delay each rank by its share."""
        place = np.arange(len(late_ps), dtype=np.int64)
        place = place if self.order == "ascending" else place[::-1]
        late_ps += self.last.ps * place // max(len(place) - 1, 1)

    def effect_on_work(self, *, works: bool) -> Effect:
        """Return its effect on ranks that run scripts."""
        return Effect(self.text, f"ranks came up to {self.last} late")

    def effect_on_collective(self, ends_ps: Ints, without_ps: Ints) -> Effect:
        """Return its effect on the end of a collective."""
        later = format_seconds((int(ends_ps.max()) - int(without_ps.max())) / PS_PER_S)
        return Effect(self.text, f"ranks came up to {self.last} late: the last one ended {later} later")
