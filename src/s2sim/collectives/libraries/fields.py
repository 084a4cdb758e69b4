"""What the files of all libraries' constants have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.errors import TopologyError, nearest
from s2sim.topology.files.quantity import read_quantity
from s2sim.units import parse_size_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from s2sim.topology.files.quantity import Fields, Quantity


def take_head(tables: dict[str, Any], known: Collection[str], where: str) -> tuple[str, str]:
    """Take name and source off the tables of a file and return them; an error where others than known ones are left."""
    texts = {key: tables.pop(key, None) for key in ("name", "source")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise TopologyError(f"{where}: {key} is missing: write {key} = '...'")
    for key in tables:
        if key not in known:
            raise TopologyError(f"{where}: unknown table [{key}]{nearest(key, known)}")
    return str(texts["name"]), str(texts["source"])


def check_known(fields: Fields, known: Collection[str]) -> None:
    """Raise `TopologyError` for a field that no file of its kind has."""
    for field in fields.given:
        if field not in known:
            raise TopologyError(f"{fields.where}: unknown field {field!r}{nearest(field, sorted(known))}")


def flat_fields(table: Mapping[str, object], prefix: str, where: str) -> list[tuple[str, Quantity]]:
    """Return the values of tables inside each other by their dotted names."""
    found: list[tuple[str, Quantity]] = []
    for key, value in table.items():
        if isinstance(value, dict) and "value" not in value:
            found += flat_fields(value, f"{prefix}{key}.", where)
        else:
            found.append((prefix + key, read_quantity(value, prefix + key, where)))
    return found


def size_of(fields: Fields, field: str) -> float:
    """Return a size in bytes, infinite where none is given."""
    return parse_size_bytes(fields.given[field].value) if field in fields.given else float("inf")


def share_of(fields: Fields, field: str) -> float:
    """Return a share, more than nothing and at most 1."""
    value = fields.number(field)
    if value > 1:
        raise TopologyError(f"{fields.where}: {field} = {value} is a share: write at most 1")
    return value
