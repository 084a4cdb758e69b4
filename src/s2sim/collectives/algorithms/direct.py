"""Direct collectives: every rank sends each chunk straight to its owner, and owners send back, in one round each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.algorithms.over_groups import OverGroups
from s2sim.collectives.schedules.groups import check_at_once, joined
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Stage, Step
from s2sim.errors import ContendedError

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.kinds import Kind
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.groups import Groups
    from s2sim.collectives.schedules.hops import Hops


@dataclass(frozen=True, slots=True)
class Direct(OverGroups):
    """One round each way: least latency, P - 1 messages of every rank at once."""

    name: ClassVar[str] = "direct"
    source: ClassVar[str] = "Rashidi et al., ASTRA-SIM, ISPASS 2020 (direct all-reduce on fully connected dimensions)"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce", "all_gather", "reduce_scatter")
    auto: ClassVar[tuple[str, ...]] = ()

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part; member i owns chunk i."""
        members = groups.members
        check_at_once(self.name, len(groups.ranks) * members * (members - 1), "ring or halving-doubling")
        sender = np.repeat(np.arange(members), members - 1)
        receiver = (sender + 1 + np.tile(np.arange(members - 1), members)) % members
        pattern = Pattern(groups.ranks[:, sender].reshape(-1), groups.ranks[:, receiver].reshape(-1))
        stages = []
        if kind in ("all_reduce", "reduce_scatter"):
            stages.append(_exchange(groups, pattern, chunk=receiver, adds=True))
        if kind in ("all_reduce", "all_gather"):
            stages.append(_exchange(groups, pattern, chunk=sender, adds=False))
        return joined(stages)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time on a full mesh, where every pair of ranks has links of its own.

        R rounds, 2 for an all-reduce and 1 else, of L + b/B; b = D/P, or the largest contribution. Where a rank sends
        all its messages through one port they share it and this form does not hold: with more than two ranks on every
        fabric of switches.
        """
        if demand.ranks == 1:
            return 0.0
        if demand.shared:
            return 2 * hops.round_s(demand.buffer_bytes / demand.ranks)
        if len(set(demand.sizes_bytes.tolist())) > 1 and len((*hops.inside, *hops.across)) > 1:
            raise ContendedError(
                f"{self.name} with unequal contributions has no closed form where ways differ: simulate it instead"
            )
        return hops.round_s(demand.sizes_bytes.max())


def _exchange(groups: Groups, pattern: Pattern, *, chunk: Ints, adds: bool) -> Stage:
    """Return one round in which each message carries the chunk of this member of its group."""
    begin, end = groups.begin[:, chunk].reshape(-1), groups.end[:, chunk].reshape(-1)
    sent = Round(pattern, groups.bytes[:, chunk].reshape(-1))

    def pieces(_step: int, _time: int) -> Pieces:
        return Pieces(np.arange(len(begin)), begin, end, np.full(len(begin), adds))

    return Stage((Step(sent),), pieces)
