"""A communication library as a value: what it executes for what is asked of it, and how many at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.libraries.calibration import Calibration
from s2sim.options import join_option_string
from s2sim.topology.shape import ClusterShape

TIMING, TIMINGS = "timing", ("auto", "measured", "wire")
"""Option of libraries with constants: by these where a topology says its network, always, or never."""

TIMING_OPTIONS = (TIMING, "launch")
"""Options that decide what a library adds, not what it executes."""


@dataclass(frozen=True, slots=True)
class LoweringRule:
    """One line of a library's table: what it ``does`` for collectives of these kinds, operations and types.

    Operations end in ``v`` where sizes differ from rank to rank, or are known only from data; types are NumPy's names,
    none for any. ``does`` is a key of `s2sim.libraries.lowering.EXECUTIONS`; ``when`` is the option and
    value for which the line holds; ``carrier`` is the type that stands in for one that the library lacks.
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
    # Whether collectives of one kind that are posted at once are one launch: bytes add, latency is paid once
    groups: bool
    # Collectives of one communicator that run at once, in the order in which they were posted; None for any number
    in_flight: int | None
    # Each option and its values, the default first; ``chosen`` has the value of each, ``given_options`` those that were
    # named
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    staged: bool = False  # Whether buffers go through host memory, unless the option ``buffers`` says otherwise
    chosen: tuple[tuple[str, str], ...] = ()
    # measured, profile: what it adds to the wire by its constants, and how it runs: by these, or on the wire alone
    measured: LibraryProfile | None = None
    profile: LibraryProfile = NO_OVERHEADS
    calibration: Calibration | None = None
    given_options: tuple[str, ...] = field(default=(), compare=False)

    @property
    def option_string(self) -> str:
        """The text that `s2sim.libraries.lowering_tables.choose_library` reads back."""
        defaults = {key: values[0] for key, values in self.options}
        return join_option_string(self.name, {key: value for key, value in self.chosen if value != defaults[key]})

    def on(self, shape: ClusterShape) -> Library:
        """Return the library as it runs on clusters of a shape: by its constants where these tell, unless asked."""
        if not self._decides or self.measured is None or self.unmodelled_reason(shape) is not None:
            return self
        return replace(self, profile=self.measured)

    def unmodelled_reason(self, shape: ClusterShape) -> str | None:
        """Return why times on clusters of a shape leave out what it adds, where nobody asked for that; else None."""
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
