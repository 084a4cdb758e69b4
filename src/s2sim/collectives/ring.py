"""Ring all-reduce and all-gather: every rank sends to the next (Patarasuk and Yuan, JPDC 69(2), 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.schedule import Demand, Round, Schedule
from s2sim.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Ring:
    """Ring in rank order, one chunk in flight a rank and channel: bandwidth-optimal, latency linear in ranks.

    Attributes
    ----------
    channels : int or None
        Rings that run side by side, each with its part of the buffer, and in every node turned so that each leaves
        through another GPU; None takes one for each network interface of a node, where there are several nodes.
    """

    name: ClassVar[str] = "ring"
    source: ClassVar[str] = "Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce", "all_gather")
    channels: int | None = None

    def __post_init__(self) -> None:
        if self.channels is not None and self.channels < 1:
            raise OptionError(f"ring: channels={self.channels} must be at least 1")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule.

        An all-reduce cuts the buffer into P chunks, chunk i = elements [i·n//P, (i+1)·n//P). In round k rank r sends
        chunk r - k, for P - 1 rounds adding and then P - 1 rounds replacing. An all-gather has only the latter, with
        the ranks' own contributions as chunks, which may differ in size. With several channels each does so with its
        part of the buffer, or of every contribution.
        """
        ranks = demand.ranks
        channels = self.channels or (cluster.shape.nics_per_node if len(np.unique(cluster.node_of_rank)) > 1 else 1)
        orders = [_order(cluster.node_of_rank, channel, channels) for channel in range(channels)]
        if demand.kind == "all_reduce":
            cuts = np.arange(channels * ranks + 1, dtype=np.int64) * demand.buffer_elements // (channels * ranks)
            begin, end = (side.reshape(channels, ranks) for side in (cuts[:-1], cuts[1:]))
            carried = np.full((channels, ranks), demand.buffer_bytes / ranks / channels)
            rounds, adding = 2 * (ranks - 1), ranks - 1
        else:
            own = np.asarray(demand.elements, np.int64)
            first = np.cumsum(own) - own
            parts = np.arange(channels + 1)[:, None] * own // channels
            begin, end, carried = (
                np.stack([side[channel][order] for channel, order in enumerate(orders)])
                for side in (first + parts[:-1], first + parts[1:], [own * demand.itemsize / channels] * channels)
            )
            rounds, adding = ranks - 1, 0
        pair = np.arange(channels * ranks)
        place = np.arange(ranks)

        def round_at(k: int) -> Round:
            chunk = (place - k) % ranks
            return Round(
                pair=pair,
                start=begin[:, chunk].reshape(-1),
                stop=end[:, chunk].reshape(-1),
                adds=np.full(len(pair), k < adding),
                bytes=carried[:, chunk].reshape(-1),
            )

        sends = [order if ranks > 1 else order[:0] for order in orders]
        return Schedule(
            demand=demand,
            algorithm=self.name if channels == 1 else f"{self.name}:channels={channels}",
            src=np.concatenate(sends),
            dst=np.concatenate([np.roll(order, -1) for order in sends]),
            rounds=rounds,
            round_at=round_at,
            uniform=len(np.unique(carried)) == 1,
        )

    def closed_form_s(self, demand: Demand, *, nodes: int, latency_s: float, rate_Bps: float) -> float:  # noqa: ARG002  (a tree needs the nodes)
        """Return the time on a fabric where every hop has this latency and rate and shares nothing.

        All-reduce: 2(P-1)(L + D/(P·B)). All-gather: (P-1)(L + b/B) with b the largest contribution, which some hop
        carries in every round. With C channels each hop carries a C-th.
        """
        ranks, channels = demand.ranks, self.channels or 1
        if demand.kind == "all_reduce":
            return 2 * (ranks - 1) * (latency_s + demand.buffer_bytes / ranks / channels / rate_Bps)
        return (ranks - 1) * (latency_s + max(demand.elements) * demand.itemsize / channels / rate_Bps)


def _order(node_of_rank: NDArray[np.int64], channel: int, channels: int) -> NDArray[np.int64]:
    """Return the ranks in a channel's order: rank order, with each run of ranks of one node turned by its share."""
    ranks = len(node_of_rank)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(node_of_rank) != 0]))
    lengths = np.diff(np.concatenate([starts, [ranks]]))
    start, length = np.repeat(starts, lengths), np.repeat(lengths, lengths)
    # Interface i serves GPUs from ceil(i·gpus/interfaces) on: each channel enters through the first GPU of another one.
    first = -(-channel * length // channels)
    order: NDArray[np.int64] = start + (np.arange(ranks) - start + first) % length
    return order
