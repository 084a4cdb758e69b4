"""Messages of Gloo's collectives and their protocol overhead.

Algorithms: gloo/allreduce.cc, reduce.cc, allgather.cc, alltoall.cc, alltoallv.cc, broadcast.cc and barrier.cc
(github.com/pytorch/gloo). Each message costs two headers of the sender and one of the receiver
(gloo/transport/tcp/pair.cc); a connection starts with a number (.../tcp/device.cc).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.demand import Blocks, Demand
from s2sim.errors import S2SimError

HEADER_BYTES, CONNECTION_BYTES = 48, 8
_MAX_SEGMENT_BYTES = 1 << 20


class Messages(NamedTuple):
    """Messages between members of a group, int64 of shape (messages,) each: who sends, who receives, and bytes."""

    source: Ints
    target: Ints
    size: Ints

    def sent(self, ranks: int) -> tuple[Ints, Ints]:
        """Return the bytes of data and of headers that each member sends, int64 of shape (ranks,)."""
        data = np.bincount(self.source, self.size, ranks).astype(np.int64)
        headers = 2 * np.bincount(self.source, minlength=ranks) + np.bincount(self.target, minlength=ranks)
        return data, HEADER_BYTES * headers


def gloo_messages(demand: Demand, *, pairs_alone: bool = False) -> Messages:
    """Return the messages of a collective; with ``pairs_alone`` an all-to-all leaves out empty blocks."""
    if demand.ranks == 1:
        return _no_messages()
    if demand.kind == "all_to_all":
        return _exchange(demand, pairs_alone=pairs_alone)
    if demand.kind not in _KINDS:
        raise S2SimError(f"Gloo has no {demand.kind} of its own")
    if not demand.buffer_bytes and demand.kind != "broadcast":
        return _no_messages()
    return _KINDS[demand.kind](demand)


def barrier_bytes(ranks: int) -> int:
    """Return the bytes that each member sends in a barrier: by doubling distance, nothing but headers."""
    return 3 * HEADER_BYTES * (ranks - 1).bit_length()


def _no_messages() -> Messages:
    empty = np.empty(0, np.int64)
    return Messages(empty, empty, empty)


def _clip_to_buffer(source: Ints, target: Ints, begin: Ints, length: int, total: int) -> Messages:
    size = np.minimum(length, total - begin)
    kept = size > 0
    return Messages(source[kept], target[kept], size[kept])


def _concatenate_messages(*parts: Messages) -> Messages:
    return Messages(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _ring_of_segments(demand: Demand) -> Messages:
    """Of an all-reduce: segments to the rank before, each summed at every stop, and then as sums."""
    total, ranks = demand.buffer_bytes, demand.ranks
    most = demand.itemsize * max(1, _MAX_SEGMENT_BYTES // demand.itemsize)
    segments = _round_up(max(-(-total // most), 2 * ranks), ranks)
    length = _round_up(-(-total // segments), demand.itemsize)
    own = segments // ranks
    member, at = np.indices((ranks, segments - own))
    before = (member - 1) % ranks
    parts = []
    for first in (member + 1, member):
        begin = ((first * own + at) * length) % (segments * length)
        parts.append(_clip_to_buffer(member, before, begin, length, total))
    return _concatenate_messages(*parts)


def _reduce(demand: Demand) -> Messages:
    """Of a reduce: segments as in an all-reduce, then every rank's sums to the root."""
    total, ranks = demand.buffer_bytes, demand.ranks
    most = demand.itemsize * max(1, _MAX_SEGMENT_BYTES // demand.itemsize)
    length = _round_up(min(-(-total // (2 * ranks)), most), demand.itemsize)
    segments = _round_up(max(-(-total // length), 2 * ranks), ranks)
    own = segments // ranks
    # With more than two segments per rank Gloo also adds segments that are complete, and ignores the result.
    member, at = np.indices((ranks, segments - 2))
    begin = (((member + 1) * own + at) * length) % (segments * length)
    summed = _clip_to_buffer(member, (member - 1) % ranks, begin, length, total)
    others = np.flatnonzero(np.arange(ranks) != demand.root)
    to_root = _clip_to_buffer(others, np.full(ranks - 1, demand.root), others * own * length, own * length, total)
    return _concatenate_messages(summed, to_root)


def _all_gather(demand: Demand) -> Messages:
    """Of an all-gather: every contribution around the ring, in two halves."""
    size, ranks = demand.elements[0] * demand.itemsize, demand.ranks
    member, at = np.indices((ranks, 2 * (ranks - 1)))
    halves = np.where(at % 2, size - size // 2, size // 2)
    return Messages(member.ravel(), ((member + 1) % ranks).ravel(), halves.ravel())


def _broadcast(demand: Demand) -> Messages:
    """Of a broadcast: from each rank to those twice as far from the root, which is a binomial tree."""
    ranks = demand.ranks
    far = np.arange(1, ranks)
    parent = far - (1 << (np.frexp(far)[1] - 1))
    return Messages(
        (parent + demand.root) % ranks, (far + demand.root) % ranks, np.full(ranks - 1, demand.buffer_bytes)
    )


def _exchange(demand: Demand, *, pairs_alone: bool) -> Messages:
    """Of an all-to-all: each pair's block directly, even if empty."""
    sizes = Blocks(demand).sizes()
    wanted = sizes > 0 if pairs_alone else np.ones_like(sizes, np.bool_)
    np.fill_diagonal(wanted, val=False)
    source, target = np.nonzero(wanted)
    return Messages(source, target, sizes[source, target])


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


_KINDS: dict[str, Callable[[Demand], Messages]] = {
    "all_reduce": _ring_of_segments,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
}
