"""Nouns with their numbers: one leaf, three leaves."""

from __future__ import annotations


def plural(number: int, word: str) -> str:
    """Return a word for one or for several things.

    >>> plural(1, "leaf"), plural(3, "leaf"), plural(2, "switch"), plural(2, "node")
    ('leaf', 'leaves', 'switches', 'nodes')
    """
    if number == 1:
        return word
    if word.endswith("leaf"):
        return f"{word.removesuffix('f')}ves"
    return f"{word}es" if word.endswith("ch") else f"{word}s"


def number_of(number: int, word: str) -> str:
    """Return how many things there are.

    >>> number_of(1, "node"), number_of(3, "leaf")
    ('1 node', '3 leaves')
    """
    return f"{number} {plural(number, word)}"
