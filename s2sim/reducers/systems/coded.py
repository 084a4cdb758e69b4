"""Codes as reducers: any codec, layer by layer, and DeepReduce, which codes indices and values by themselves."""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Array, Floats32, Ints
from s2sim.codecs import deepreduce, floats, top_k
from s2sim.codecs.payload import Codec, make_codec
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, average
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits, wait_all
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Work
from s2sim.reducers.shared import pairs, selection
from s2sim.reducers.shared.gathered import Message, flat_vector, from_layer_vectors, layer_vectors
from s2sim.reducers.systems.stochastic_rounding import Qsgd
from s2sim.seeds import named_generator


@cache
def _codec(text: str) -> Codec:
    codec = make_codec(text.replace(";", ","))
    if len({operation == "gather" for operation in codec.combine.values()}) > 1:
        raise OptionError(
            f"coded: arrays of {codec.name} are both gathered and reduced, and no codec decodes such a mixture: take "
            "one whose arrays are all gathered, or none"
        )
    return codec


@dataclass(slots=True)
class Coded(Reducer):
    """A codec of ``s2sim list codecs`` or of a plug-in, of which this makes a reducer without another line.

    Written ``coded:codec=count-sketch:rows=3;columns=9``: the codec's option string with ``;`` where others have ``,``.
    Arrays that the codec gathers are decoded rank by rank and added up; others are all-reduced and decoded once. The
    GPU is charged as for a simple quantiser: a pass that reads all elements, one that writes the arrays, and one a
    payload that adds what it stands for. How much a codec gathers is taken to depend on data, for which hosts wait.
    """

    compresses_all, needs_parts = True, "a codec"
    codec: str = "fp16"

    def __post_init__(self) -> None:
        Reducer.__post_init__(self)
        _codec(self.codec)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Encode, gather or all-reduce each array of all layers' payloads, and decode."""
        codec = _codec(self.codec)
        payloads = [codec.encode(vector) for vector in layer_vectors(gradient)]
        rank.work(cost.encode_values(gradient.size, sum(payload.body_bytes for payload in payloads)))
        posted = {}
        for name, operation in codec.combine.items():
            arrays = tuple(payload.arrays[name] for payload in payloads)
            if operation == "gather":
                posted[name] = rank.all_gather(arrays, label=name, size_from_data=True)
            else:
                posted[name] = rank.all_reduce(arrays, operation, label=name)
        yield from wait_all(*posted.values())
        arrived = {name: pending.value for name, pending in posted.items()}
        gathers = "gather" in codec.combine.values()
        # By rank, or of all together: the arrays of each layer by name.
        messages = list(zip(*arrived.values(), strict=True)) if gathers else [tuple(arrived.values())]
        body_bytes = sum(array.nbytes for message in messages for arrays in message for array in arrays)
        rank.work(cost.add_codes(gradient.size, len(messages), body_bytes))

        def mean() -> Gradient:
            totals = [np.zeros(payload.elements, np.float32) for payload in payloads]
            with refuse_overflow():
                for message in messages:
                    for payload, total, arrays in zip(payloads, totals, zip(*message, strict=True), strict=True):
                        own = dict(zip(codec.combine, arrays, strict=True))
                        np.add(total, codec.decode(replace(payload, arrays=own)), out=total)
            return average(from_layer_vectors(totals, gradient), rank.size)

        agreed = rank.replicated(mean)
        return Reduced(agreed, sent=lambda: from_layer_vectors(list(map(codec.decode, payloads)), gradient))


_FPR, _PIECES = 0.001, 8

_QSGD = Qsgd(bits=7, bucket=512)
"""As DeepReduce sets it: six bits of magnitude and a sign, a norm for 512 values."""


