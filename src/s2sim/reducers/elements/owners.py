"""Pairs to the owners of their range of elements, who sum them; and the sums to all, as pairs or densely."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.reducers import gpu_cost
from s2sim.reducers.elements import selection_cost as cost
from s2sim.reducers.elements.pairs import add_pairs, merge_pairs, read_pairs

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from s2sim.arrays import Floats32, Ints
    from s2sim.reducers.elements.gathered import Gathered
    from s2sim.reducers.elements.pairs import Pairs, PairsMessage
    from s2sim.reducers.rank import Held, Pending, Rank


def send_to_owners(
    rank: Rank, parts: Sequence[Pairs], held: Held, *, calls: int = 1, size_from_data: bool
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
    rank: Rank, came: Sequence[PairsMessage], cuts: Ints, held: Held
) -> Generator[Pending, None, Floats32]:
    """Add what has come for the own one of the ranges between ``cuts``; return the sums of all, float32."""
    own = _dense_sum(rank, came, cuts)
    sums = rank.all_gather(as_held(own, held), label="dense sums", unequal=True)
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
    rank: Rank, came: Sequence[PairsMessage], cuts: Ints, held: Held
) -> Generator[Pending, None, Floats32]:
    """Merge what has come for the own one of the ranges between ``cuts``; return the sums of all, float32."""
    own = merge_pairs([read_pairs(message) for message in came])
    rank.work(cost.merge(_count(came), len(own), rank.size))
    gathered = rank.all_gather(own.message(held), label="sums", size_from_data=True)
    yield gathered

    def joined() -> Floats32:
        vector = np.zeros(int(cuts[-1]), np.float32)
        for (start, stop), message in zip(pairwise(cuts.tolist()), gathered.value, strict=True):
            add_pairs(vector[start:stop], [message])
        return vector

    sums = rank.replicated(joined)
    rank.work(gpu_cost.add_pairs(sums.nbytes, _count(gathered.value)))
    return sums


def _dense_sum(rank: Rank, came: Sequence[PairsMessage], cuts: Ints) -> Floats32:
    own = add_pairs(np.zeros(int(np.diff(cuts)[rank.index]), np.float32), came)
    rank.work(gpu_cost.add_pairs(own.nbytes, _count(came)))
    return own


def _count(messages: Sequence[PairsMessage]) -> int:
    return sum(len(indices) for indices, _ in messages)
