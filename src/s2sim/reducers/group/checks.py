"""What a program may ask of its group, wherever its ranks run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.reducers.group.combine import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.reducers.rank import Contribution, Rank


def check_member(rank: Rank, place: int, what: str) -> None:
    """Raise `S2SimError` if there is no such place in the group of ``rank``."""
    if not 0 <= place < rank.size:
        raise S2SimError(f"rank {rank.index} names rank {place} as {what}: there are {rank.size}, from 0 on")


def check_one_each(rank: Rank, payloads: Sequence[Contribution], label: str) -> None:
    """Raise `S2SimError` unless there is one payload for each rank."""
    if len(payloads) != rank.size:
        raise S2SimError(
            f"rank {rank.index} posts {label!r} with {len(payloads)} payloads: give one for each of {rank.size} ranks"
        )


def check_operation(op: str, label: str) -> None:
    """Raise `S2SimError` unless payloads can be combined by ``op``."""
    if op not in OPERATIONS:
        raise S2SimError(f"{label!r} is to be combined by {op!r}; known: {', '.join(OPERATIONS)}")
