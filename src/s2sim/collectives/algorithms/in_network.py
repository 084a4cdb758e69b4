"""In-network all-reduce: switches sum what comes up to them and multicast the result down again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.schedules.groups import schedule_of
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Stage, Step

if TYPE_CHECKING:
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class InNetwork:
    """One transfer up a tree of switches and down again, cut-through: every rank sends its buffer once."""

    name: ClassVar[str] = "in-network"
    source: ClassVar[str] = "Graham et al., Scalable Hierarchical Aggregation Protocol (SHArP), COM-HPC 2016"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce",)
    auto: ClassVar[tuple[str, ...]] = ()

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule: one message over all links of the tree, whose root is above all ranks."""
        if demand.ranks > 1:
            cluster.reduction_tree()
        ranks = np.arange(demand.ranks, dtype=np.int64)
        sent = Round(Pattern(ranks, ranks, through_switch=True), np.array([float(demand.buffer_bytes)]))

        def pieces(_step: int, _time: int) -> Pieces:
            return Pieces(np.array([0]), np.array([0]), np.array([demand.buffer_elements]), np.array([True]))

        return schedule_of(demand, self.name, Stage((Step(sent),), pieces))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return L + D/B, with the latency up and down the tree and the rate of its narrowest link."""
        return hops.round_s(demand.buffer_bytes) if demand.ranks > 1 else 0.0
