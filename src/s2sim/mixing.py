"""One well-known way to turn numbers into what looks like random bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def splitmix64(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix each 64-bit number in place and return the array; no two numbers mix to the same.

    The finaliser of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators",
    OOPSLA 2014).

    >>> splitmix64(np.array([1], np.uint64))
    array([6238072747940578789], dtype=uint64)
    """
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state
