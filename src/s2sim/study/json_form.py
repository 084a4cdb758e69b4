"""Specs, rows and results as JSON: every field under its name, or under the key that its metadata says."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import Field

_PATH = "json"

MayBeInfinite: TypeAlias = Annotated[float, "null in files where it is infinite"]

LEFT_OUT: dict[str, tuple[str, ...]] = {_PATH: ()}
"""Metadata of a field that does not stand in JSON under any key."""


def key(*path: str) -> dict[str, tuple[str, ...]]:
    """Return the metadata of a field that stands in JSON under another key; several are objects in one another."""
    return {_PATH: path}


def json_path(field: Field[Any]) -> tuple[str, ...] | None:
    """Return under which keys, one in the other, a field stands in JSON; None where it does not."""
    return field.metadata.get(_PATH, (field.name,)) or None


class JsonForm:
    """Gives a dataclass its JSON form: its fields, and what `more_json` derives from them."""

    __slots__ = ()

    def more_json(self) -> Mapping[str, Any]:
        """Return what stands in JSON beside the fields; the schema has it where a typed dictionary is returned."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Return the value with the keys that other programs rely on."""
        found: dict[str, Any] = _fields_json(self)
        return found | {name: json_value(value) for name, value in self.more_json().items()}


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: dataclasses as objects, rows and arrays as lists."""
    if isinstance(value, JsonForm):
        return value.to_json()
    if is_dataclass(value):
        return _fields_json(value)
    if isinstance(value, dict):
        return {name: json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _fields_json(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(value):
        path = json_path(field)
        if path is not None:
            *outer, name = path
            inside = found
            for table in outer:
                inside = inside.setdefault(table, {})
            inside[name] = json_value(getattr(value, field.name))
    return found
