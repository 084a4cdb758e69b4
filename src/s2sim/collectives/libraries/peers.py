"""How many other ranks one sends to or receives from, where a collective is made of sends and receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.blocks import blocks_of

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.demand import Demand


def most_peers(demand: Demand, node_of_rank: Ints) -> tuple[int, int]:
    """Return the most peers of a rank in its own node, and the most in others.

    Parameters
    ----------
    demand : Demand
        An all-to-all, or what every rank sends to the next.
    node_of_rank : int64 array, shape (ranks,)
        Which ranks share a node.

    >>> from s2sim.collectives.schedules.demand import Demand
    >>> most_peers(Demand("all_to_all", (6,) * 6, 4), np.array([0, 0, 0, 0, 1, 1]))
    (3, 4)
    """
    if demand.kind == "send_recv":
        sends = demand.sizes_bytes > 0
        same = node_of_rank == np.roll(node_of_rank, -1)
        return int((sends & same).any()), int((sends & ~same).any())
    if not demand.blocks:
        # All meet all, if each has something to send.
        in_node = np.bincount(node_of_rank)
        return int(in_node.max()) - 1, demand.ranks - int(in_node[in_node > 0].min())
    meets = blocks_of(demand).sizes() > 0
    np.fill_diagonal(meets, val=False)
    same = node_of_rank[:, None] == node_of_rank
    inside, between = (
        max(int(chosen.sum(axis=axis).max()) for axis in (0, 1)) for chosen in (meets & same, meets & ~same)
    )
    return inside, between
