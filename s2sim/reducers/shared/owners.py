"""Exchange of pairs with the owners of ranges of elements, who sum them and send the sums to all ranks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise
from math import log, sqrt

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.gathered import Gathered
from s2sim.reducers.shared.pairs import Pairs, PairsMessage, add_pairs, concatenate_pairs, merge_pairs, read_pairs

LEAST = float(np.finfo(np.float32).smallest_subnormal)
"""The least non-zero magnitude."""

_FINEST = 1 / 64
"""The smallest relative step of `_probe_ranks`."""


def agree_on_regions(rank: Rank, own: Pairs, n: int) -> Generator[Pending, None, list[int]]:
    """Return the bounds of the ranks' regions of ``n`` elements: ranks + 1 positions.

    Each is the mean over ranks of the ends of equal shares of their own pairs, which are sent as fractions of n.
    """
    shares = chunk_bounds(len(own) or n, rank.size)[1:-1]
    ends = own.indices[shares] if len(own) else shares
    fractions = rank.all_reduce((ends / max(n, 1)).astype(np.float32), label="ends of equal shares")
    yield fractions
    means = np.rint(fractions.value.astype(np.float64) * (n / rank.size)).astype(np.int64)
    return [0, *np.minimum(means, n).tolist(), n]


def threshold_of_sums(rank: Rank, sums: Pairs, k: int, whole: int) -> Generator[Pending, None, float]:
    """Return a magnitude that at least the ``k`` largest of all owners' sums reach, and few others.

    Owners gather the magnitudes at some positions of their order: c sums reach that at position c, which bounds the
    number of sums from below. The positions are chosen for ``whole``, which differs from k only if the sums are those
    of a small copy, and are scaled to k.
    """
    positions = np.maximum(1, _probe_ranks(whole, rank.size) * k // whole)
    probes = np.zeros(len(positions), np.float32)
    rank.work(cost.select(len(sums), len(sums)))
    falling = -np.sort(-np.abs(sums.values))
    present = positions <= len(sums)
    probes[present] = falling[positions[present] - 1]
    gathered = rank.all_gather(probes, label="magnitudes of sums")
    yield gathered

    def least() -> float:
        magnitudes = np.concatenate(gathered.value)
        counts = np.tile(np.diff(positions, prepend=0), rank.size)
        order = np.argsort(-magnitudes, kind="stable")
        reached = np.flatnonzero(np.cumsum(counts[order]) >= k)
        return max(LEAST, float(magnitudes[order[reached[0]]])) if len(reached) else LEAST

    return rank.replicated(least)


def balance_pairs(rank: Rank, held: Pairs, dtype: GradientDtype, *, skew: float) -> Generator[Pending, None, Pairs]:
    """Return this rank's equal share of all owners' pairs, in order, if one has ``skew`` times that; else its own."""
    numbers = rank.all_gather(np.array([len(held)], np.int32), label="numbers of sums")
    yield numbers
    counts = np.concatenate(numbers.value).astype(np.int64)
    if counts.max() * rank.size <= skew * counts.sum():
        return held
    begin = counts[: rank.index].sum()
    cuts = np.clip(chunk_bounds(int(counts.sum()), rank.size) - begin, 0, len(held))
    parts = [Pairs(held.indices[a:b], held.values[a:b]) for a, b in pairwise(cuts)]
    handed = {to: part.message(dtype) for to, part in enumerate(parts) if to != rank.index and len(part)}
    moved = rank.exchange(handed, label="sums to those who hold few", size_from_data=True)
    yield moved
    received = {source: read_pairs(message) for source, message in moved.value.items()}
    received[rank.index] = parts[rank.index]
    return concatenate_pairs([received[source] for source in sorted(received)])


def _probe_ranks(k: int, ranks: int) -> Ints:
    """Return positions that increase by a relative step, from this part of an equal share of ``k`` to k.

    There are (1 + ln ranks) / step of them, of four bytes each, and up to ``step`` k pairs of eight bytes too many are
    selected; the step is the one for which both take equally many bytes.
    """
    step = min(1.0, max(_FINEST, sqrt((ranks - 1) * (1 + log(ranks)) / k)))
    first = max(1, int(k * step / ranks))
    positions = [min(first, k)]
    while positions[-1] < k:
        positions.append(min(k, max(positions[-1] + first, int(positions[-1] * (1 + step)))))
    return np.array(positions, np.int64)


def send_to_owners(
    rank: Rank, parts: Sequence[Pairs], held: GradientDtype, *, calls: int = 1, size_from_data: bool
) -> Generator[Pending, None, Sequence[PairsMessage]]:
    """Send each rank the pairs of its range; return the received ones, by rank.

    With two ``calls``, indices are sent first, then values.
    """
    messages = [part.message(held) for part in parts]
    payloads = [messages] if calls == 1 else list(zip(*messages, strict=True))
    received = []
    for payload, what in zip(payloads, ["pairs"] if calls == 1 else ["indices", "values"], strict=True):
        # Values have the known lengths of the indices.
        from_data = size_from_data and what != "values"
        posted = rank.all_to_all(payload, label=f"{what} to their owners", size_from_data=from_data, unequal=True)
        yield posted
        received.append(posted.value)
    return received[0] if calls == 1 else list(zip(*received, strict=True))


def gather_dense_sums(
    rank: Rank, came: Sequence[PairsMessage], cuts: Ints, held: GradientDtype
) -> Generator[Pending, None, Floats32]:
    """Add up the pairs received for this rank's range of ``cuts``; return the sums of all ranges, float32."""
    own = _dense_sum(rank, came, cuts)
    sums = rank.all_gather(round_to_dtype(own, held), label="dense sums", unequal=True)
    yield sums
    return rank.replicated(lambda: widen(np.concatenate(sums.value)))


