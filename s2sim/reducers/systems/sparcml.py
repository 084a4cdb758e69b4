"""Exact sums of sparse vectors: SparCML's streams of pairs, and OmniReduce's blocks that are not all zero."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from s2sim.arrays import Array, Floats32, Ints, Words
from s2sim.codecs import floats, hashing
from s2sim.gradients.gradient import Gradient, stored
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Program, Rank, Reduced, Reducer, Traits, Waits
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Work, chunk_bounds
from s2sim.reducers.shared import pairs as coo
from s2sim.reducers.shared.gathered import Gathered, flat_vector, from_flat_vector
from s2sim.reducers.shared.pairs import PairsMessage, _count_pairs, _dense_sum
from s2sim.reducers.shared.selection import Selecting, count_kept, select_largest, smallest_kept_share
from s2sim.reducers.systems.stochastic_rounding import Qsgd

Algorithm: TypeAlias = Literal["rec-dbl", "split", "dense-split"]

_SMALL, _BUCKET = 10_000, 1024
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
    algorithm: Literal["auto", "rec-dbl", "split", "dense-split"] = "auto"
    small: int = _SMALL
    needs: ClassVar = {"small": "algorithm=auto", "bits": "algorithm=dense-split"}
    bits: Literal[2, 4, 8, 32] = 32

    chosen: Algorithm | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """What auto is for the gradients at hand."""
    whole: int | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """Elements of the gradient of which those at hand are a small copy."""

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        stream = select_largest(rank, gradient, self.density)
        stream = coo.Pairs(stream.indices[stream.values != 0], stream.values[stream.values != 0])
        algorithm = self.chosen or self._choose(gradient.size, count_kept(gradient, self.density, "global"), rank.size)
        cuts = chunk_bounds(gradient.size, rank.size)
        if algorithm == "rec-dbl":
            pairs = yield from sum_by_doubling(rank, stream, self.held)
            rank.work(cost.add_pairs(gradient.nbytes, len(pairs)))
            total = rank.replicated(lambda: coo.add_pairs(np.zeros(gradient.size, np.float32), [pairs.message()]))
        else:
            came = yield from coo.send_to_owners(rank, stream.split(cuts), self.held, size_from_data=True)
            if self.bits < 32:
                total, off = yield from gather_coded_sums(rank, came, cuts, Qsgd(bits=self.bits, bucket=_BUCKET))
            else:
                gather = coo.gather_dense_sums if algorithm == "dense-split" else gather_sparse_sums
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

    def sized(self, elements: Mapping[str, int]) -> Self:
        return self.variant(whole=sum(elements.values()))

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        """Return one that has chosen its algorithm for gradients of this size on so many ranks."""
        held = max(sum(stored(layer).size for layer in gradient.layers) for gradient in gradients)
        n = gradients[0].size
        k = min(held, count_kept(gradients[0], self.density, "global"))
        times = (self.whole or n) / n if n else 1
        return self.variant(chosen=self._choose(round(n * times), round(k * times), len(gradients)))

    def contraction(self, gradient: Gradient) -> float | None:
        return None if self.bits < 32 else smallest_kept_share(gradient, self.density, "global")

    def notes(self) -> tuple[str, ...]:
        return (f"auto took {self.chosen}",) if self.chosen and self.algorithm == "auto" else ()

    def options(self) -> dict[str, Any]:
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
) -> Waits[tuple[Floats32, Floats32]]:
    """Return the sums of all ranges as `gather_dense_sums`, but encoded, and the error of this rank's sums."""
    own = _dense_sum(rank, came, cuts)
    codes = coder.encode_all(rank, [own], "sums")
    gathered = yield from rank.all_gather(codes, label="codes of the sums", unequal=True)
    coder.charge_decode(rank, gathered, [len(own)])
    sums = rank.replicated(lambda: coder.decode_all([message for (message,) in gathered], np.diff(cuts).tolist()))
    return rank.replicated(lambda: np.concatenate(sums)), sums[rank.index] - own


def gather_sparse_sums(rank: Rank, came: Sequence[PairsMessage], cuts: Ints, held: GradientDtype) -> Waits[Floats32]:
    """Merge the pairs received for this rank's range of ``cuts``; return the sums of all ranges, float32."""
    own = coo.merge_pairs([coo.read_pairs(message) for message in came])
    rank.work(cost.merge_pairs_cost(_count_pairs(came), len(own), rank.size))
    gathered = yield from rank.all_gather(own.message(held), label="sums", size_from_data=True)
    parts = zip(np.diff(cuts).tolist(), gathered, strict=True)
    sums = rank.replicated(
        lambda: np.concatenate([coo.add_pairs(np.zeros(size, np.float32), [message]) for size, message in parts])
    )
    rank.work(cost.add_pairs(sums.nbytes, _count_pairs(gathered)))
    return sums


