"""What each rank has to do with the messages of a pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.collectives.schedules.schedule import Pattern


@dataclass(frozen=True, slots=True)
class OwnParts:
    """Messages by rank, and ranks by message.

    Attributes
    ----------
    sends : dict of int to list of int
        The messages that a rank sends; ranks that send none are left out.
    has : dict of int to list of int
        Those that it sends or receives; ranks without any are left out.
    senders, ends : list of list of int
        The ranks that send each message, several where a switch sums what they send, and those that send or receive it.
    """

    sends: dict[int, list[int]]
    has: dict[int, list[int]]
    senders: list[list[int]]
    ends: list[list[int]]


def own_parts(pattern: Pattern) -> OwnParts:
    """Return who sends and who receives which messages of a pattern.

    >>> import numpy as np
    >>> from s2sim.collectives.schedules.schedule import Pattern
    >>> own_parts(Pattern(np.array([0, 1]), np.array([1, 2]))).has
    {0: [0], 1: [0, 1], 2: [1]}
    """
    src, dst = pattern.src.tolist(), pattern.dst.tolist()
    if pattern.through_switch:
        senders, receivers = (
            [side[group :: pattern.groups] for group in range(pattern.messages)] for side in (src, dst)
        )
    else:
        senders, receivers = [[rank] for rank in src], [[rank] for rank in dst]
    ends = [list(dict.fromkeys([*ones, *others])) for ones, others in zip(senders, receivers, strict=True)]
    return OwnParts(_by_rank(senders), _by_rank(ends), senders, ends)


def _by_rank(ranks: list[list[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for message, members in enumerate(ranks):
        for rank in members:
            found.setdefault(rank, []).append(message)
    return found
