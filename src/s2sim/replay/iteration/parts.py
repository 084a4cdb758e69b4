"""Where the time of an iteration went on one rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parts:
    """One iteration of one rank in integer picoseconds; all but hidden communication add up to it.

    Attributes
    ----------
    forward, backward, optimizer : int
        While these run, what slows them down included.
    codec : int
        Encode and decode while no compute runs.
    exposed_communication : int
        While nothing of the GPU runs and a collective of this rank is in flight, or its library prepares one.
    waiting : int
        While nothing of the GPU runs and this rank has posted what other ranks have not.
    hidden_communication : int
        While a collective of this rank is in flight beside compute or codec.
    """

    forward: int
    backward: int
    codec: int
    exposed_communication: int
    waiting: int
    optimizer: int
    hidden_communication: int

    @property
    def iteration(self) -> int:
        """All of it, from the beginning of forward until the next may begin."""
        exposed = self.codec + self.exposed_communication + self.waiting
        return self.forward + self.backward + exposed + self.optimizer
