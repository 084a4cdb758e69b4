"""Layers by patterns of their names: the first that fits has a layer."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def assign(names: Sequence[str], patterns: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """Return the indices of the names that each pattern is the first to fit, and of those that none does.

    >>> assign(["embed.weight", "out.weight", "bias"], ["embed*", "*.weight"])
    ([[0], [1]], [2])
    """
    found: list[list[int]] = [[] for _ in patterns]
    rest: list[int] = []
    for index, name in enumerate(names):
        first = next((place for place, pattern in enumerate(patterns) if fnmatchcase(name, pattern)), None)
        (rest if first is None else found[first]).append(index)
    return found, rest