def sum_by_doubling(rank: Rank, own: coo.Pairs, held: GradientDtype) -> Waits[coo.Pairs]:
    """Return the sum of all ranks' pairs, equal on all ranks: pairwise sums, in the order of a tree.

    If the number of ranks is no power of two, those from the largest one below on first send their pairs to a rank
    each, and receive the sum from it at the end (R. Thakur et al., "Optimization of collective communication operations
    in MPICH", IJHPCA 2005, section 4.5).
    """
    within = 1 << (rank.size.bit_length() - 1)
    excess, inside = rank.size - within, rank.index < within
    message = own.message(held)

    def add(low: coo.Pairs, high: coo.Pairs) -> PairsMessage:
        merged = coo.merge_pairs([low, high])
        rank.work(cost.merge_pairs_cost(len(low) + len(high), len(merged), 2))
        return merged.message(held)

    if excess:
        sent = {} if inside else {rank.index - within: message}
        received = yield from rank.exchange(sent, label="pairs, fold in", size_from_data=True)
        if rank.index < excess:
            message = add(own, coo.read_pairs(received[rank.index + within]))

    distance = 1
    while distance < within:
        partner = rank.index ^ distance
        sent = {partner: message} if inside else {}
        received = yield from rank.exchange(sent, label=f"pairs, distance {distance}", size_from_data=True)
        if inside:
            # One's own pairs as they were sent, so that both partners end with the same sum.
            mine, theirs = coo.read_pairs(message), coo.read_pairs(received[partner])
            message = add(theirs, mine) if rank.index & distance else add(mine, theirs)
        distance *= 2

    if excess:
        sent = {rank.index + within: message} if rank.index < excess else {}
        received = yield from rank.exchange(sent, label="pairs, hand out", size_from_data=True)
        if not inside:
            message = received[rank.index - within]
    return coo.read_pairs(message)


BlocksMessage: TypeAlias = "tuple[Words, Array]"
"""Numbers of blocks, uint32 of shape (k,), and their concatenated elements, without those after the vector's end."""


@dataclass(slots=True)
class OmniReduce(Reducer):
    """An all-to-all of non-zero blocks to their aggregators, and an all-gather of the union's; exact.

    All layers are one vector, cut into blocks. Block b belongs to aggregator b mod P, and the ranks are the aggregators
    (colocated). The paper's own run on other machines, of which a group of ranks has none: a worker there sends its
    share D of non-zero blocks, 4nD bytes, and receives the union, but does not send it on. There aggregators also ask
    for one block after the other, while others are in flight: about one latency for all, in place of two rounds and two
    waits for sizes. A block's number takes 4 bytes beside its 4 x ``block``: the paper's packets tell the next block
    instead.

    Where elements are not zero at random, hardly any block of 256 is all zero: of a density of 1 % the share
    1 - 0.99^256 = 0.924 is sent. It pays for tables, whose rows are zero as a whole, and after a sparsifier of blocks.
    """

    compresses_all = True
    minimums: ClassVar = {"block": 1}
    block: int = 256

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        n, count = gradient.size, -(-gradient.size // self.block)
        hashing.check_key_space(0, count)
        block_bytes = self.block * cost.VALUE_BYTES + cost.INDEX_BYTES
        table = flat_vector(gradient, count * self.block).reshape(count, self.block)
        held = np.flatnonzero((table != 0).any(axis=1))
        # The vector is read for a bitmap of its blocks, and those that are not all zero are copied.
        rank.work(Work("encode", gradient.nbytes + 2 * len(held) * block_bytes, launches=1 + cost.SELECT_LAUNCHES))

        owned = [held[held % rank.size == owner] for owner in range(rank.size)]
        shares = [self._message(numbers, table[numbers], n) for numbers in owned]
        came = yield from rank.all_to_all(shares, label="blocks to aggregators", size_from_data=True)
        parts = [self._read(message) for message in came]
        summed = np.unique(np.concatenate([numbers for numbers, _ in parts]))
        total = np.zeros((len(summed), self.block), np.float32)
        with refuse_overflow():
            for numbers, values in parts:
                total[np.searchsorted(summed, numbers)] += values
        # The sum is cleared; a kernel per message adds its blocks.
        added = 3 * sum(len(numbers) for numbers, _ in parts)
        rank.work(Work("encode", (len(summed) + added) * block_bytes, launches=1 + len(parts)))

        sums = yield from rank.all_gather(self._message(summed, total, n), label="sums of blocks", size_from_data=True)
        union = rank.replicated(lambda: [self._read(message) for message in sums])
        # A vector is cleared, and blocks are copied into it.
        copied = 2 * sum(len(numbers) for numbers, _ in union)
        rank.work(Work("decode", gradient.nbytes + copied * block_bytes, launches=2))

        def mean() -> Gradient:
            table = np.zeros((count, self.block), np.float32)
            for numbers, values in union:
                table[numbers] = values
            return from_flat_vector(table.reshape(-1)[:n] / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: gradient)

    def _message(self, numbers: Ints, values: Floats32, n: int) -> BlocksMessage:
        beyond = max(0, (int(numbers[-1]) + 1) * self.block - n) if len(numbers) else 0
        return numbers.astype(np.uint32), floats.round_to_dtype(values.reshape(-1)[: values.size - beyond], self.held)

    def _read(self, message: BlocksMessage) -> tuple[Ints, Floats32]:
        """Return the numbers of a message's blocks and their values, with zeros after the end of the vector."""
        numbers, flat = message
        values = floats.widen(flat)
        if beyond := len(numbers) * self.block - len(flat):
            values = np.pad(values, (0, beyond))
        return numbers.astype(np.int64), values.reshape(len(numbers), self.block)
