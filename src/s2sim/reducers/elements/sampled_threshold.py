"""About the largest elements of a vector, found by a threshold that a sample tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.top_k import elements_kept, select_top_k

if TYPE_CHECKING:
    from s2sim.arrays import Floats32, Ints

STRIDE = 100
"""One element in so many is looked at."""

_LOWER, _UPPER = 0.8, 1.3
_ITERATIONS = 10


def select_sampled(values: Floats32, k: int) -> tuple[Ints, int]:
    """Return where at most ``k`` elements of large magnitude are, int64, increasing, and how often all were compared.

    As github.com/synxlin/deep-gradient-compression has it (the bounds were read, their use is recalled): the threshold
    is what as large a share of a strided sample reaches. It falls by a factor 0.8 while fewer than 0.8 k reach it;
    where more than 1.3 k do, the k largest of these are taken, and else the first k.
    """
    magnitudes = np.abs(values)
    sample = magnitudes[::STRIDE]
    if k == 0 or not len(sample):
        return np.empty(0, np.int64), 0
    least = sample[select_top_k(sample, elements_kept(len(sample), k / len(values)))].min()
    passes = 1
    found = np.flatnonzero(magnitudes >= least)
    while len(found) < _LOWER * k and passes < _ITERATIONS:
        least *= np.float32(_LOWER)
        found = np.flatnonzero(magnitudes >= least)
        passes += 1
    if len(found) > _UPPER * k:
        found = found[select_top_k(values[found], k)]
    return found[:k], passes
