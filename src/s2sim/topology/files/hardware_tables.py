"""The hardware catalogue as tables of values, each with its kind and source, before anybody asks what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from s2sim.errors import TopologyError, unknown_name
from s2sim.text_files import read_toml
from s2sim.topology.files.quantity import Quantity, read_quantity
from s2sim.topology.files.shipped import hardware_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DEFAULTS = "defaults"
# What tables say of themselves.
_TEXTS = ("description", "source", "kind", "like", "names")
Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One table of a hardware file, with what it has from others.

    Attributes
    ----------
    quantities : dict of str to Quantity
        What is known of it, by field; their own names are ``SECTION.NAME.FIELD``.
    names : tuple of str
        How else people write its name.
    """

    section: str
    name: str
    description: str
    source: str
    names: tuple[str, ...]
    quantities: dict[str, Quantity]

    def value(self, field: str) -> Any:
        """Return a value as it is written; None where there is none."""
        return self.quantities[field].value if field in self.quantities else None


@dataclass(frozen=True, slots=True)
class HardwareTables:
    """A hardware file, by section and name; what tables have from others is found when they are asked for."""

    where: str
    sections: dict[str, dict[str, Table]]

    def names(self, section: str) -> list[str]:
        """Return the names of a section's tables, in order."""
        return list(self.sections.get(section, {}))

    def part(self, section: str, name: str) -> Part:
        """Return one table; values that stand alone take its kind and source, and what it lacks comes from others."""
        own = self.sections[section][name]
        found: dict[str, Quantity] = {}
        for table in self._chain(section, name):
            for key, raw in table.items():
                if key not in _TEXTS and key not in found:
                    found[key] = read_quantity(_with_origin(raw, table), f"{section}.{name}.{key}", self.where)
        return Part(
            section=section,
            name=name,
            description=self._text(own, "description", f"{section}.{name}"),
            source=self._text(own, "source", f"{section}.{name}"),
            names=tuple(map(str, own.get("names", ()))),
            quantities=found,
        )

    def _chain(self, section: str, name: str) -> Iterator[Table]:
        """Yield a table, those that it is like, and what is taken for all of its section."""
        seen = [name]
        table = self.sections[section][name]
        while True:
            yield table
            if not (like := self._text(table, "like", f"{section}.{seen[-1]}")):
                break
            known = self.sections.get(_DEFAULTS, {}) | self.sections[section]
            if like in seen or like not in known:
                raise TopologyError(f"{self.where}: {section}.{name} is like {like!r}, which is no other table")
            seen.append(like)
            table = known[like]
        yield self.sections.get(_DEFAULTS, {}).get(section, {})

    def _text(self, table: Table, key: str, shown: str) -> str:
        value = table.get(key, "")
        if not isinstance(value, str):
            raise TopologyError(f"{self.where}: {shown}.{key} = {value!r} is not a text")
        return value


def _with_origin(raw: Any, table: Table) -> Any:
    """Return a value with the kind and source of its table where it has none of its own."""
    if isinstance(raw, dict) or "kind" not in table:
        return raw
    return {"value": raw, "kind": table["kind"], "source": table.get("source", "")}


def read_tables(path: Path) -> HardwareTables:
    """Return the tables of a hardware file; what is no section of tables is left out."""
    sections = {
        section: tables
        for section, tables in read_toml(path, TopologyError).items()
        if isinstance(tables, dict) and all(isinstance(table, dict) for table in tables.values())
    }
    return HardwareTables(path.name, sections)


@cache
def _read_once(path: Path) -> HardwareTables:
    return read_tables(path)


def shipped_tables() -> HardwareTables:
    """Return the catalogue that comes with s2sim."""
    return _read_once(hardware_file())


def shipped_part(section: str, name: str, noun: str) -> Part:
    """Return one table of the shipped catalogue; `UnknownNameError` names the nearest."""
    tables = shipped_tables()
    if name not in tables.names(section):
        raise unknown_name(noun, name, tables.names(section))
    return tables.part(section, name)
