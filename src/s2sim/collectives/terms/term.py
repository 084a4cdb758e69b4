"""One term of a schedule's time, and how terms of many rounds add up to a whole number of picoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s2sim.collectives.schedules.per_message import Powers

BYTES = "bytes"
WIRE_LATENCY = "wire latency"
# Parts of a constant's name that the kind of its term says already.
_SAID = ("generation", "latency", "share", "share-over-nodes", "stages", "rendezvous", "copy", "stream", "add")
_OF_PROTOCOLS = {"limit": "", "network": " between nodes", "network-limit": " between nodes"}


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a schedule's time: picoseconds, which add up to its duration over all terms.

    ``kind`` is ``"launch"``, ``"hop"``, ``"in-network"``, ``"fill"`` and other latencies of a library, ``"wire
    latency"``, ``"bytes"`` of a link, or ``"limit"``: bytes that a protocol holds up; ``of`` names constants, or a
    class of link. ``count`` is how often, or of bytes and limits how many; on a ring's clock the mean over it.
    ``constants`` are what it is proportional to, by the names of a library's file: latencies to the power of 1, shares
    of -1.
    """

    kind: str
    of: str
    count: float
    ps: int
    constants: Powers

    def with_constants_ps(self, times: Mapping[str, float]) -> float:
        """Return its picoseconds with some constants so many times as large.

        That is exact as long as the same is sent, and the same is busiest.

        >>> Term("hop", "LL over nvlink", 14, 700, (("protocol.LL.nvlink", 1),)).with_constants_ps(
        ...     {"protocol.LL.nvlink": 2}
        ... )
        1400.0
        """
        return self.ps * prod(float(times.get(name, 1)) ** power for name, power in self.constants)


class Terms:
    """Terms as they add up, round after round."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, Powers], tuple[float, float]] = {}

    def add(self, kind: str, of: str, count: float, ps: float, constants: Powers = ()) -> None:
        """Add a count and its picoseconds, which need not be whole."""
        before = self._found.get((kind, of, constants), (0.0, 0.0))
        self._found[kind, of, constants] = before[0] + count, before[1] + ps

    def whole(self, duration_ps: int) -> tuple[Term, ...]:
        """Return the terms in whole picoseconds that add up to a duration.

        What rounding leaves goes to the bytes that take most time, or else to the longest term.
        """
        terms = {key: [count, round(ps)] for key, (count, ps) in self._found.items()}
        left_ps = duration_ps - sum(int(ps) for _, ps in terms.values())
        if left_ps:
            longest = max(terms, key=lambda key: (key[0] == BYTES and terms[key][1] + left_ps >= 0, terms[key][1]))
            terms[longest][1] += left_ps
        return tuple(Term(*key[:2], count, int(ps), key[2]) for key, (count, ps) in terms.items() if ps or key[2])


def in_words(constant: str) -> str:
    """Return what a latency or limit of a library is of, from its name in the library's file.

    >>> in_words("protocol.LL.nvlink"), in_words("protocol.LL.network"), in_words("network.roce.latency")
    ('LL over nvlink', 'LL between nodes', 'network roce')
    """
    table, *names = constant.split(".")
    if table == "protocol":
        protocol, of = names
        return protocol + _OF_PROTOCOLS.get(of, f" over {of}")
    if table == "launch":
        return " ".join(names)
    return " ".join(name for name in (table, *names) if name not in _SAID)
