"""Rings and trees of ranks, as lines of a log tell them piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def is_ring(order: Sequence[int], ranks: int) -> bool:
    """Return whether an order has each of so many ranks once."""
    return len(order) == ranks and sorted(order) == list(range(ranks))


def ring_of_pairs(following: Mapping[int, int], ranks: int) -> list[int]:
    """Return the ring from rank 0 on in which each rank is followed by another; empty where there is none through all.

    >>> ring_of_pairs({0: 2, 2: 1, 1: 0}, 3)
    [0, 2, 1]
    >>> ring_of_pairs({0: 1, 1: 0, 2: 2}, 3)
    []
    """
    order, seen, at = [0], {0}, following.get(0)
    while at is not None and at not in seen and len(order) < ranks:
        order.append(at)
        seen.add(at)
        at = following.get(at)
    return order if at == 0 and is_ring(order, ranks) else []


def is_tree(parents: Sequence[int]) -> bool:
    """Return whether each member but one, whose parent is -1, has a way to that one over parents.

    >>> is_tree([-1, 0, 1]), is_tree([-1, 2, 1]), is_tree([1, -1, 5])
    (True, False, False)
    """
    if parents.count(-1) != 1 or any(not -1 <= parent < len(parents) for parent in parents):
        return False
    leads = {parents.index(-1)}
    for member in range(len(parents)):
        way, at = [], member
        while at not in leads:
            way.append(at)
            if len(way) > len(parents):
                return False
            at = parents[at]
        leads.update(way)
    return True
