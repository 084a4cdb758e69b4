"""DoReFa-Net's gradients: few bits, and noise of one step before they are rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.quantize import largest_magnitude
from s2sim.errors import OptionError
from s2sim.options import check_options
from s2sim.reducers.rank import Traits
from s2sim.reducers.shared.gathered import Aggregate, Gathered, Message

_HALF = np.float32(0.5)


@dataclass(slots=True)
class DoReFa(Gathered):
    """2 m (q(x / 2m + 1/2 + noise) - 1/2), where m is the tensor's largest magnitude and q rounds to 2^k values.

    S. Zhou et al., "DoReFa-Net: Training Low Bitwidth Convolutional Neural Networks with Low Bitwidth Gradients",
    arXiv:1606.06160, section 2.5, recalled: the noise is uniform in one step of q, so that a value is its own amount on
    average. None of the 2^k values is zero. The paper quantises gradients inside backward, for its arithmetic; here
    they are what workers send.

    Attributes
    ----------
    bits : int
        k, 1 to 16.
    aggregate : {"gather", "two-phase", "server"}
        All messages go to all; or chunks to their owners, or all to rank 0, who add up, encode the sums and send these
        to all.
    """

    bits: int = 6
    aggregate: Aggregate = "gather"

    about = Traits(
        name="dorefa",
        summary="each element with noise, rounded to one of 2^bits values up to the largest magnitude",
        source="Zhou et al., DoReFa-Net, arXiv:1606.06160",
        formula="(n bits/8 + 4L)(P-1)",
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        check_options(self, "dorefa")
        if not 1 <= self.bits <= 16:
            raise OptionError(f"dorefa: bits={self.bits} is not from 1 to 16")

    @property
    def last(self) -> np.float32:
        """The largest of the 2^k numbers."""
        return np.float32((1 << self.bits) - 1)

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the largest magnitude and the numbers of the values."""
        scale = np.array([largest_magnitude(vector)], np.float32)
        share = vector / (scale if scale[0] else np.float32(1))
        share *= _HALF
        share += _HALF
        share *= self.last
        # Noise of half a step to either side and rounding is noise of a step upwards and rounding down.
        share += random.random(len(vector), dtype=np.float32)
        numbers = np.minimum(share, self.last).astype(np.uint8 if self.bits <= 8 else np.uint16)
        return scale, pack_integers(numbers, self.bits)

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return the values."""
        scale, codes = message
        shares = unpack_integers(codes, self.bits, elements).astype(np.float32)
        shares /= self.last
        shares -= _HALF
        shares *= np.float32(2)
        shares *= scale
        return shares

    def off(self, message: Message, elements: int) -> float:
        """Return the distance between two values."""
        return 2 * float(message[0][0]) / float(self.last)
