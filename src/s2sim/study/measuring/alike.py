"""Collectives that several groups of ranks post alike, told as one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable


def alike(posted: Iterable[tuple[tuple[int, ...], Hashable]]) -> list[list[int]]:
    """Return which of some collectives are told together, by their places, from the ranks of each and what it is.

    Each group's first of a kind, its second, and so on; those of all ranks, which name none, are told one by one.

    >>> alike([((0, 1), "a"), ((2, 3), "a"), ((0, 1), "a"), ((), "a"), ((), "a")])
    [[0, 1], [2], [3], [4]]
    """
    times: Counter[tuple[tuple[int, ...], Hashable]] = Counter()
    found: dict[tuple[bool, Hashable, int], list[int]] = {}
    for place, (ranks, what) in enumerate(posted):
        found.setdefault((bool(ranks), what, times[ranks, what]), []).append(place)
        times[ranks, what] += 1
    return list(found.values())
