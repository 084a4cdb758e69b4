"""Two binary trees over nodes, each of whose members is a leaf of one: with chains inside nodes, led by their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from s2sim.arrays import Ints


# Ranks times channels, where nobody has asked for any number of channels.
_MOST_PARTS = 1 << 17


def tree_channels(interfaces: int, ranks: int) -> int:
    """Return how many pairs of trees run unless asked for: one an interface, but ranks times channels have a limit.

    Each channel has pairs of its own to be solved; with eight interfaces there are fewer from 16,385 ranks on.

    >>> tree_channels(8, 64), tree_channels(8, 65536), tree_channels(8, 10**6)
    (8, 2, 1)
    """
    return max(1, min(interfaces, _MOST_PARTS // max(ranks, 1)))


def trees_over_nodes(node_of_place: Ints) -> list[Ints]:
    """Return the parent of each place in either tree, -1 for its root: int64 of shape (places,) each.

    A tree over nodes, and a chain inside each that ends in the place which takes part in the tree: its first in the one
    tree and its last in the other (Sanders, Speck and Träff, Parallel Computing 35(12), 2009, for the trees).
    """
    tree = _binary_tree(len(np.unique(node_of_place)))
    return [
        _over_nodes(tree, node_of_place, last=False),
        _over_nodes(_second_tree(tree), node_of_place, last=True),
    ]


def _binary_tree(count: int) -> Ints:
    """Return the parent of each of ``count`` members in an in-order binary tree, -1 for the root.

    Members are numbered from 1 here: a member's lowest set bit is its height, so odd members are leaves.
    """
    member = np.arange(1, count + 1)
    low = member & -member
    above = (member ^ low) | (low << 1)
    below = member ^ low
    return np.where(above <= count, above, below).astype(np.int64) - 1


def _second_tree(first: Ints) -> Ints:
    """Return the tree whose leaves have children in the first: mirrored for an even count, shifted for an odd one."""
    count = len(first)
    renamed = count - 1 - np.arange(count) if count % 2 == 0 else (np.arange(count) + 1) % count
    second = np.empty(count, np.int64)
    second[renamed] = np.where(first >= 0, renamed[first], -1)
    return second


def _over_nodes(tree: Ints, node_of_place: Ints, *, last: bool) -> Ints:
    """Return the parent of each place in one tree, whose chains are led by their first or last place."""
    places = len(node_of_place)
    nodes, node = np.unique(node_of_place, return_inverse=True)
    order = np.lexsort((-np.arange(places) if last else np.arange(places), node))
    leads = np.concatenate([[True], np.diff(node[order]) != 0])
    leader = np.empty(len(nodes), np.int64)
    leader[node[order[leads]]] = order[leads]
    parent = np.empty(places, np.int64)
    parent[order[1:]] = order[:-1]
    parent[leader] = np.where(tree >= 0, leader[tree], -1)
    return parent