def gather_coded_sums(
    rank: Rank, came: Sequence[PairsMessage], cuts: Ints, coder: Gathered
) -> Generator[Pending, None, tuple[Floats32, Floats32]]:
    """Return the sums of all ranges as `gather_dense_sums`, but encoded, and the error of this rank's sums."""
    own = _dense_sum(rank, came, cuts)
    gathered = rank.all_gather(coder.encode_all(rank, [own], "sums"), label="codes of the sums", unequal=True)
    yield gathered
    coder.charge_decode(rank, gathered.value, [len(own)])
    sums = rank.replicated(lambda: coder.decode_all([message for (message,) in gathered.value], np.diff(cuts).tolist()))
    return rank.replicated(lambda: np.concatenate(sums)), sums[rank.index] - own


def gather_sparse_sums(
    rank: Rank, came: Sequence[PairsMessage], cuts: Ints, held: GradientDtype
) -> Generator[Pending, None, Floats32]:
    """Merge the pairs received for this rank's range of ``cuts``; return the sums of all ranges, float32."""
    own = merge_pairs([read_pairs(message) for message in came])
    rank.work(cost.merge_pairs_cost(_count_pairs(came), len(own), rank.size))
    gathered = rank.all_gather(own.message(held), label="sums", size_from_data=True)
    yield gathered

    def joined() -> Floats32:
        vector = np.zeros(int(cuts[-1]), np.float32)
        for (start, stop), message in zip(pairwise(cuts.tolist()), gathered.value, strict=True):
            add_pairs(vector[start:stop], [message])
        return vector

    sums = rank.replicated(joined)
    rank.work(cost.add_pairs(sums.nbytes, _count_pairs(gathered.value)))
    return sums


def _dense_sum(rank: Rank, came: Sequence[PairsMessage], cuts: Ints) -> Floats32:
    own = add_pairs(np.zeros(int(np.diff(cuts)[rank.index]), np.float32), came)
    rank.work(cost.add_pairs(own.nbytes, _count_pairs(came)))
    return own


def _count_pairs(messages: Sequence[PairsMessage]) -> int:
    return sum(len(indices) for indices, _ in messages)
