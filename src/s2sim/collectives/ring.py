"""Ring all-reduce and all-gather: every rank sends to the next (Patarasuk and Yuan, JPDC 69(2), 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.schedule import Demand, Round, Schedule

if TYPE_CHECKING:
    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Ring:
    """Ring in rank order, one chunk in flight a rank: bandwidth-optimal, latency linear in ranks."""

    name: ClassVar[str] = "ring"
    source: ClassVar[str] = "Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce", "all_gather")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:  # noqa: ARG002  (a ring ignores the cluster)
        """Return the schedule.

        An all-reduce cuts the buffer into P chunks, chunk i = elements [i·n//P, (i+1)·n//P). In round k rank r sends
        chunk r - k, for P - 1 rounds adding and then P - 1 rounds replacing. An all-gather has only the latter, with
        the ranks' own contributions as chunks, which may differ in size.
        """
        ranks = demand.ranks
        rank = np.arange(ranks)
        if demand.kind == "all_reduce":
            bounds = np.arange(ranks + 1, dtype=np.int64) * demand.buffer_elements // ranks
            rounds, adding = 2 * (ranks - 1), ranks - 1
            carried = np.full(ranks, demand.buffer_bytes / ranks)
        else:
            bounds = np.concatenate([[0], np.cumsum(demand.elements, dtype=np.int64)])
            rounds, adding = ranks - 1, 0
            carried = np.asarray(demand.elements, np.float64) * demand.itemsize
        begin, end = bounds[:-1], bounds[1:]

        def round_at(k: int) -> Round:
            chunk = (rank - k) % ranks
            return Round(rank, begin[chunk], end[chunk], np.full(ranks, k < adding), carried[chunk])

        sender = rank if ranks > 1 else rank[:0]
        return Schedule(
            demand=demand,
            algorithm=self.name,
            src=sender,
            dst=(sender + 1) % ranks,
            rounds=rounds,
            round_at=round_at,
            uniform=len(np.unique(carried)) == 1,
        )

    def closed_form_s(self, demand: Demand, *, latency_s: float, rate_Bps: float) -> float:
        """Return the time on a fabric where every hop has this latency and rate and shares nothing.

        All-reduce: 2(P-1)(L + D/(P·B)). All-gather: (P-1)(L + b/B) with b the largest contribution, which some hop
        carries in every round.
        """
        ranks = demand.ranks
        if demand.kind == "all_reduce":
            return 2 * (ranks - 1) * (latency_s + demand.buffer_bytes / ranks / rate_Bps)
        return (ranks - 1) * (latency_s + max(demand.elements) * demand.itemsize / rate_Bps)
