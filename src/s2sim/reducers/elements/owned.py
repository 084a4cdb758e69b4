"""Sums of pairs at the owners of regions: where regions end, what the k largest of all are, who holds how many."""

from __future__ import annotations

from itertools import pairwise
from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.elements.merged import joined
from s2sim.reducers.elements.pairs import Pairs, read_pairs
from s2sim.reducers.scripts.traffic import chunk_bounds

if TYPE_CHECKING:
    from collections.abc import Generator

    from s2sim.arrays import Ints
    from s2sim.reducers.rank import Held, Pending, Rank

LEAST = float(np.finfo(np.float32).smallest_subnormal)
"""The least magnitude that is not zero."""

_FINEST = 1 / 64
"""The smallest part that `_places` goes on by: all are looked up one by one."""


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
    places = np.maximum(1, _places(whole, rank.size) * k // whole)
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


def balance(rank: Rank, held: Pairs, dtype: Held, *, skew: float) -> Generator[Pending, None, Pairs]:
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
    return joined([pieces[source] for source in sorted(pieces)])


def _places(k: int, ranks: int) -> Ints:
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
