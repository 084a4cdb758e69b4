"""A quantity of each message of a pattern, told by the constants that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints

Powers: TypeAlias = tuple[tuple[str, int], ...]
"""Constants by their names in a library's file, with the power of each: +1 for a latency, -1 for a share of a rate."""


@dataclass(frozen=True, slots=True, eq=False)
class PerMessage:
    """A latency, share or limit of each message, which is one of a few values.

    Attributes
    ----------
    kind : str
        What it is, in words: ``"hop"``, ``"fill"``, ``"limit"`` ...
    powers : tuple of Powers, length n
        What each value is proportional to; none where no constant counts.
    values : float64 array, shape (n,)
        Whole picoseconds, bytes per second, or shares.
    row : int64 array, shape (m,)
        Which value each message has.
    times : int
        How often each message has it.
    """

    kind: str
    powers: tuple[Powers, ...]
    values: Floats
    row: Ints
    times: int = 1

    @property
    def each(self) -> Floats:
        """The quantity of each message, of shape (m,)."""
        taken: Floats = self.values[self.row]
        return taken if self.times == 1 else taken * self.times

    def take(self, chosen: Ints) -> PerMessage:
        """Return that of some messages, int64 of shape (k,)."""
        return replace(self, row=self.row[chosen])
