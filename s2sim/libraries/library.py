"""A communication library as a value: its table of rules, its options and its constants."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.libraries.calibration import Calibration
from s2sim.options import join_option_string
from s2sim.topology.shape import ClusterShape

TIMING, TIMINGS = "timing", ("auto", "measured", "wire")
"""Option of libraries with constants: use them if a topology states its network, always, or never."""

TIMING_OPTIONS = (TIMING, "launch")
"""Options of the protocol overhead, not of what is executed."""


@dataclass(frozen=True, slots=True)
class LoweringRule:
    """One line of a library's table: its execution of collectives of some kinds, operations and types.

    Operations end in ``v`` if sizes differ between ranks or depend on data; ``dtypes`` are NumPy's names, empty for
    any. ``does`` is a key of `s2sim.libraries.lowering.EXECUTIONS`; ``when`` is the option and value for which the line
    applies; ``carrier`` is the type that replaces one that the library lacks.
    """

    kinds: tuple[str, ...]
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    does: str
    why: str
    when: tuple[str, str] | None = None
    carrier: str = ""


@dataclass(frozen=True, slots=True)
class Library:
    """One communication library, with the options that were chosen."""

    name: str
    summary: str
    source: str
    table: tuple[LoweringRule, ...]
    groups: bool  # Whether collectives of one kind posted together are one launch: bytes add, latency is paid once
    in_flight: int | None  # Concurrent collectives of one communicator, in the order of posting; None for any number
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()  # Each option and its values, the default first
    staged: bool = False  # Whether buffers go through host memory, unless the option ``buffers`` says otherwise
    chosen: tuple[tuple[str, str], ...] = ()  # The value of each option
    measured: LibraryProfile | None = None  # Protocol overhead by its constants
    profile: LibraryProfile = NO_OVERHEADS  # The profile in use: ``measured``, or none
    calibration: Calibration | None = None
    given_options: tuple[str, ...] = field(default=(), compare=False)

    @property
    def option_string(self) -> str:
        """The text that `s2sim.libraries.lowering_tables.choose_library` reads back."""
        defaults = {key: values[0] for key, values in self.options}
        return join_option_string(self.name, {key: value for key, value in self.chosen if value != defaults[key]})

    def on(self, shape: ClusterShape) -> Library:
        """Return the library on clusters of a shape: with its constants if they apply, unless the user decided."""
        if not self._decides or self.measured is None or self.unmodelled_reason(shape) is not None:
            return self
        return replace(self, profile=self.measured)

    def unmodelled_reason(self, shape: ClusterShape) -> str | None:
        """Return why times on clusters of a shape lack the protocol overhead unrequested; else None."""
        if self.measured is None:
            return f"there are no constants that tell what {self.name} adds"
        if not self._decides:
            return None
        if self.staged and not self.through_host:
            return f"the constants of {self.name} are of buffers in host memory"
        return self.measured.unmodelled_reason(shape)

    @property
    def _decides(self) -> bool:
        return (TIMING, TIMINGS[0]) in self.chosen

    @property
    def through_host(self) -> bool:
        """Whether buffers are copied to host memory and back."""
        return self.staged and ("buffers", "device") not in self.chosen
