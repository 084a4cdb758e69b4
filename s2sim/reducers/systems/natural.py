"""Natural compression: every element as a power of two beside it, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.floats import from_powers, to_powers
from s2sim.reducers.rank import Traits
from s2sim.reducers.shared.gathered import Aggregate, Gathered, Message

_WIDTHS = {"full": 9, "clipped": 8}
_SIGN = 1 << 8
# Exponents that seven bits hold in GRACE, as float32 biases them: 2^-109 to 2^18.
_LOWEST, _HIGHEST = 18, 145


@dataclass(slots=True)
class Natural(Gathered):
    """An element between two powers of two becomes the upper one with the probability that makes it unbiased.

    S. Horvath et al., "Natural Compression for Distributed Deep Learning", arXiv:1905.10988: the second moment grows by
    9/8 at most. That sign and exponent take nine bits is recalled, and gives the abstract's 32/9 = 3.56.

    Attributes
    ----------
    exponent : {"full", "clipped"}
        All eight bits of a float32's exponent; or seven, as GRACE sends it in one byte with the sign: larger powers
        than 2^18 become that, and 2^-109 and smaller ones zero (the window is recalled).
    aggregate : {"gather", "two-phase", "server"}
        All messages go to all; or chunks to their owners, or all to rank 0, who add up, encode the sums and send these
        to all.
    """

    exponent: Literal["full", "clipped"] = "full"
    aggregate: Aggregate = "gather"

    about = Traits(
        name="natural",
        summary="each element rounded at random to a power of two: sign and exponent, nine bits",
        source="Horvath et al., Natural Compression, MSML 2022, arXiv:1905.10988; github.com/sands-lab/grace",
        formula="9n/8 (P-1)",
        certainty="summary read",
    )

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return signs and exponents."""
        codes = to_powers(vector, random)
        if self.exponent == "clipped":
            exponents = np.clip(codes & (_SIGN - 1), _LOWEST, _HIGHEST) - _LOWEST
            codes = exponents | (codes & _SIGN) >> 1
        return (pack_integers(codes, _WIDTHS[self.exponent]),)

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return powers of two."""
        codes = unpack_integers(message[0], _WIDTHS[self.exponent], elements).astype(np.uint16, copy=False)
        if self.exponent == "clipped":
            exponents = codes & 0x7F
            codes = np.where(exponents > 0, exponents + _LOWEST | (codes & 0x80) << 1, 0).astype(np.uint16)
        return from_powers(codes)
