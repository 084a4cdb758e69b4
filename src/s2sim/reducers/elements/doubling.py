"""Recursive doubling of pairs: ranks at twice the distance exchange what they have merged, until all have all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.reducers.elements import selection_cost as cost
from s2sim.reducers.elements.pairs import merge_pairs, read_pairs

if TYPE_CHECKING:
    from collections.abc import Generator

    from s2sim.reducers.elements.pairs import Pairs
    from s2sim.reducers.rank import Held, Pending, Rank


def sum_by_doubling(rank: Rank, own: Pairs, held: Held) -> Generator[Pending, None, Pairs]:
    """Return the sum of all ranks' pairs, the same on all: pairwise sums, in the order of a tree.

    Of a number of ranks that is no power of two, those beyond the largest one below first hand their pairs to a rank
    each, and get the sum from it at the end (R. Thakur et al., "Optimization of collective communication operations in
    MPICH", IJHPCA 2005, section 4.5).
    """
    within = 1 << (rank.size.bit_length() - 1)
    beyond = rank.size - within
    message = own.message(held)
    if beyond:
        handed_in = {rank.index - within: message} if rank.index >= within else {}
        came = rank.exchange(handed_in, label="pairs, fold in", size_from_data=True)
        yield came
        if rank.index < beyond:
            message = _merged(rank, own, read_pairs(came.value[rank.index + within])).message(held)

    distance = 1
    while distance < within:
        inside = rank.index < within
        swapped = {rank.index ^ distance: message} if inside else {}
        came = rank.exchange(swapped, label=f"pairs, distance {distance}", size_from_data=True)
        yield came
        if inside:
            # As it was sent, so that both partners end with the same.
            mine, theirs = read_pairs(message), read_pairs(came.value[rank.index ^ distance])
            low, high = (theirs, mine) if rank.index & distance else (mine, theirs)
            message = _merged(rank, low, high).message(held)
        distance *= 2

    if beyond:
        handed_out = {rank.index + within: message} if rank.index < beyond else {}
        came = rank.exchange(handed_out, label="pairs, hand out", size_from_data=True)
        yield came
        if rank.index >= within:
            message = came.value[rank.index - within]
    return read_pairs(message)


def _merged(rank: Rank, low: Pairs, high: Pairs) -> Pairs:
    merged = merge_pairs([low, high])
    rank.work(cost.merge(len(low) + len(high), len(merged), 2))
    return merged
