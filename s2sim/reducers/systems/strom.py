"""Strom's threshold: what exceeds it travels as the threshold, with its place and sign in one word."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats32, Ints, Words
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.errors import OptionError, S2SimError
from s2sim.options import check_shares, option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Traits
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import Message, Scattered

_DENSITY = 0.01
_SIGN = np.uint32(1 << 31)
_LEAST, _MOST = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)


@dataclass(slots=True)
class Strom(Scattered):
    """Every element above a threshold in magnitude is sent as the threshold; all else belongs into a residual.

    N. Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech 2015, recalled: a
    word of 31 bits of index and a sign. What exceeds the threshold stays in the residual too (``ef=true``), so that a
    large element is sent in several steps. The rate depends on the data.
    """

    threshold: float | None = option(None, "tau, in the gradients' own unit, the same in all tensors and on all ranks.")
    density: float = option(
        _DENSITY,
        "Without a threshold: the share of a tensor's elements that each rank sends. The smallest of them is its "
        "tau, and travels along.",
    )

    aggregate = "gather"

    about = Traits(
        name="strom",
        summary="elements above a threshold as the threshold: 31 bits of place and a sign",
        source="Strom, Scalable Distributed DNN Training, Interspeech 2015",
        feedback="needed",
        formula="4k(P-1), and 4L(P-1) where k is given",
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        if self.threshold is not None and not _LEAST <= self.threshold <= _MOST:
            raise OptionError(f"strom: threshold={self.threshold} is not a number above 0 that float32 has")
        check_shares(self, "strom", "density")
        if self.threshold is not None and self.density != _DENSITY:
            raise OptionError(
                f"strom: density={self.density} changes nothing with threshold={self.threshold}: give one"
            )

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return words, and the threshold where it is not known to all."""
        if len(vector) > _SIGN:
            raise S2SimError(f"strom: a tensor of {len(vector)} elements has more than 31 bits of index can tell apart")
        if self.threshold is not None:
            chosen = np.flatnonzero(np.abs(vector) > np.float32(self.threshold))
            return (_words(vector, chosen),)
        chosen = select_top_k(vector, elements_kept(len(vector), self.density))
        chosen = chosen[vector[chosen] != 0]
        tau = np.abs(vector[chosen]).min() if len(chosen) else 0
        return _words(vector, chosen), np.array([tau], np.float32)

    def read(self, message: Message, elements: int) -> tuple[Words, Floats32]:
        """Return the places, and the threshold with every sign."""
        words, *threshold = message
        (tau,) = threshold[0] if threshold else [np.float32(self.threshold)]
        return words & ~_SIGN, np.where(words >= _SIGN, -tau, tau)

    def encode_work(self, elements: int, code_bytes: int) -> Work:
        """Return the cost of a pass that picks the elements, or of selecting them."""
        if self.threshold is not None:
            return cost.compact(cost.VALUE_BYTES * elements, code_bytes // cost.INDEX_BYTES)
        return cost.select(elements, code_bytes // cost.INDEX_BYTES)

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        """Return the cost of adding every word's element where it belongs."""
        return cost.add_pairs(cost.VALUE_BYTES * elements, code_bytes // cost.INDEX_BYTES)


def _words(vector: Floats32, chosen: Ints) -> Words:
    """Return the words of some elements: where each is, and whether it is negative."""
    words = chosen.astype(np.uint32)
    words[vector[chosen] < 0] |= _SIGN
    return words
