"""Buckets that are filled in the order of readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Mask


def filled(sizes_bytes: Sequence[int], apart: Mask, *, first_bytes: int, limit_bytes: int) -> list[tuple[int, ...]]:
    """Return the places of the gradients in each bucket, in the order in which buckets close.

    A bucket closes with the gradient by which it reaches its limit, which it may exceed by far; the last one when there
    is no more. A gradient that stands ``apart`` is a bucket of its own, and the one that is being filled goes on behind
    it. That is ``compute_bucket_assignment_by_size`` of PyTorch's c10d, where all gradients are of one type.
    """
    closed: list[tuple[int, ...]] = []
    filling: list[int] = []
    held_bytes, now_bytes = 0, first_bytes
    for place, (size_bytes, alone) in enumerate(zip(sizes_bytes, apart.tolist(), strict=True)):
        if alone:
            closed.append((place,))
            continue
        filling.append(place)
        held_bytes += size_bytes
        if held_bytes >= now_bytes:
            closed.append(tuple(filling))
            filling, held_bytes, now_bytes = [], 0, limit_bytes
    return [*closed, tuple(filling)] if filling else closed
