"""The constants of a library's protocol overhead, every number with its origin."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

from s2sim.errors import TopologyError, check_known, suggest_nearest
from s2sim.files import data_directory, read_table, read_toml
from s2sim.topology.quantity import FieldReader, Quantity, read_quantity
from s2sim.units import parse_size_bytes

LINKS = ("nvlink", "pcie")
"""Links between GPUs inside a node."""

SHARES = (*LINKS, "host-memory", "host-memory-both-ways")
"""Links with a share of the rate inside a node: PCIe with peer-to-peer, and without, for one direction or both."""

HOST_LIBRARIES = ("gloo", "mpi")
"""Libraries with messages between host memories, whose files have other fields."""

ConstantOverrides: TypeAlias = tuple[tuple[str, "str | float"], ...]
"""Constants by their dotted names, with values as in a file: ``"5us"``, or 0.9."""

Version: TypeAlias = tuple[int, ...]
"""The numbers of a version, empty if unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class LibraryConstants:
    """All constants of one library by their dotted names, as in its file.

    Times are in picoseconds, rates in bytes per second and sizes in bytes. Absent times are 0, absent limits infinite.
    """

    name: str
    source: str
    values: Mapping[str, Any]
    tables: Mapping[str, tuple[str, ...]]  # Names of the tables of each section, as of ``protocol`` and ``network``
    quantities: tuple[Quantity, ...]

    def __getitem__(self, field: str) -> float:
        number: float = self.values[field]
        return number

    def named(self, *fields: str) -> list[tuple[str, float]]:
        """Return fields with their numbers; 0 for one without a name."""
        return [(field, self[field] if field else 0.0) for field in fields]

    def generation_of(self, gpu: str | None) -> str | None:
        """Return the name of the generation, the GPUs that the library treats as one class, or None."""
        return next((name for name in self.tables["generation"] if gpu in self.values[f"generation.{name}.gpus"]), None)

    def has(self, what: str, version: Version) -> bool:
        """Return whether a version of the library has a feature; no version means the newest.

        >>> from s2sim.libraries.constants import load_constants
        >>> load_constants("nccl").has("LL128", (2, 4)), load_constants("nccl").has("LL128", ())
        (False, True)
        """
        return not version or version >= self.values.get(f"since.{what}", ())


def flatten_tables(table: Mapping[str, object], prefix: str, where: str) -> list[tuple[str, Quantity]]:
    """Return the values of nested tables by their dotted names."""
    values: list[tuple[str, Quantity]] = []
    for key, value in table.items():
        if isinstance(value, dict) and "value" not in value:
            values += flatten_tables(value, f"{prefix}{key}.", where)
        else:
            values.append((prefix + key, read_quantity(value, prefix + key, where)))
    return values


# Of libraries, as opposed to those of systems and compilers in the same text.
_VERSION = re.compile(r"(?<![\d.])[12]\.\d{1,4}(\.\d{1,4})*")


def read_version(text: str) -> Version:
    """Return the first version of a library in a text, empty if there is none.

    >>> read_version("2.18 (HPC SDK 23.7)"), read_version("2.x (GIN era, >=2.28)"), read_version("NGC 25.04 container")
    ((2, 18), (2, 28), ())
    """
    match = _VERSION.search(text)
    return tuple(map(int, match[0].split("."))) if match else ()


def common_version(libraries: Collection[str]) -> Version:
    """Return the version in texts such as ``NCCL 2.21.5``; empty if they have none, or several.

    >>> common_version(["NCCL 2.21.5", "NCCL 2.21.5+cuda12.4"]), common_version(["NCCL 2.18", "NCCL 2.21"])
    ((2, 21, 5), ())
    """
    versions = {read_version(text) for text in libraries}
    return versions.pop() if len(versions) == 1 else ()


def _read_limit(fields: FieldReader, field: str) -> float:
    return fields.rate(field) or inf


def _read_version(fields: FieldReader, field: str) -> Version | None:
    if field not in fields.quantities:
        return None
    version = read_version(fields.text(field, None))
    if not version:
        raise TopologyError(f"{fields.origin}: {field} is no version: write for example '2.18'")
    return version


# What a provider's settings may turn off besides protocols: algorithms in which switches sum.
_SWITCHED = ("in-network", "nvls-tree")

Readers: TypeAlias = dict[str, Callable[[FieldReader, str], Any]]
"""What reads each field of a file; ``*`` is the name of any table of a section. None is returned for an absent one."""

