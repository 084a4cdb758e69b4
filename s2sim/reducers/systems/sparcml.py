"""SparCML: streams of pairs are summed sparsely, or densely from where the sum is no longer sparse."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, stored
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Traits
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.gathered import Gathered, flat_vector, from_flat_vector
from s2sim.reducers.shared.pairs import (
    Pairs,
    PairsMessage,
    _count_pairs,
    _dense_sum,
    add_pairs,
    gather_dense_sums,
    merge_pairs,
    read_pairs,
    send_to_owners,
)
from s2sim.reducers.shared.selection import Selecting, count_kept, select_largest, smallest_kept_share
from s2sim.reducers.systems.stochastic_rounding import Qsgd

Algorithm: TypeAlias = Literal["rec-dbl", "split", "dense-split"]

_SMALL = 10_000
_BUCKET = 1024
_PAIR_BYTES = cost.INDEX_BYTES + cost.VALUE_BYTES

_BYTES = {
    "auto": "8k log2 P to 8kP, or (8k+4n)(P-1)/P",
    "rec-dbl": "8k log2 P to 8k(P-1)",
    "split": "16k(P-1)/P to 8kP",
    "dense-split": "(8k+4n)(P-1)/P",
}


def expected_union(n: int, k: int, ranks: int) -> float:
    """Return how many of n elements any rank holds if each holds k at random: n (1 - (1 - k/n)^P).

    >>> expected_union(100, 10, 2)
    19.0
    """
    return round(n * (1 - (1 - k / n) ** ranks), 9) if n else 0.0


@dataclass(slots=True)
class SparCML(Selecting):
    """The sum of all ranks' streams of (index, value) pairs, exactly, by one of three algorithms.

    A stream holds the largest elements that are not zero, uint32 and float32 each; with ``density=1`` all that are not,
    and nothing is lost. Formats, costs and rule are recalled and were derived again; the summary that was read names
    the algorithms and the bits.
    """

    minimums: ClassVar = {"small": 0}
    density: float = 0.01
    algorithm: Literal["auto", "rec-dbl", "split", "dense-split"] = option(
        "auto",
        "*rec-dbl* (SSAR_Recursive_double): ranks at distances 1, 2, 4, ... exchange and merge streams. *split* "
        "(SSAR_Split_allgather): ranges of elements go to their owners, who merge them; the sums are gathered. "
        "*dense-split* (DSAR_Split_allgather): likewise, with a dense all-gather of the owners' ranges. *auto*: "
        "dense-split if the union that is expected of streams at random (`expected_union`) reaches half of the "
        "elements, from where on pairs are longer than values; else rec-dbl for streams below ``small`` bytes, and "
        "split. Streams are taken to be as long as ``density`` says, or as the longest is where gradients are at "
        "hand before.",
    )
    small: int = option(
        _SMALL,
        "Bytes of a stream up to which latency counts most. SparCML's constant was not read; this is the one below "
        "which Open MPI sums by recursive doubling (coll_tuned_decision_fixed.c).",
    )
    bits: int = option(
        32,
        "Of an element in dense-split's all-gather: 32, or 2, 4 or 8, rounded at random in buckets of 1024 as "
        "`s2sim.reducers.systems.stochastic_rounding` does. What that loses counts to the range's owner.",
    )

    chosen: Algorithm | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """What auto is for the gradients at hand."""
    whole: int | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """Elements of the gradient of which those at hand are a small copy."""

    about = Traits(
        name="sparcml",
        summary="the largest elements as streams of pairs, summed by doubling, by owners, or densely by owners",
        source="Renggli et al., SparCML, SC 2019",
        feedback="needed",
        formula=_BYTES["auto"],
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        Selecting.__post_init__(self)
        if self.algorithm != "auto" and self.small != _SMALL:
            raise OptionError(f"sparcml: small={self.small} changes nothing with algorithm={self.algorithm}: give one")
        if self.bits not in (2, 4, 8, 32):
            raise OptionError(f"sparcml: bits={self.bits} is not one of 2, 4, 8, 32")
        if self.bits < 32 and self.algorithm != "dense-split":
            raise OptionError(f"sparcml: bits={self.bits} is of algorithm=dense-split: give that too")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Select, sum the streams of all ranks, divide."""
        stream = select_largest(rank, gradient, self.density)
        stream = Pairs(stream.indices[stream.values != 0], stream.values[stream.values != 0])
        k = count_kept(gradient, self.density, "global")
        algorithm = self.chosen or self._choose(gradient.size, k, rank.size)
        cuts = chunk_bounds(gradient.size, rank.size)
        if algorithm == "rec-dbl":
            pairs = yield from sum_by_doubling(rank, stream, self.held)
            rank.work(cost.add_pairs(gradient.nbytes, len(pairs)))
            total = rank.replicated(lambda: add_pairs(np.zeros(gradient.size, np.float32), [pairs.message()]))
        else:
            came = yield from send_to_owners(rank, stream.split(cuts), self.held, size_from_data=True)
            if self.bits < 32:
                coder = Qsgd(bits=self.bits, bucket=_BUCKET)
                total, off = yield from gather_coded_sums(rank, came, cuts, coder)
            else:
                gather = gather_dense_sums if algorithm == "dense-split" else gather_sparse_sums
                total = yield from gather(rank, came, cuts, self.held)
        mean = rank.replicated(lambda: from_flat_vector(total / np.float32(rank.size), gradient))

        def sent() -> Gradient:
            own = self.sent_alone(rank, gradient, stream)
            if self.bits == 32:
                return own
            vector = flat_vector(own)
            vector[cuts[rank.index] : cuts[rank.index + 1]] += off
            return from_flat_vector(vector, gradient)

        return Reduced(mean, sent)

    def _choose(self, n: int, k: int, ranks: int) -> Algorithm:
        if self.algorithm != "auto":
            return self.algorithm
        if expected_union(n, k, ranks) >= n * cost.VALUE_BYTES / _PAIR_BYTES:
            return "dense-split"
        return "rec-dbl" if k * _PAIR_BYTES < self.small else "split"

    def sized(self, elements: Mapping[str, int]) -> SparCML:
        """Return one that has chosen its algorithm for layers of this size, and the ranks at hand."""
        return self.variant(whole=sum(elements.values()))

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> SparCML:
        """Return one that has chosen its algorithm for gradients of this size on so many ranks."""
        held = max(sum(stored(layer).size for layer in gradient.layers) for gradient in gradients)
        n = gradients[0].size
        k = min(held, count_kept(gradients[0], self.density, "global"))
        times = (self.whole or n) / n if n else 1
        return self.variant(chosen=self._choose(round(n * times), round(k * times), len(gradients)))

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n, as of top-k."""
        return None if self.bits < 32 else smallest_kept_share(gradient, self.density, "global")

    def notes(self) -> tuple[str, ...]:
        """Return what was chosen."""
        return (f"auto took {self.chosen}",) if self.chosen and self.algorithm == "auto" else ()

    def options(self) -> dict[str, Any]:
        """Return every option with the value it has in effect."""
        return Selecting.options(self) | {"algorithm": self.chosen or self.algorithm}

    @property
    def traits(self) -> Traits:
        """Bytes are those of the algorithm; a sum of all that is not zero is exact, or unbiased where it is rounded."""
        formula, whole = _BYTES[self.chosen or self.algorithm], self.density == 1
        if self.bits < 32:
            formula = f"(8k+{self.bits}n/8)(P-1)/P"
        feedback: Literal["no", "needed"] = "no" if whole else "needed"
        return replace(self.about, formula=formula, lossless=whole and self.bits == 32, feedback=feedback)


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


def sum_by_doubling(rank: Rank, own: Pairs, held: GradientDtype) -> Generator[Pending, None, Pairs]:
    """Return the sum of all ranks' pairs, equal on all ranks: pairwise sums, in the order of a tree.

    If the number of ranks is no power of two, those from the largest one below on first send their pairs to a rank
    each, and receive the sum from it at the end (R. Thakur et al., "Optimization of collective communication operations
    in MPICH", IJHPCA 2005, section 4.5).
    """
    within = 1 << (rank.size.bit_length() - 1)
    excess, inside = rank.size - within, rank.index < within
    message = own.message(held)

    def add(low: Pairs, high: Pairs) -> PairsMessage:
        merged = merge_pairs([low, high])
        rank.work(cost.merge_pairs_cost(len(low) + len(high), len(merged), 2))
        return merged.message(held)

    if excess:
        sent = {} if inside else {rank.index - within: message}
        received = rank.exchange(sent, label="pairs, fold in", size_from_data=True)
        yield received
        if rank.index < excess:
            message = add(own, read_pairs(received.value[rank.index + within]))

    distance = 1
    while distance < within:
        partner = rank.index ^ distance
        received = rank.exchange(
            {partner: message} if inside else {}, label=f"pairs, distance {distance}", size_from_data=True
        )
        yield received
        if inside:
            # One's own pairs as they were sent, so that both partners end with the same sum.
            mine, theirs = read_pairs(message), read_pairs(received.value[partner])
            message = add(theirs, mine) if rank.index & distance else add(mine, theirs)
        distance *= 2

    if excess:
        sent = {rank.index + within: message} if rank.index < excess else {}
        received = rank.exchange(sent, label="pairs, hand out", size_from_data=True)
        yield received
        if not inside:
            message = received.value[rank.index - within]
    return read_pairs(message)
