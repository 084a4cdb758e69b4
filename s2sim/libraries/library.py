"""A communication library as a value: its table of rules, its options, and constants that users fitted for it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.errors import TopologyError, UnitError
from s2sim.files import StrictFields, data_directory, read_toml, user_path, validated
from s2sim.libraries.constants import ConstantOverrides, Version, common_version, flatten_tables, load_constants
from s2sim.options import join_option_string
from s2sim.topology.shape import ClusterShape
from s2sim.units import format_bytes

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
class FittedRange(StrictFields):
    """The measurements that constants were fitted to.

    ``topology`` includes its overrides; sizes are as nccl-tests counts them. Errors are medians of
    |ln(predicted/measured)| with the shipped constants, with the fitted ones, and with those fitted without each point.
    ``logs`` has each log's name, SHA-256 and lines of tables.
    """

    topology: str
    collectives: tuple[str, ...]
    workers: tuple[int, ...]
    nodes: tuple[int, ...]
    smallest_bytes: int
    largest_bytes: int
    points: int
    median_error_before: float
    median_error_after: float
    versions: tuple[str, ...]
    logs: tuple[str, ...]
    median_error_held_out: float | None = None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants of a user's file, in place of those of its ``base`` library, and their measurements."""

    path: str
    base: str
    own: ConstantOverrides
    fitted: FittedRange

    @property
    def version(self) -> Version:
        """The library's, if all logs are of one; else none."""
        return common_version(self.fitted.versions)

    def outside(
        self, topology: str, kinds: Collection[str], workers: int, nodes: int, sizes_bytes: Collection[int]
    ) -> list[str]:
        """Return texts on each respect in which a use is outside the fitted range.

        ``topology`` includes its overrides, and ``sizes_bytes`` are as nccl-tests counts them.
        """
        fitted, found = self.fitted, []
        if topology != fitted.topology:
            found.append(f"the topology is {topology}, not {fitted.topology}")
        if others := sorted(set(kinds) - set(fitted.collectives)):
            found.append(f"{', '.join(others)} was not measured, only {', '.join(fitted.collectives)}")
        for what, number, numbers in (("workers", workers, fitted.workers), ("nodes", nodes, fitted.nodes)):
            if not min(numbers) <= number <= max(numbers):
                between = str(numbers[0]) if len(set(numbers)) == 1 else f"{min(numbers)} to {max(numbers)}"
                found.append(f"{number} {what}, not {between}")
        if sizes_bytes and (min(sizes_bytes) < fitted.smallest_bytes or max(sizes_bytes) > fitted.largest_bytes):
            ends = " to ".join(dict.fromkeys(format_bytes(end(sizes_bytes)) for end in (min, max)))
            known_ends = " to ".join(map(format_bytes, (fitted.smallest_bytes, fitted.largest_bytes)))
            found.append(f"sizes of {ends}, not {known_ends}")
        return found


@dataclass(frozen=True, slots=True)
class Library:
    """One communication library, with the options that were chosen."""

    name: str
    summary: str
    source: str
    table: tuple[LoweringRule, ...]
    groups: bool  # Whether collectives of one kind and bucket posted together are one launch: latency is paid once
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
        """The text that `s2sim.libraries.lowering.choose_library` reads back."""
        defaults = {key: values[0] for key, values in self.options}
        return join_option_string(self.name, {key: value for key, value in self.chosen if value != defaults[key]})

    def on(self, shape: ClusterShape) -> "Library":
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


_FITTED = "fitted"


def machine_text(topology: str, overrides: Sequence[str]) -> str:
    """Return a topology's name with its overrides, which identifies the machine of a calibration.

    >>> machine_text("dgx-h100", ["nic.rate=200Gbps"])
    'dgx-h100 nic.rate=200Gbps'
    """
    return " ".join([topology, *sorted(overrides)])


def read_calibration(text: str) -> Calibration:
    """Return the calibration of a file written by ``s2sim dev calibrate``; `TopologyError` if it is invalid."""
    path = user_path(text, TopologyError)
    tables = read_toml(path, TopologyError)
    texts = {key: tables.pop(key, None) for key in ("name", "base", "source")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise TopologyError(f"{path.name}: {key} is missing: let s2sim dev calibrate write the file")
    base = str(texts["base"])
    refusal = f"{path.name} is not what s2sim dev calibrate writes: [{_FITTED}]"
    fitted = validated(FittedRange, tables.pop(_FITTED, None), refusal, TopologyError, most=1)
    if not (fitted.workers and fitted.nodes and fitted.collectives):
        raise TopologyError(f"{path.name}: [{_FITTED}] names no workers, nodes or collectives")
    own = tuple(sorted((name, quantity.value) for name, quantity in flatten_tables(tables, "", path.name)))
    if f"{base}.toml" not in {path.name for path in data_directory("libraries").iterdir()}:
        raise TopologyError(f"{path.name} was fitted for {base}, which s2sim does not have")
    try:
        load_constants(base, own)
    except (TopologyError, UnitError) as error:
        raise TopologyError(f"{path.name}: {error}") from None
    except TypeError:
        raise TopologyError(f"{path.name}: a constant is a list: write its value, as in '5us' or 0.9") from None
    return Calibration(text, base, own, fitted)
