"""A value of a description file together with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from s2sim.errors import TopologyError, UnitError, nearest
from s2sim.units import parse_rate_Bps, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

KINDS = ("datasheet", "measured", "estimated", "user")
_KEYS = ("value", "kind", "source")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One value as a file states it, ``"100Gbps"`` or ``4``, and where it comes from; no source for a plain value."""

    field: str
    value: Any
    kind: str
    source: str


def read_quantity(raw: Any, field: str, where: str) -> Quantity:
    """Return a plain value, or an inline table ``{ value, kind, source }``, as a quantity; ``where`` names the file."""
    if not isinstance(raw, dict):
        return Quantity(field, raw, "user", "")
    for key in raw:
        if key not in _KEYS:
            raise TopologyError(f"{where}: {field} has an unknown key {key!r}{nearest(key, _KEYS)}")
    if "value" not in raw:
        raise TopologyError(f"{where}: {field} is a table without a value: write {{ value = ..., kind, source }}")
    kind, source = raw.get("kind", "user"), raw.get("source", "")
    if kind not in KINDS:
        raise TopologyError(f"{where}: {field} has the kind {kind!r}{nearest(str(kind), KINDS)}")
    if not isinstance(source, str) or (kind != "user" and not source.strip()):
        raise TopologyError(f"{where}: {field} is {kind} and names no source: add source = '...'")
    return Quantity(field, raw["value"], kind, source)


def _parsed(parse: Callable[[object], T], quantity: Quantity, where: str) -> T:
    try:
        return parse(quantity.value)
    except UnitError as error:
        raise UnitError(f"{where}: {quantity.field}: {error}") from error


def rate_Bps(quantity: Quantity, where: str) -> float:
    """Return a rate in bytes per second."""
    return _parsed(parse_rate_Bps, quantity, where)


def time_ps(quantity: Quantity, where: str) -> int:
    """Return a time in picoseconds."""
    return _parsed(parse_time_ps, quantity, where)


def count(quantity: Quantity, where: str) -> int:
    """Return a whole number of things, at least one."""
    value = quantity.value
    if isinstance(value, bool) or not isinstance(value, int):
        raise TopologyError(f"{where}: {quantity.field} = {value!r} is not a whole number")
    if value < 1:
        raise TopologyError(f"{where}: {quantity.field} = {value} must be at least 1")
    return value


def sides(quantity: Quantity, where: str, most: int) -> tuple[int, ...]:
    """Return a row of whole numbers from 1 to ``most``, given as a list or as a text: ``[4, 4, 2]``, ``"4x4x2"``."""
    value = quantity.value
    if isinstance(value, str):
        items: list[Any] = [int(part) if part.isdecimal() and len(part) < 20 else part for part in value.split("x")]
    else:
        items = value if isinstance(value, list) else [value]
    if not items or any(isinstance(item, bool) or not isinstance(item, int) or not 0 < item <= most for item in items):
        raise TopologyError(
            f"{where}: {quantity.field} = {str(value)[:40]} is not a row of whole numbers from 1 to {most}: write "
            "for example [4, 4, 2] or 4x4x2"
        )
    return tuple(items)


def number(quantity: Quantity, where: str) -> float:
    """Return a positive number without a unit."""
    value = quantity.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise TopologyError(f"{where}: {quantity.field} = {value!r} is not a positive number")
    return float(value)


def text(quantity: Quantity, where: str, choices: tuple[str, ...] = ()) -> str:
    """Return a text, one of ``choices`` where there are any."""
    value = quantity.value
    if not isinstance(value, str):
        raise TopologyError(f"{where}: {quantity.field} = {value!r} is not a text")
    if choices and value not in choices:
        raise TopologyError(f"{where}: {quantity.field} = {value!r} is unknown{nearest(value, choices)}")
    return value
