"""One colour and one marker for each family of reducers, the same in all figures."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Look:
    """How a family is drawn.

    Attributes
    ----------
    colour : str
        As ``#RRGGBB``.
    marker : str
        Of matplotlib, so that nobody depends on the colour alone.
    """

    colour: str
    marker: str


# Seven colours of Okabe and Ito, "Color universal design" (2008), with the wine of Tol's "muted" scheme
# (SRON/EPS/TN/09-002) in place of their yellow, which is lost on white.
LOOKS = {
    "dense": Look("#000000", "s"),
    "fp16": Look("#56B4E9", "D"),
    "topk": Look("#E69F00", "^"),
    "union": Look("#009E73", "o"),
    "owner-reduce": Look("#0072B2", "P"),
    "gather-rows": Look("#CC79A7", "X"),
    "s2": Look("#D55E00", "v"),
    "s2-exact": Look("#882255", "*"),
}

PARTS = {
    "forward": "#BBBBBB",
    "backward": "#888888",
    "codec": "#E69F00",
    "exposed communication": "#0072B2",
    "waiting": "#CC79A7",
    "optimizer": "#555555",
    "hidden communication": "#9CC7E4",
}
"""Colours of the parts of an iteration: greys compute, a blue communicates; of Okabe and Ito what is none of these."""

# Tol's "muted" scheme without the wine that is taken above, lighter than the first eight or of other hues.
_COLOURS = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#AA4499")
_MARKERS = ("<", ">", "p", "h", "d", "H", "8")


def family_of(option_string: str) -> str:
    """Return the family that an option string begins with.

    >>> family_of("s2:cells=2")
    's2'
    """
    return option_string.partition(":")[0]


def look_of(family: str) -> Look:
    """Return how the family of a row's ``reducer`` is drawn.

    Those that a run compares unless others are asked for have looks that everybody tells apart; of the others two may
    share a colour, or a marker.
    """
    if family in LOOKS:
        return LOOKS[family]
    # By its name, so that it is the same in all figures, whatever else there is.
    number = crc32(family.encode())
    return Look(_COLOURS[number % len(_COLOURS)], _MARKERS[number // len(_COLOURS) % len(_MARKERS)])
