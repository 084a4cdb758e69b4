"""Pairs to the owners of their range of elements, who sum them; and the sums to all, as pairs or densely."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise
from math import log, sqrt

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.reducers import gpu_cost
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.gathered import Gathered
from s2sim.reducers.shared.pairs import Pairs, PairsMessage, add_pairs, concatenate_pairs, merge_pairs, read_pairs

LEAST = float(np.finfo(np.float32).smallest_subnormal)
"""The least magnitude that is not zero."""

_FINEST = 1 / 64
"""The smallest part that `_probe_ranks` goes on by: all are looked up one by one."""


def agree_on_regions(rank: Rank, own: Pairs, n: int) -> Generator[Pending, None, list[int]]:
    """Return where the ranks' regions of ``n`` elements begin and end: ranks + 1 places.

    Each is the mean over ranks of where equal shares of their own pairs end, which travels as a fraction of n.
    """
    shares = chunk_bounds(len(own) or n, rank.size)[1:-1]
    ends = own.indices[shares] if len(own) else shares
    fractions = rank.all_reduce((ends / max(n, 1)).astype(np.float32), label="ends of equal shares")
    yield fractions
    means = np.rint(fractions.value.astype(np.float64) * (n / rank.size)).astype(np.int64)
    return [0, *np.minimum(means, n).tolist(), n]


def threshold_of_sums(rank: Rank, sums: Pairs, k: int, whole: int) -> Generator[Pending, None, float]:
    """Return a magnitude that at least the ``k`` largest of all owners' sums reach, and few others.

    Owners tell the magnitudes at some places of their order. A sum of at least the c-th largest magnitude is one of c,
    so that these tell how many sums at least reach each of them. The places are those that suit the ``whole`` number,
    which is k but where sums are those of a small copy, drawn together as far as k is smaller.
    """
    places = np.maximum(1, _probe_ranks(whole, rank.size) * k // whole)
    told = np.zeros(len(places), np.float32)
    rank.work(cost.select(len(sums), len(sums)))
    falling = -np.sort(-np.abs(sums.values))
    held = places <= len(sums)
    told[held] = falling[places[held] - 1]
    gathered = rank.all_gather(told, label="magnitudes of sums")
    yield gathered

    def least() -> float:
        magnitudes = np.concatenate(gathered.value)
        counts = np.tile(np.diff(places, prepend=0), rank.size)
        order = np.argsort(-magnitudes, kind="stable")
        reached = np.flatnonzero(np.cumsum(counts[order]) >= k)
        return max(LEAST, float(magnitudes[order[reached[0]]])) if len(reached) else LEAST

    return rank.replicated(least)


def balance_pairs(rank: Rank, held: Pairs, dtype: GradientDtype, *, skew: float) -> Generator[Pending, None, Pairs]:
    """Return this rank's equal share of all owners' pairs, in order, if one holds ``skew`` times that; else its own."""
    told = rank.all_gather(np.array([len(held)], np.int32), label="numbers of sums")
    yield told
    counts = np.concatenate(told.value).astype(np.int64)
    if counts.max() * rank.size <= skew * counts.sum():
        return held
    begin = counts[: rank.index].sum()
    cuts = np.clip(chunk_bounds(int(counts.sum()), rank.size) - begin, 0, len(held))
    parts = [Pairs(held.indices[a:b], held.values[a:b]) for a, b in pairwise(cuts)]
    handed = {to: part.message(dtype) for to, part in enumerate(parts) if to != rank.index and len(part)}
    moved = rank.exchange(handed, label="sums to those who hold few", size_from_data=True)
    yield moved
    pieces = {source: read_pairs(message) for source, message in moved.value.items()} | {rank.index: parts[rank.index]}
    return concatenate_pairs([pieces[source] for source in sorted(pieces)])


def _probe_ranks(k: int, ranks: int) -> Ints:
    """Return increasing places from a part of an equal share of ``k`` to k, each a part further than the one before.

    There are (1 + ln ranks) / part of them, of four bytes each, and what passes is up to a part more than k pairs of
    eight bytes; the part is the one for which both take as many.
    """
    part = min(1.0, max(_FINEST, sqrt((ranks - 1) * (1 + log(ranks)) / k)))
    first = max(1, int(k * part / ranks))
    places = [min(first, k)]
    while places[-1] < k:
        places.append(min(k, max(places[-1] + first, int(places[-1] * (1 + part)))))
    return np.array(places, np.int64)


def send_to_owners(
    rank: Rank, parts: Sequence[Pairs], held: GradientDtype, *, calls: int = 1, size_from_data: bool
) -> Generator[Pending, None, Sequence[PairsMessage]]:
    """Send each rank the pairs of its range; return those that come, by rank.

    With two ``calls``, indices go first and values after them.
    """
    messages = [part.message(held) for part in parts]
    if calls == 1:
        both = rank.all_to_all(messages, label="pairs to their owners", size_from_data=size_from_data, unequal=True)
        yield both
        came: Sequence[PairsMessage] = both.value
        return came
    indices = rank.all_to_all(
        [message[0] for message in messages],
        label="indices to their owners",
        size_from_data=size_from_data,
        unequal=True,
    )
    yield indices
    values = rank.all_to_all([message[1] for message in messages], label="values to their owners", unequal=True)
    yield values
    return list(zip(indices.value, values.value, strict=True))


def gather_dense_sums(
    rank: Rank, came: Sequence[PairsMessage], cuts: Ints, held: GradientDtype
) -> Generator[Pending, None, Floats32]:
    """Add what has come for the own one of the ranges between ``cuts``; return the sums of all, float32."""
    own = _dense_sum(rank, came, cuts)
    sums = rank.all_gather(round_to_dtype(own, held), label="dense sums", unequal=True)
    yield sums
    return rank.replicated(lambda: widen(np.concatenate(sums.value)))


def gather_coded_sums(
    rank: Rank, came: Sequence[PairsMessage], cuts: Ints, coder: Gathered
) -> Generator[Pending, None, tuple[Floats32, Floats32]]:
    """Do as `gather_dense_sums`, the sums encoded; return those of all, and by how much the own ones are off."""
    own = _dense_sum(rank, came, cuts)
    gathered = rank.all_gather(coder.encode_all(rank, [own], "sums"), label="codes of the sums", unequal=True)
    yield gathered
    sizes = np.diff(cuts).tolist()
    coder.charge_decode(rank, gathered.value, [len(own)])

    def decoded() -> list[Floats32]:
        ranges = zip(gathered.value, sizes, strict=True)
        return [part for message, size in ranges for part in coder.decode_all(message, [size])]

    sums = rank.replicated(decoded)
    return rank.replicated(lambda: np.concatenate(sums)), sums[rank.index] - own


def gather_sparse_sums(
    rank: Rank, came: Sequence[PairsMessage], cuts: Ints, held: GradientDtype
) -> Generator[Pending, None, Floats32]:
    """Merge what has come for the own one of the ranges between ``cuts``; return the sums of all, float32."""
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
    rank.work(gpu_cost.add_pairs(sums.nbytes, _count_pairs(gathered.value)))
    return sums


def _dense_sum(rank: Rank, came: Sequence[PairsMessage], cuts: Ints) -> Floats32:
    own = add_pairs(np.zeros(int(np.diff(cuts)[rank.index]), np.float32), came)
    rank.work(gpu_cost.add_pairs(own.nbytes, _count_pairs(came)))
    return own


def _count_pairs(messages: Sequence[PairsMessage]) -> int:
    return sum(len(indices) for indices, _ in messages)
