"""Constants fitted by the user to measurements of a machine, and the range of these measurements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from s2sim.errors import TopologyError, UnitError, describe_problems
from s2sim.files import data_directory, read_toml, user_path
from s2sim.libraries.constants import ConstantOverrides, Version, common_version, flatten_tables, load_constants
from s2sim.units import format_bytes

_TEXTS = ("name", "base", "source")
_FITTED = "fitted"


@dataclass(frozen=True, slots=True)
class FittedRange:
    """The measurements that constants were fitted to.

    ``topology`` includes its overrides; sizes are as nccl-tests counts them. Errors are medians of
    |ln(predicted/measured)| with the shipped constants, with the fitted ones, and with those fitted without each point.
    ``logs`` has each log's name, SHA-256 and lines of tables.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

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
    texts = {key: tables.pop(key, None) for key in _TEXTS}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise TopologyError(f"{path.name}: {key} is missing: let s2sim dev calibrate write the file")
    base = str(texts["base"])
    from pydantic import TypeAdapter, ValidationError

    try:
        fitted = TypeAdapter(FittedRange).validate_python(tables.pop(_FITTED, None))
    except ValidationError as error:
        problems = describe_problems(error.errors(), _FITTED, most=1)
        raise TopologyError(f"{path.name}: [{_FITTED}] {problems}: let s2sim dev calibrate write the file") from None
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
