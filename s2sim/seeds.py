"""Random generators by name: every draw has its own, so that no result depends on the order of work."""

import hashlib
from collections.abc import Sequence

import numpy as np
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


def named_generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator that belongs to ``names`` under one root ``seed``.

    >>> float(named_generator(0, "rows", 3).random()) == float(named_generator(0, "rows", 3).random())
    True
    """
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    key = tuple(int.from_bytes(digest[start : start + 4], "little") for start in range(0, 16, 4))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def bucket_seed(seed: int, names: Sequence[str]) -> int:
    """Return the root seed of the bucket of these tensors: what is drawn in one is not what is drawn in another."""
    return int(named_generator(seed, "bucket", *names).integers(2**31))
