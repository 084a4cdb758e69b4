"""A collective that all data-parallel groups do at once, on a cluster."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.collectives.timing.groups import GroupsTimer
from s2sim.errors import OptionError, S2SimWarning
from s2sim.study.scenario.groups import parse_groups, timer_of_groups
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.libraries.profile import Profile
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.timing.bounds import LowerBound
    from s2sim.study.scenario.cluster import Scenario
    from s2sim.study.scenario.groups import Groups


@dataclass(frozen=True, slots=True)
class BesideRow:
    """Groups that did the same at once.

    Attributes
    ----------
    tp, pp, dp : int
        Ranks that share a layer, stages, and ranks that hold the same: those of one group.
    groups : int
        How many there are.
    alone_s : float
        What one group takes with no other, the first.
    contention : float or None
        How many times as long it takes beside the others; None where no time passes.
    """

    tp: int
    pp: int
    dp: int
    groups: int
    alone_s: float
    contention: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Groups of ranks beside each other, and what times them."""

    groups: Groups
    timer: GroupsTimer

    @property
    def workers(self) -> Ints:
        """The worker that each rank of the timer's cluster is, int64 of shape (workers,)."""
        return self.groups.dp_groups.reshape(-1)

    def bound(self, demand: Demand, *, assisted: bool) -> LowerBound:
        """Return the lower bound of what all groups do."""
        return self.timer.bound([demand], assisted=assisted)

    def row(self, demand: Demand, time_s: float) -> BesideRow:
        """Return what stands in results of groups that took some time."""
        alone_s = self.timer.alone.time(demand).duration_ps / PS_PER_S
        groups = self.groups
        contention = time_s / alone_s if alone_s else None
        return BesideRow(groups.tp, groups.pp, groups.dp, groups.count, alone_s, contention)


def groups_beside(text: str, workers: int, scenario: Scenario, profile: Profile) -> Beside | None:
    """Return the groups that were asked for on a cluster; None, with a warning, where one has all ranks."""
    groups = parse_groups(text, workers)
    if scenario.disturbed:
        raise OptionError(
            f"--groups {text}: groups beside each other are timed with nothing else going on, and faults that begin "
            "later are: leave either out"
        )
    timer = timer_of_groups(scenario.cluster(workers), groups, scenario.algorithm, profile=profile)
    if isinstance(timer, GroupsTimer):
        return Beside(groups, timer)
    warnings.warn(f"--groups {text} changes nothing here: one group has all ranks", S2SimWarning, stacklevel=2)
    return None
