"""QSGD: every bucket's norm, and each element as a random level of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.integer_codes import decode_signed, encode_signed
from s2sim.codecs.quantize import bucket_norms, from_levels, to_levels
from s2sim.errors import OptionError
from s2sim.options import check_options
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Traits
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import Aggregate, Gathered, Message


@dataclass(slots=True)
class Qsgd(Gathered):
    """Q(x_i) = ||x|| sgn(x_i) l / s, where l is |x_i| s / ||x|| rounded up or down at random: unbiased.

    D. Alistarh et al., "QSGD", NeurIPS 2017, section 3.1; its formula, and the width and buckets of GRACE, were read in
    code. With ``bits=8,bucket=128`` this is what GRACE sends: one byte an element, 8.25 bits with the norms. The
    paper's typical settings (4 bits, buckets of 512) and its code of Elias are recalled. ChocoSGD's s = 2^b - 1 leaves
    out the sign: its b is one less than here.

    Attributes
    ----------
    bits : int
        Bits of an element on the wire, its sign included: s = 2^(bits - 1) - 1 levels of magnitude; 2 to 16.
    bucket : int
        Neighbours in a tensor that share a norm; the last bucket of a tensor may be smaller.
    coding : {"fixed", "elias"}
        All elements in ``bits`` each, or those that are not zero alone: the distance from the last one, sign and level
        as Elias codes, which a core of the host writes and reads.
    aggregate : {"gather", "two-phase", "server"}
        All messages go to all; or chunks to their owners, or all to rank 0, who add up, encode the sums and send these
        to all.
    """

    bits: int = 4
    bucket: int = 512
    coding: Literal["fixed", "elias"] = "fixed"
    aggregate: Aggregate = "gather"

    about = Traits(
        name="qsgd",
        summary="each element rounded at random to a level of its bucket's norm",
        source="Alistarh et al., QSGD, NeurIPS 2017; github.com/sands-lab/grace",
        formula="n(bits/8 + 4/bucket)(P-1)",
        certainty="code read",
    )

    def __post_init__(self) -> None:
        check_options(self, "qsgd", bucket=1)
        if not 2 <= self.bits <= 16:
            raise OptionError(f"qsgd: bits={self.bits} is not from 2, a sign and one level, to 16")

    @property
    def levels(self) -> int:
        """Levels of magnitude above zero."""
        return (1 << (self.bits - 1)) - 1

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return norms and levels."""
        norms = bucket_norms(vector, self.bucket)
        numbers = to_levels(vector, norms, self.bucket, self.levels, random)
        if self.coding == "elias":
            return norms, encode_signed(numbers.astype(np.int32) - self.levels)
        return norms, pack_integers(numbers, self.bits)

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return every level's share of its norm."""
        norms, codes = message
        if self.coding == "elias":
            numbers = decode_signed(codes, elements) + self.levels
        else:
            numbers = unpack_integers(codes, self.bits, elements)
        return from_levels(numbers, norms, self.bucket, self.levels)

    def off(self, message: Message, elements: int) -> float:
        """Return the largest distance between two levels."""
        return float(message[0].max()) / self.levels

    @property
    def known_size(self) -> bool:
        """Whether all elements take the same number of bits."""
        return self.coding == "fixed"

    def encode_work(self, elements: int, code_bytes: int) -> Work:
        """Return the cost of rounding, and of coding on the host if codes differ in length."""
        work = cost.encode_values if self.coding == "fixed" else cost.encode_levels_cost
        return work(elements, code_bytes)

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        """Return the cost of adding levels up, and of reading them on the host if codes differ in length."""
        work = cost.add_codes if self.coding == "fixed" else cost.decode_levels_cost
        return work(elements, messages, code_bytes)
