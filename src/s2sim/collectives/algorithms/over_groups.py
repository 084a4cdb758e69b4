"""Algorithms that run over several groups of ranks at once, and over all ranks as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from s2sim.collectives.schedules.groups import group_from_root, schedule_of
from s2sim.options import option_text

if TYPE_CHECKING:
    from s2sim.collectives.kinds import Kind
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.groups import Groups
    from s2sim.collectives.schedules.schedule import Schedule, Stage
    from s2sim.topology.cluster import Cluster


class OverGroups(ABC):
    """A frozen dataclass of options that says what groups do; its schedule is that of one group of all ranks."""

    __slots__ = ()
    name: ClassVar[str]

    def fitted(self, groups: Groups, cluster: Cluster) -> Self:
        """Return the algorithm with the options that the cluster's rates choose; most choose none."""
        return self

    @abstractmethod
    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part, the first member at the root."""

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule for this demand."""
        groups = group_from_root(demand)
        fitted = self.fitted(groups, cluster)
        return schedule_of(demand, option_text(fitted), fitted.stage(demand.kind, groups))