@dataclass(slots=True)
class DeepReduce(selection.Selecting):
    """An all-gather of the indices of the k largest elements and their values, each coded by itself.

    H. Xu et al., NeurIPS 2021. A Bloom filter takes 1.44 log2(1 / fpr) bits an index; all elements are tested for it,
    and a few others pass as well. The policy says what of those that pass has its value sent. With P0 all of them have,
    so that nothing is lost that top-k keeps: 32(k + fpr(n-k)) + 1.4427 k log2(1/fpr) bits. With P1 it is k of them at
    random. With P2 it is one of each set of positives that share a bit of the filter, from the smallest sets on, up to
    k: who sets a bit alone cannot be an other. The paper codes each tensor by itself and hashes with MurmurHash3; here
    one filter is that of the whole gradient, with this package's hash functions.
    """

    minimums: ClassVar = {"pieces": 1}
    density: float = 0.01
    index: Literal["bloom", "raw"] = "bloom"
    policy: Literal["p0", "p1", "p2"] = "p0"
    needs: ClassVar = {"policy": "index=bloom", "fpr": "index=bloom", "pieces": "values=poly"}
    fpr: float = _FPR
    values: Literal["raw", "qsgd", "poly"] = "raw"
    pieces: int = _PIECES

    def __post_init__(self) -> None:
        selection.Selecting.__post_init__(self)
        deepreduce.check_rate(self.fpr, "deepreduce")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        k = top_k.elements_kept(gradient.size, self.density)
        seed = int(named_generator(rank.seed, "deepreduce filter", rank.step).integers(2**32))
        bloom = deepreduce.BloomFilter.sized(k, self.fpr, seed)
        own = selection.select_largest(rank, gradient, self.density)
        keys = own.indices[own.values != 0]

        told = bloom.encode(keys) if self.index == "bloom" else keys.astype(np.uint32)
        chosen = self._chosen(rank, bloom, told, rank.index, gradient.size)
        if self.index == "bloom":
            # The filter is cleared, and each hash of each key sets a bit. Of all keys two hashes on average are read
            # from a table in order, as DeepReduce keeps them, and tested; filters stay in the cache.
            inserted = len(keys) * (cost.INDEX_BYTES + bloom.hashes * cost.SCATTER_BYTES)
            rank.work(Work("encode", bloom.bits // 8 + inserted, launches=2))
            tested = gradient.size * 2 * cost.INDEX_BYTES
            rank.work(Work("encode", tested, launches=cost.SELECT_LAUNCHES))
        random = named_generator(rank.seed, "deepreduce values", rank.step, rank.index)
        rank.work(cost.copy_out_cost(len(chosen), scattered=True))
        rank.work(self._encoding_work(len(chosen)))
        message = told, *self._encode(flat_vector(gradient)[chosen], random)
        gathered = yield from rank.all_gather(message, label="indices and values", size_from_data=True)

        def decoded(source: int) -> pairs.Pairs:
            told, *codes = gathered[source]
            indices = self._chosen(rank, bloom, told, source, gradient.size)
            return pairs.Pairs(indices, self._decode(tuple(codes), len(indices)))

        parts = rank.replicated(lambda: [decoded(source) for source in range(rank.size)])
        if self.index == "bloom":
            rank.work(Work("decode", rank.size * tested, launches=rank.size * cost.SELECT_LAUNCHES))
        rank.work(cost.add_pairs(gradient.nbytes, sum(map(len, parts))))
        mean = rank.replicated(lambda: pairs.pairs_to_mean(pairs.merge_pairs(parts), rank.size, gradient))
        return Reduced(mean, sent=lambda: pairs.pairs_to_gradient(parts[rank.index], gradient))

    def _chosen(self, rank: Rank, bloom: deepreduce.BloomFilter, told: Array, source: int, n: int) -> Ints:
        """Return the elements whose values a rank sends, as whoever is ``told`` their indices finds them."""
        if self.index == "raw":
            return told.astype(np.int64)
        positives = bloom.positives(told, n)
        k = top_k.elements_kept(n, self.density)
        if self.policy == "p0" or len(positives) <= k:
            return positives
        random = named_generator(rank.seed, "deepreduce policy", rank.step, source)
        if self.policy == "p2":
            return bloom.likeliest(positives, k, random)
        return np.sort(random.choice(positives, k, replace=False))

    def _encode(self, values: Floats32, random: np.random.Generator) -> Message:
        """Return values, float32 of shape (n,), as they are (raw), of the gradient dtype; or their codes.

        These are random levels of the norms of buckets, of 7 bits each, unbiased (qsgd); or a curve through the values
        in falling order, and the order (poly), see `s2sim.codecs.deepreduce`.
        """
        if self.values == "raw":
            return (floats.round_to_dtype(values, self.held),)
        return deepreduce.encode_fit(values, self.pieces) if self.values == "poly" else _QSGD.encode(values, random)

    def _decode(self, codes: Message, count: int) -> Floats32:
        if self.values == "raw":
            return floats.widen(codes[0])
        return deepreduce.decode_fit(*codes) if self.values == "poly" else _QSGD.decode(codes, count)

    def _encoding_work(self, count: int) -> Work:
        if self.values == "raw":
            return Work("encode", 8 * count)
        if self.values == "qsgd":
            return Work("encode", 9 * count, launches=2)  # Find norms, then write levels.
        # A radix sort (four passes over values and indices), a search of each knot, and normal equations.
        terms = (deepreduce.DEGREE + 1) * (deepreduce.DEGREE + 2)
        moved = (4 * 16 + 4 * self.pieces + 4) * count
        return Work("encode", moved, launches=8 + 2 * self.pieces, flops=count * (terms + 6 * self.pieces))

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n where all of top-k arrives as it is."""
        exact = self.policy == "p0" and self.values == "raw"
        return selection.smallest_kept_share(gradient, self.density, "global") if exact else None

    @property
    def traits(self) -> Traits:
        kept = {"bloom": "k + fpr(n-k)" if self.policy == "p0" else "k", "raw": "k"}[self.index]
        value = {"raw": "4", "qsgd": "0.883", "poly": "log2(k)/8"}[self.values]
        index = {"bloom": "0.1803 k log2(1/fpr)", "raw": "4k"}[self.index]
        return replace(self.about, formula=f"(P-1) ({value} ({kept}) + {index})")
