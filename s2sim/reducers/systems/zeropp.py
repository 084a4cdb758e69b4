"""Few bits to the owners of parts: ZeRO++'s gradients, by nodes; QSDP's; and THC's, which are summed as they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import NormalDist
from typing import ClassVar, Literal, Self

import numpy as np

from s2sim.arrays import Array, Bits, Floats32, split_sizes
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.quantize import from_levels, to_levels
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers import reduction, script
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Waits
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector
from s2sim.reducers.shared.layers import NodeMembership, no_shared_node_reason, node_membership
from s2sim.seeds import named_generator


@dataclass(slots=True)
class QgZ(Reducer):
    """Parts of the gradient go to their owners in few bits: inside nodes, where they are summed, then between them.

    G. Wang et al., "ZeRO++", arXiv:2306.10209, section 3.3; read in DeepSpeed's ``all_to_all_quant_reduce`` and its
    kernels. A rank sends the l-th of the L ranks of its node the parts that the l-th ranks of all M nodes own, and
    their sums, quantised again, to these. An element is a multiple from -2^(b-1) to 2^(b-1) - 1 of the block's largest
    magnitude over 2^(b-1). Unlike here, DeepSpeed's blocks have as many elements as the shorter side of a matrix, sums
    are taken in half precision, and vectors are not quantised. The means are gathered unless ranks keep shards of them.
    No residual of the rounding is kept.
    """

    compresses_all = True
    minimums: ClassVar = {"block": 1, "node": 1}
    bits: Literal[4, 8] = 4
    block: int = 2048
    node: int | None = None

    numbers: tuple[int, ...] = field(init=False, repr=False, compare=False, default=(), metadata={"fitted": True})
    """Of the node of each rank; empty until `placed`."""

    def placed(self, nodes: Sequence[int]) -> Self:
        return self.variant(numbers=tuple(nodes))

    def notes(self) -> tuple[str, ...]:
        """Return why there is one exchange among all ranks, if not as one node has all of them."""
        equal = node_membership(len(self.numbers), self.node, self.numbers).equal
        why = no_shared_node_reason(self.node, self.numbers) or ("" if equal else "nodes hold unlike numbers of ranks")
        return (f"{why}: one exchange among all ranks, and none between nodes",) if why else ()

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        vector, nodes = flat_vector(gradient), node_membership(rank.size, self.node, self.numbers)
        if nodes.single or not nodes.equal:
            nodes = NodeMembership((tuple(range(rank.size)),))
        sizes = np.diff(script.chunk_bounds(len(vector), rank.size))
        parts = split_sizes(vector, sizes)
        local = rank if len(nodes.members) == 1 else rank.subgroup(nodes.mates(rank.index))
        owners = np.array([nodes.peers(place) for place in range(local.size)])
        blocks = split_sizes(np.concatenate([parts[owner] for owner in owners.flat]), sizes[owners].sum(axis=1))
        lengths = list(map(len, blocks))
        exchanged = self._exchange(local, blocks, cost.VALUE_BYTES * len(vector), "parts in nodes")
        # Other ranks run before this one goes on.
        del vector, parts, blocks
        own, sums, arrived = yield from exchanged
        total, lost = sums, np.zeros_like(sums)
        if len(nodes.members) > 1:
            peers = rank.subgroup(owners[local.index].tolist())
            split = split_sizes(sums, sizes[owners[local.index]])
            again, total, arrived = yield from self._exchange(peers, split, arrived, "parts between nodes")
            lost = sums - np.concatenate(list(map(self._decode, again, map(len, split))))
        rank.work(cost.add_codes(len(total), len(nodes.members), arrived))  # One kernel a node
        mean = round_to_dtype(total / np.float32(rank.size), self.held)
        gathered = yield from rank.all_gather(mean, label="means of parts", unequal=True, spreads=True)
        means = rank.replicated(lambda: from_flat_vector(np.concatenate([*map(widen, gathered)]), gradient))

        def sent() -> Gradient:
            """Return what others decode of this rank, less what is lost of the sums that it has taken."""
            decoded = list(map(self._decode, own, lengths))
            decoded[local.index] -= lost
            found = dict(zip(owners.flat, split_sizes(np.concatenate(decoded), sizes[owners.flat]), strict=True))
            found[rank.index] -= total - widen(mean) * np.float32(rank.size)
            return from_flat_vector(np.concatenate([found[owner] for owner in range(rank.size)]), gradient)

        return Reduced(means, sent)

    def _exchange(
        self, group: Rank, vectors: Sequence[Floats32], read_bytes: int, label: str
    ) -> Waits[tuple[list[Bits], Floats32, int]]:
        """Encode in one kernel, and exchange; return own messages, and the sum and the bytes of those that come."""
        random = named_generator(group.seed, self.about.name, group.step, group.index)
        messages = [self._encode(vector, random) for vector in vectors]
        group.work(script.Work("encode", read_bytes + sum(map(len, messages))))
        total = np.zeros(len(vectors[group.index]), np.float32)
        del vectors
        arrived = yield from group.all_to_all(messages, label=label, unequal=True)
        with reduction.refuse_overflow():
            for message in arrived:
                total += self._decode(message, len(total))
        return messages, total, sum(map(len, arrived))

    def _encode(self, vector: Floats32, random: np.random.Generator) -> Bits:
        """Return the largest magnitude of each block, and the levels of its elements."""
        scales = np.maximum.reduceat(np.abs(vector), np.arange(0, len(vector), self.block))
        numbers = np.minimum(to_levels(vector, scales, self.block, 1 << (self.bits - 1), None), (1 << self.bits) - 1)
        return np.concatenate((scales.view(np.uint8), pack_integers(numbers, self.bits)))

    def _decode(self, message: Bits, elements: int) -> Floats32:
        scales, codes = np.split(message, [cost.VALUE_BYTES * -(-elements // self.block)])
        numbers = unpack_integers(codes, self.bits, elements)
        return from_levels(numbers, scales.view(np.float32), self.block, 1 << (self.bits - 1))


@dataclass(slots=True)
class QSDP(QgZ):
    """Parts of the gradient go to their owners in few bits of a bucket's range, rounded at random: unbiased.

    I. Markov et al., "Quantized Distributed Training of Large Models with Convergence Guarantees", ICML 2023,
    arXiv:2302.02390, of which abstract and reviews were read: unbiased quantisation of gradients before FSDP's
    reduce-scatter; buckets of 1024 and 8 bits are recalled, as is that levels lie between the least and the largest
    element, which a bucket sends in 8 bytes. Owners sum in float32. The weights, which it gathers in 8 bits too,
    belong to the discipline (``fsdp:weights=int8``). The means are gathered unless ranks keep shards of them.
    """

    bits: Literal[4, 8] = 8
    block: int = 1024
    node: int | None = field(init=False, repr=False, default=1)  # There is one exchange among all ranks.

    notes = Reducer.notes  # Nodes are not looked at.

    def _encode(self, vector: Floats32, random: np.random.Generator) -> Bits:
        """Return the least element and the distance of levels of each bucket, and the elements' levels."""
        starts, most = np.arange(0, len(vector), self.block), (1 << self.bits) - 1
        low, high = np.minimum.reduceat(vector, starts), np.maximum.reduceat(vector, starts)
        step = ((high.astype(np.float64) - low) / most).astype(np.float32)
        least, unit = (np.repeat(each, self.block)[: len(vector)] for each in (low, np.where(step > 0, step, 1)))
        levels = np.floor((vector - least) / unit + random.random(len(vector), np.float32)).clip(0, most)
        packed = pack_integers(levels.astype(np.uint8), self.bits)
        return np.concatenate((low.view(np.uint8), step.view(np.uint8), packed))

    def _decode(self, message: Bits, elements: int) -> Floats32:
        ranges, codes = np.split(message, [2 * cost.VALUE_BYTES * -(-elements // self.block)])
        least, unit = (np.repeat(each, self.block)[:elements] for each in np.split(ranges.view(np.float32), 2))
        values: Floats32 = least + unit * unpack_integers(codes, self.bits, elements).astype(np.float32)
        return values


_TABLE = np.array([0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30])
"""Values of codes, the last of which is the granularity g, in the authors' repository (byteps/server)."""
_BITS, _OVERFLOWS = 4, 1 / 32
_POWERS, _PASSES = 40, 3  # Powers of two in a size; passes that turn 2^21 to 2^30 elements, ten butterflies each
_LOG_SIDE, _AT_ONCE = 5, 1 << 15  # Of the Hadamard matrix that is multiplied with; elements that fit in the cache


@dataclass(slots=True)
class THC(Reducer):
    """A rotated gradient in codes of a table of integers, whose values owners add up without decoding: homomorphic.

    M. Li et al., "THC: Accelerating Distributed Deep Learning Using Tensor Homomorphic Compression", NSDI 2024,
    arXiv:2302.08545, algorithm 3, recalled; abstract, summary and github.com/SophiaLi06/BytePS_THC were read. A vector
    gets random signs that all share and is turned as a whole by a Hadamard matrix, so that it is about normal. All
    ranks take the largest of its norms; an element over norm/sqrt(size) is clipped to +-t_p, which one of 32 normal
    ones exceeds, and rounded at random, unbiased, to one of 16 values of a table of integers from 0 to g = 30. Codes go
    to owners, who add up the table's values; these sums go to all, in a byte up to g P = 255 and in more beyond, and
    are turned back. What was clipped wants feedback (``ef=true``). With ``where=network`` the table's values are
    all-reduced, as a switch adds them. A gradient is vectors of 2^k elements, the largest first. The code has those of
    2^23 and pads the last, does ten of the k butterflies, and has a server and a finer grid before the table.
    """

    compresses_all = True
    where: Literal["owners", "network"] = "owners"

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        table, g, t_p = _TABLE, int(_TABLE[-1]), NormalDist().inv_cdf(1 - _OVERFLOWS / 2)
        n = -(-gradient.size // (2 * rank.size)) * 2 * rank.size  # As many for each owner, in whole bytes
        signs = rank.replicated(lambda: named_generator(rank.seed, "thc").choice(np.array([-1, 1], np.float32), n))
        powers = [k for k in range(_POWERS)[::-1] if n >> k & 1] or [0]
        sizes, norms = np.left_shift(1, powers), np.zeros(_POWERS)  # As many are sent for any n
        parts = split_sizes(flat_vector(gradient, n), sizes)
        norms[powers] = [np.sqrt(np.square(v, dtype=np.float64).sum()) for v in parts]
        rank.work(script.Work("encode", cost.VALUE_BYTES * n))
        largest = rank.all_reduce(norms, "max", label="largest norms")
        rank.work(script.Work("encode", 2 * cost.VALUE_BYTES * n * _PASSES, launches=_PASSES))
        units = (2 * t_p / g * (yield from largest)[powers] / np.sqrt(sizes)).tolist()  # Of a step of 1 in the table

        random = named_generator(rank.seed, "thc", rank.step, rank.index)
        # Not more than a byte an element while other ranks run.
        turned = map(_rotate, split_sizes(flat_vector(gradient, n) * signs, sizes))
        with reduction.refuse_overflow():
            codes = np.concatenate([_to_codes(part, unit, random) for part, unit in zip(turned, units, strict=True)])
        rank.work(cost.write_codes(n, n * _BITS // 8))

        wide = np.min_scalar_type(g * rank.size)
        if self.where == "network":
            total = yield from rank.all_reduce(table[codes].astype(wide), label="values of the table")
        else:
            bounds = script.chunk_bounds(n, rank.size)
            packed = [pack_integers(codes[start:stop], _BITS) for start, stop in pairwise(bounds.tolist())]
            arrived = yield from rank.all_to_all(packed, label="codes to owners", unequal=True)
            size = int(np.diff(bounds)[rank.index])
            rank.work(cost.add_codes(size, rank.size, sum(map(len, arrived))))
            own = np.add.reduce([table[unpack_integers(each, _BITS, size)] for each in arrived]).astype(wide)
            gathered = yield from rank.all_gather(own, label="sums of values", unequal=True)
            total = rank.replicated(lambda: np.concatenate(gathered))
        rank.work(cost.add_codes(n, 1, wide.itemsize * n))
        rank.work(script.Work("decode", 2 * cost.VALUE_BYTES * n * _PASSES, launches=_PASSES))

        def decode(summed: Array, count: int) -> Gradient:
            values = split_sizes(summed.astype(np.float32) / np.float32(count) - np.float32(g / 2), sizes)
            vectors = [_rotate(vector * np.float32(unit)) for vector, unit in zip(values, units, strict=True)]
            return from_flat_vector((np.concatenate(vectors) * signs)[: gradient.size], gradient)

        return Reduced(rank.replicated(lambda: decode(total, rank.size)), sent=lambda: decode(table[codes], 1))


def _to_codes(values: Floats32, unit: float, random: np.random.Generator) -> Bits:
    """Return the codes of float32 values, rounded at random to multiples of the unit in the table, uint8 as many."""
    table, g, codes = _TABLE, int(_TABLE[-1]), np.empty(len(values), np.uint8)
    lower = (np.searchsorted(table, np.arange(g + 1), "right") - 1).clip(0, len(table) - 2)
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        at = (part / unit + g / 2).clip(0, g) if unit else np.full_like(part, g / 2)
        below = lower[at.astype(np.intp)]
        share = (at - table[below]) / (table[below + 1] - table[below])
        codes[start : start + _AT_ONCE] = below + (random.random(at.shape, np.float32) < share)
    return codes


def _rotate(vector: Floats32) -> Floats32:
    """Return 2^k elements, float32 of shape (2^k,), times the orthonormal Hadamard matrix; its inverse.

    It is the Kronecker product of small ones, each of which turns the first axis and makes it the last one.
    """
    from scipy.linalg import hadamard

    whole, rest = divmod(len(vector).bit_length() - 1, _LOG_SIDE)
    for side in (*[1 << _LOG_SIDE] * whole, 1 << rest):
        vector = (vector.reshape(side, -1).T @ (hadamard(side, np.float32) / np.float32(side**0.5))).reshape(-1)
    return vector
