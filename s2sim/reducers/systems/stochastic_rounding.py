"""Unbiased rounding to few levels: QSGD, TernGrad, natural compression, DoReFa, quantised Frank-Wolfe."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs import floats, integer_codes
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.quantize import MAX_LEVELS, bucket_norms, from_levels, largest_magnitude, to_levels
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Traits, Waits
from s2sim.reducers.script import Work
from s2sim.reducers.shared import gathered
from s2sim.reducers.systems.dense import all_reduce_scaled


@dataclass(slots=True)
class Qsgd(gathered.Gathered):
    """Q(x_i) = ||x|| sgn(x_i) l / s, where l is |x_i| s / ||x|| rounded up or down at random: unbiased.

    D. Alistarh et al., "QSGD", NeurIPS 2017, section 3.1; its formula, and the width and buckets of GRACE, were read in
    code. With ``bits=8,bucket=128`` this is what GRACE sends: one byte an element, 8.25 bits with the norms. The
    paper's typical settings (4 bits, buckets of 512) and its code of Elias are recalled. ChocoSGD's s = 2^b - 1 leaves
    out the sign: its b is one less than here.
    """

    minimums: ClassVar = {"bucket": 1}
    intervals: ClassVar = {"bits": "[2, 16]"}  # A sign, and one level at least
    bits: int = 4
    bucket: int = 512
    coding: Literal["fixed", "elias"] = "fixed"
    aggregate: gathered.Aggregate = "gather"

    @property
    def levels(self) -> int:
        """Levels of magnitude above zero."""
        return (1 << (self.bits - 1)) - 1

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        norms = bucket_norms(vector, self.bucket)
        numbers = to_levels(vector, norms, self.bucket, self.levels, random)
        if self.coding == "elias":
            return norms, integer_codes.encode_signed(numbers.astype(np.int32) - self.levels)
        return norms, pack_integers(numbers, self.bits)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        norms, codes = message
        if self.coding == "elias":
            numbers = integer_codes.decode_signed(codes, elements) + self.levels
        else:
            numbers = unpack_integers(codes, self.bits, elements)
        return from_levels(numbers, norms, self.bucket, self.levels)

    def off(self, message: gathered.Message, elements: int) -> float:
        return float(message[0].max()) / self.levels

    @property
    def known_size(self) -> bool:
        return self.coding == "fixed"

    def encode_work(self, elements: int, code_bytes: int) -> Work:
        work = cost.encode_values if self.coding == "fixed" else cost.encode_levels_cost
        return work(elements, code_bytes)

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        work = cost.add_codes if self.coding == "fixed" else cost.decode_levels_cost
        return work(elements, messages, code_bytes)


@dataclass(slots=True)
class TernGrad(gathered.Gathered):
    """An element keeps its sign and gets the tensor's largest magnitude s with probability |x| / s, else 0: unbiased.

    W. Wen et al., "TernGrad", NeurIPS 2017, section 3, with a scale for each tensor; read in GRACE's code, which clips
    always and sends a byte an element.
    """

    intervals: ClassVar = {"clip": "[0, inf)"}
    clip: float = 0.0
    needs: ClassVar = {"wire": "shared=false", "aggregate": "shared=false"}
    shared: bool = False
    wire: gathered.NumberFormat = "packed"
    aggregate: gathered.Aggregate = "gather"

    @property
    def traits(self) -> Traits:
        return replace(self.about, feedback="needed") if self.clip else self.about

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Encode and gather; or agree on scales first, and sum levels."""
        if not self.shared:
            return (yield from gathered.Gathered.reduce(self, rank, gradient))
        vectors = [self._clipped(vector) for vector in gathered.layer_vectors(gradient)]
        return (yield from all_reduce_scaled(rank, gradient, vectors, levels=1))

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        vector = self._clipped(vector)
        scale = np.array([largest_magnitude(vector)], np.float32)
        return scale, gathered.write_numbers(to_levels(vector, scale, len(vector), 1, random), 2, self.wire)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        scale, codes = message
        return from_levels(gathered.read_numbers(codes, 2, self.wire, elements), scale, elements, 1)

    def off(self, message: gathered.Message, elements: int) -> float | None:
        """Return the scale, unless something was clipped."""
        return None if self.clip else float(message[0][0])

    def _clipped(self, vector: Floats32) -> Floats32:
        if not self.clip or not len(vector):
            return vector
        limit = np.float32(self.clip * vector.std(dtype=np.float64))
        return np.clip(vector, -limit, limit)


_WIDTHS = {"full": 9, "clipped": 8}
_SIGN = 1 << 8
# Exponents that seven bits hold in GRACE, as float32 biases them: 2^-109 to 2^18.
_LOWEST, _HIGHEST = 18, 145


