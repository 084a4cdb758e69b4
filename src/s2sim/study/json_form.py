"""Specs, rows and results as JSON: an object with the names of the fields as keys, and of a few properties."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MayBeInfinite: TypeAlias = Annotated[float, "null in files where it is infinite"]

_LOAD = "load"
INLINE: dict[str, bool] = {"inline": True}
"""Metadata of a field whose schema stands within that of its class."""
LEFT_OUT: dict[str, Any] = {_LOAD: None}
"""Metadata of a field that does not stand in JSON, and has its default after loading."""


def left_out(load: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
    """Return the metadata of a field that does not stand in JSON, and that ``load`` makes from the object's keys."""
    return {_LOAD: load}


class JsonForm:
    """A dataclass that other programs read.

    Attributes
    ----------
    more_json : tuple of str
        Fields and properties that stand in JSON after all other fields, in this order; those whose name ends with a
        question mark only where they are neither None nor empty.
    """

    __slots__ = ()
    more_json: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value with the keys that other programs rely on."""
        found: dict[str, Any] = _object(self)
        return found


def json_keys(kind: type) -> dict[str, bool]:
    """Return the keys of a class in their order, and whether each is always there."""
    more: tuple[str, ...] = getattr(kind, "more_json", ())
    last = {name.rstrip("?"): not name.endswith("?") for name in more}
    if not is_dataclass(kind):
        return dict.fromkeys(kind._fields, True)  # type: ignore[attr-defined] # a named tuple
    own = {field.name: True for field in fields(kind) if _LOAD not in field.metadata and field.name not in last}
    return own | last


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: dataclasses and named tuples as objects, other tuples and arrays as lists."""
    if isinstance(value, JsonForm):
        return value.to_json()
    if is_dataclass(value) or hasattr(value, "_fields"):
        return _object(value)
    if isinstance(value, dict):
        return {name: json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _object(value: Any) -> dict[str, Any]:
    """Return a dataclass or named tuple as an object."""
    found = {}
    for name, always in json_keys(type(value)).items():
        item = getattr(value, name)
        if always or not (item is None or item in ((), [], {})):
            found[name] = json_value(item)
    return found
