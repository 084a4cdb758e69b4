"""What came of running reducers between real processes: a row for each."""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.study.json_form import JsonForm

TOLERANCE = 1e-6
"""Largest relative L2 difference of what is summed in another order."""


@dataclass(frozen=True, slots=True)
class CheckRow(JsonForm):
    """One reducer between processes beside the same one in memory, over all steps.

    Attributes
    ----------
    reducer : str
        Its option string.
    steps : int
        How many were run.
    refused : str
        Why it does not run on this trace or library; empty where it does.
    equal : bool
        Whether every rank ends with the same bits.
    difference : float
        The largest relative L2 difference of any rank and step, null where that is undefined.
    rounded : str
        Why values may differ by more than by the order of float32 sums; empty where they may not.
    payload_bytes : int
        What the lowered scripts say that all ranks send.
    header_bytes, told_bytes, connection_bytes : int
        What goes around it: headers of the library's messages; shapes, and who sends, which programs know and processes
        have to be told; and what begins new connections.
    counted_bytes : int
        What the kernel counted on all ranks' connections, less what was sent again and barriers.
    bytes_equal : bool
        Whether it is the sum of these on every rank in every step.
    waited_s, total_s : float
        Of the last step, of the slowest rank; this machine's time, for nothing but a hint.
    """

    reducer: str
    steps: int
    refused: str = ""
    equal: bool = False
    difference: float | None = None
    rounded: str = ""
    payload_bytes: int = 0
    header_bytes: int = 0
    told_bytes: int = 0
    connection_bytes: int = 0
    counted_bytes: int = 0
    bytes_equal: bool = False
    waited_s: float = 0.0
    total_s: float = 0.0

    @property
    def around_bytes(self) -> int:
        """What the library adds: headers, and what begins connections."""
        return self.header_bytes + self.connection_bytes

    @property
    def values_agree(self) -> bool:
        """Whether values are the same, as far as they must."""
        near = self.difference is not None and self.difference <= TOLERANCE
        return self.equal or near or bool(self.rounded)

    @property
    def ok(self) -> bool:
        """Whether values and bytes are as they should be."""
        return not self.refused and self.values_agree and self.bytes_equal


@dataclass(frozen=True, slots=True)
class Interface(JsonForm):
    """What went over the interface in all, of which nothing else used any.

    Attributes
    ----------
    bytes, packets : int
        As the kernel counted them.
    connections_bytes : int
        What all connections sent, what was sent again included.
    header_bytes : int
        Of IP and TCP around that, by the number of packets.
    again_bytes : int
        What was sent again.
    """

    bytes: int
    packets: int
    connections_bytes: int
    header_bytes: int
    again_bytes: int

    @property
    def equal(self) -> bool:
        """Whether data and headers are all there is."""
        return self.bytes == self.connections_bytes + self.header_bytes


@dataclass(frozen=True, slots=True)
class Checked(JsonForm):
    """All rows of a check.

    Attributes
    ----------
    interface : Interface or None
        None where processes had to share the machine's own loopback interface, or not all was run.
    """

    trace: str
    workers: int
    seed: int
    library: str
    rows: tuple[CheckRow, ...]
    interface: Interface | None = None
    complete: bool = True
