"""Random generators by name: every draw has its own, so that no result depends on the order of work."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


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