@dataclass(slots=True)
class Natural(gathered.Gathered):
    """An element between two powers of two becomes the upper one with the probability that makes it unbiased.

    S. Horvath et al., "Natural Compression for Distributed Deep Learning", arXiv:1905.10988: the second moment grows by
    9/8 at most. That sign and exponent take nine bits is recalled, and gives the abstract's 32/9 = 3.56.
    """

    exponent: Literal["full", "clipped"] = "full"
    aggregate: gathered.Aggregate = "gather"

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        codes = floats.to_powers(vector, random)
        if self.exponent == "clipped":
            exponents = np.clip(codes & (_SIGN - 1), _LOWEST, _HIGHEST) - _LOWEST
            codes = exponents | (codes & _SIGN) >> 1
        return (pack_integers(codes, _WIDTHS[self.exponent]),)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        codes = unpack_integers(message[0], _WIDTHS[self.exponent], elements).astype(np.uint16, copy=False)
        if self.exponent == "clipped":
            exponents = codes & 0x7F
            codes = np.where(exponents > 0, exponents + _LOWEST | (codes & 0x80) << 1, 0).astype(np.uint16)
        return floats.from_powers(codes)


_HALF = np.float32(0.5)


@dataclass(slots=True)
class DoReFa(gathered.Gathered):
    """2 m (q(x / 2m + 1/2 + noise) - 1/2), where m is the tensor's largest magnitude and q rounds to 2^k values.

    S. Zhou et al., "DoReFa-Net: Training Low Bitwidth Convolutional Neural Networks with Low Bitwidth Gradients",
    arXiv:1606.06160, section 2.5, recalled: the noise is uniform in one step of q, so that a value is its own amount on
    average. None of the 2^k values is zero. The paper quantises gradients inside backward, for its arithmetic; here
    they are what workers send.
    """

    intervals: ClassVar = {"bits": "[1, 16]"}
    bits: int = 6
    aggregate: gathered.Aggregate = "gather"

    @property
    def last(self) -> np.float32:
        """The largest of the 2^k numbers."""
        return np.float32((1 << self.bits) - 1)

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        scale = np.array([largest_magnitude(vector)], np.float32)
        share = vector / (scale if scale[0] else np.float32(1))
        share *= _HALF
        share += _HALF
        share *= self.last
        # Noise of half a step to either side and rounding is noise of a step upwards and rounding down.
        share += random.random(len(vector), dtype=np.float32)
        numbers = np.minimum(share, self.last).astype(np.uint8 if self.bits <= 8 else np.uint16)
        return scale, pack_integers(numbers, self.bits)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        scale, codes = message
        shares = unpack_integers(codes, self.bits, elements).astype(np.float32)
        shares /= self.last
        shares -= _HALF
        shares *= np.float32(2)
        shares *= scale
        return shares

    def off(self, message: gathered.Message, elements: int) -> float:
        return 2 * float(message[0][0]) / float(self.last)


@dataclass(slots=True)
class QuantizedFrankWolfe(gathered.Gathered):
    """s-partition codes through a star: every rank's gradient to the master, the mean of all back, coded once more.

    M. Zhang, L. Chen, A. Mokhtari, H. Hassani, A. Karbasi, "Quantized Frank-Wolfe: faster optimization, lower
    communication, and projection free", AISTATS 2020, recalled: |g_i| over the largest magnitude is rounded at random
    to one of the ends of its interval among s equal ones, so that the code is unbiased; one float32 and, for each
    element, a sign and ceil(log2(s+1)) bits travel. What follows, the linear minimisation over a constraint and the
    variance-reduced gradient, is the optimiser's. Rank 0 is the master; its own gradient is coded too.
    """

    intervals: ClassVar = {"partitions": f"[1, {MAX_LEVELS}]"}
    partitions: int = 1

    aggregate = "server"

    def vectors(self, gradient: Gradient) -> list[Floats32]:
        """Return the whole gradient as one: there is one largest magnitude."""
        return [gathered.flat_vector(gradient)]

    def from_vectors(self, vectors: Sequence[Floats32], like: Gradient) -> Gradient:
        (vector,) = vectors
        return gathered.from_flat_vector(vector, like)

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        """Return the largest magnitude and, for each element, its sign and level."""
        scale = np.array([largest_magnitude(vector)], np.float32)
        return scale, pack_integers(to_levels(vector, scale, len(vector), self.partitions, random), self._bits)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        scale, codes = message
        return from_levels(unpack_integers(codes, self._bits, elements), scale, elements, self.partitions)

    def hand_out(
        self, rank: Rank, messages: tuple[gathered.Message, ...] | None
    ) -> Waits[tuple[gathered.Message, ...]]:
        """Let the master send its codes to one rank after the other: a star, and no broadcast."""
        others = [other for other in range(rank.size) if other != gathered.SERVER]
        sent = {} if messages is None else dict.fromkeys(others, messages)
        came = yield from rank.exchange(sent, label="codes of the sum")
        return came[gathered.SERVER] if messages is None else messages

    @property
    def _bits(self) -> int:
        """Bits of one element: its sign and which of s + 1 levels, in one number of as many."""
        return self.partitions.bit_length() + 1
