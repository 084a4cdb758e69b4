"""Texts as a terminal may have them: what files, names and options hold never moves its cursor or colours it."""

from __future__ import annotations

import re

# Control characters, line ends of Unicode, and marks that turn the direction of reading round.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return a text for one line of a terminal, with the escapes of Python for what is no letter.

    >>> print(printable("red\x1b[31m"))
    red\x1b[31m
    """
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def printable_lines(text: str) -> str:
    """Return a text of several lines in the same way, its line ends kept."""
    return "\n".join(map(printable, text.split("\n")))