_READERS: Readers = {
    "latency": FieldReader.latency,
    "share": FieldReader.share,
    "own share": lambda fields, field: fields.share(field) if field in fields.quantities else None,
    "limit": _read_limit,
    "size": lambda fields, field: parse_size_bytes(given.value) if (given := fields.quantities.get(field)) else inf,
    "count": FieldReader.required_count,
    "rate": FieldReader.required_rate,
    "version": _read_version,
    "names": lambda fields, field: tuple(fields.text(field, "").split()),
    "required names": lambda fields, field: tuple(fields.text(field, None).split()),
    "half rate": lambda fields, field: fields.rate(field) or fields.required_rate("memory.add"),
    "exponent": lambda fields, field: fields.number(field) if field in fields.quantities else inf,
    "ways": lambda fields, field: fields.text(field, "all", ("all", "direct")) == "direct",
}


@cache
def readers_of(library: str) -> Readers:
    """Return the readers of the fields of a library's file, by ``libraries/fields.csv``, which says what each is."""
    files = "host" if library in HOST_LIBRARIES else "nccl"
    rows = read_table(data_directory("libraries") / "fields.csv", ("files", "field", "read"))
    return {cells["field"]: _READERS[cells["read"]] for _, cells in rows if cells["files"] == files}


def read_constants(path: Path, own: ConstantOverrides = (), library: str = "nccl") -> LibraryConstants:
    """Return the constants of a file of ``library``, or one like it, with overrides; `TopologyError` if invalid."""
    readers = readers_of(library)
    content = read_toml(path, TopologyError)
    where, on_hosts = path.name, library in HOST_LIBRARIES
    base = content.pop("base", None)
    if base is not None:
        content = merge_tables(read_toml(data_directory("libraries") / f"{base}.toml", TopologyError), content)
    name, source = (content.pop(key, None) for key in ("name", "source"))
    for key, text in (("name", name), ("source", source)):
        if not isinstance(text, str):
            raise TopologyError(f"{where}: {key} is missing: write {key} = '...'")
    sections = list(dict.fromkeys(field.partition(".")[0] for field in readers))
    for section in content:
        check_known(section, sections, f"{where}: unknown table [{section}]", TopologyError)
    values: dict[str, Any] = {
        f"generation.{each}.gpus": _read_names(table, f"generation.{each}.gpus", where)
        for each, table in content.get("generation", {}).items()
    }
    given = dict(flatten_tables(content, "", where))
    for field, value in own:
        if field not in given:
            near = suggest_nearest(field, given)
            raise TopologyError(
                f"{name} has no constant {field}{near}" if on_hosts else f"{where} has no constant {field!r}"
            )
        origin = "fitted" if on_hosts else "fitted to measurements of one's own"
        given[field] = Quantity(field, value, "measured", origin)
    fields = FieldReader(given, where)
    tables = {section: tuple(content.get(section, {})) for section in sections}
    # Of generations without a table no NVSwitch reduces.
    tables["in-network"] = tuple(each for each in tables.get("generation", ()) if each in content.get("in-network", ()))
    protocols = tables.get("protocol", ())
    readers = readers | {f"since.{each}": _read_version for each in protocols}
    # Limits of data: of a rank inside a node by protocol, and of one channel over several nodes, as bus bandwidth, by
    # algorithm and protocol.
    limits = [f"{each}{nodes}" for each in protocols for nodes in ("", "-two-nodes", "-more-nodes")]
    limits += [f"{of}-{each}{nodes}" for of in ("tree", "ring") for each in protocols for nodes in ("", "-two-nodes")]
    readers |= {f"generation.*.{each}": _read_limit for each in limits}
    known = {
        pattern.replace("*", each): read
        for pattern, read in readers.items()
        for each in (tables[pattern.partition(".")[0]] if "*" in pattern else ("",))
    }
    for field in given:
        check_known(field, known, f"{where}: unknown field {field!r}", TopologyError)
    values |= {field: read(fields, field) for field, read in known.items()}
    values = {field: value for field, value in values.items() if value is not None}
    names = (*protocols, *_SWITCHED)
    for field in (f"network.{each}.off" for each in tables.get("network", ())):
        for wrong in (each for each in values.get(field, ()) if each not in names):
            raise TopologyError(f"{where}: {field} has {wrong!r}{suggest_nearest(wrong, names)}")
    return LibraryConstants(name, source, values, tables, tuple(given.values()))


def merge_tables(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables in which ``overrides`` replace values of ``base``."""
    merged = dict(base)
    for key, value in overrides.items():
        tables = isinstance(value, dict) and "value" not in value and isinstance(base.get(key), dict)
        merged[key] = merge_tables(base[key], value) if tables else value
    return merged


def _read_names(table: dict[str, object], field: str, where: str) -> tuple[str, ...]:
    names = table.pop("gpus", None)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TopologyError(f"{where}: {field} is a list of names: write for example ['h100']")
    return tuple(names)


@cache
def load_constants(library: str, own: ConstantOverrides = ()) -> LibraryConstants:
    """Return the shipped constants of a library by its name, with overrides."""
    return read_constants(data_directory("libraries") / f"{library}.toml", own, library)
