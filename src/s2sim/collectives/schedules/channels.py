"""Channels: one collective side by side through every network interface of a node, each with its part of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.groups import Groups, cut, even_groups, group_of_all

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.topology.cluster import Cluster


def channels_on(cluster: Cluster, asked: int | None) -> int:
    """Return how many channels there are: as asked for, or one for each interface of a node if there are several."""
    return asked or (cluster.shape.nics_per_node if len(np.unique(cluster.node_of_rank)) > 1 else 1)


def channel_groups(demand: Demand, cluster: Cluster, channels: int) -> Groups:
    """Return a group a channel, its members in rank order but turned in every node so that each enters elsewhere.

    Groups have even parts of a shared buffer, or of every rank's stretch.
    """
    orders = np.stack([_order(cluster.node_of_rank, channel, channels) for channel in range(channels)])
    if demand.shared:
        cuts = np.arange(channels + 1, dtype=np.int64) * demand.buffer_elements // channels
        return even_groups(orders, cuts[:-1], cuts[1:], demand.buffer_bytes / channels)
    own = group_of_all(demand)
    begin, end = cut(own.begin[0][orders], own.end[0][orders], np.arange(channels)[:, None], channels)
    return Groups(orders, begin, end, own.bytes[0][orders] / channels)


def _order(node_of_rank: Ints, channel: int, channels: int) -> Ints:
    """Return the ranks in a channel's order: rank order, with each run of ranks of one node turned by its share."""
    ranks = len(node_of_rank)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(node_of_rank) != 0]))
    lengths = np.diff(np.concatenate([starts, [ranks]]))
    start, length = np.repeat(starts, lengths), np.repeat(lengths, lengths)
    # Interface i serves GPUs from ceil(i·gpus/interfaces) on: each channel enters through the first GPU of another one.
    first = -(-channel * length // channels)
    order: Ints = start + (np.arange(ranks) - start + first) % length
    return order
