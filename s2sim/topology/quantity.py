"""The values of a description file, with their kind and source."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from s2sim.errors import TopologyError, check_known, suggest_nearest
from s2sim.units import parse_option, parse_rate_Bps, parse_size_bytes, parse_time_ps, parse_work_rate_per_s

T = TypeVar("T")

KINDS = ("datasheet", "measured", "estimated", "user")
_KEYS = ("value", "kind", "source")

MAX_TEXT = 40
"""Digits and letters of a value that a message shows."""

# No cluster has more of anything.
_MAX_COUNT = 10**9


@dataclass(frozen=True, slots=True)
class Quantity:
    """One value as a file states it, ``"100Gbps"`` or ``4``, and its source, empty for a plain value."""

    field: str
    value: Any
    kind: str
    source: str

    def of(self, field: str, value: Any = None) -> "Quantity":
        """Return it as another field, with another value if that is derived from it."""
        return replace(self, field=field, value=self.value if value is None else value)


def read_quantity(raw: Any, field: str, where: str) -> "Quantity":
    """Return a plain value, or an inline table ``{ value, kind, source }``, as a quantity; ``where`` names the file."""
    if not isinstance(raw, dict):
        return Quantity(field, raw, "user", "")
    for key in raw:
        check_known(key, _KEYS, f"{where}: {field} has an unknown key {key!r}", TopologyError)
    if "value" not in raw:
        raise TopologyError(f"{where}: {field} is a table without a value: write {{ value = ..., kind, source }}")
    kind, source = raw.get("kind", "user"), raw.get("source", "")
    check_known(kind, KINDS, f"{where}: {field} has the kind {kind!r}", TopologyError)
    if not isinstance(source, str) or (kind != "user" and not source.strip()):
        raise TopologyError(f"{where}: {field} is {kind} and names no source: add source = '...'")
    return Quantity(field, raw["value"], kind, source)


class FieldReader:
    """Values of a file by dotted name; errors name the file and the field as written there."""

    def __init__(self, given: dict[str, Quantity], where: str) -> None:
        self.quantities, self.origin = given, where

    def error(self, text: str) -> TopologyError:
        """Return an error about the file."""
        return TopologyError(f"{self.origin}: {text}")

    def required(self, field: str) -> Quantity:
        """Return a required field."""
        if field not in self.quantities:
            raise self.error(f"{field} is missing")
        return self.quantities[field]

    def text(self, field: str, default: str | None, choices: tuple[str, ...] = ()) -> str:
        """Return a text, one of any ``choices``; required without a default."""
        if field not in self.quantities and default is not None:
            return default
        value = self.required(field).value
        if not isinstance(value, str):
            raise self._refused(field, f"= {value!r} is not a text")
        if choices and value not in choices:
            raise self._refused(field, f"= {value!r} is unknown{suggest_nearest(value, choices)}")
        return value

    def count(self, field: str) -> int | None:
        """Return a whole number of at least 1; None if absent."""
        return self.required_count(field) if field in self.quantities else None

    def required_count(self, field: str) -> int:
        """Return a required whole number of at least 1."""
        value = self.required(field).value
        if len(str(value)) > MAX_TEXT:
            raise self._refused(field, f"= {str(value)[:MAX_TEXT]}... is out of range: at most {_MAX_COUNT}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._refused(field, f"= {value!r} is not a whole number")
        if value < 1:
            raise self._refused(field, f"= {value} must be at least 1")
        if value > _MAX_COUNT:
            raise self._refused(field, f"= {value} is out of range: at most {_MAX_COUNT}")
        return value

    def size(self, field: str) -> tuple[int, ...] | None:
        """Return a row of whole numbers, ``[4, 4, 2]`` or ``"4x4x2"``; None if absent."""
        if field not in self.quantities:
            return None
        value = self.quantities[field].value
        if isinstance(value, str):
            items: list[Any] = [int(part) if part.isdecimal() and len(part) < 20 else part for part in value.split("x")]
        else:
            items = value if isinstance(value, list) else [value]
        if not items or any(type(item) is not int or not 0 < item <= _MAX_COUNT for item in items):
            raise self._refused(
                field,
                f"= {str(value)[:40]} is not a row of whole numbers from 1 to {_MAX_COUNT}: write "
                "for example [4, 4, 2] or 4x4x2",
            )
        return tuple(items)

    def bytes(self, field: str) -> float | None:
        """Return a size in bytes; None if absent."""
        return float(self._parsed(parse_size_bytes, field)) if field in self.quantities else None

    def number(self, field: str) -> float:
        """Return a required positive number without a unit."""
        value = self.required(field).value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._refused(field, f"= {value!r} is not a positive number")
        return float(value)

    def share(self, field: str) -> float:
        """Return a required positive number of at most 1."""
        if (value := self.number(field)) > 1:
            raise self._refused(field, f"= {value} is a share: write at most 1")
        return value

    def rate(self, field: str) -> float | None:
        """Return bytes per second; None if absent."""
        return self.required_rate(field) if field in self.quantities else None

    def work_rate(self, field: str) -> float | None:
        """Return operations per second; None if absent."""
        return self._parsed(parse_work_rate_per_s, field) if field in self.quantities else None

    def required_rate(self, field: str) -> float:
        """Return required bytes per second."""
        return self._parsed(parse_rate_Bps, field)

    def latency(self, field: str) -> int:
        """Return picoseconds; 0 if absent."""
        return self._parsed(parse_time_ps, field) if field in self.quantities else 0

    def _parsed(self, parse: Callable[[object], T], field: str) -> T:
        quantity = self.required(field)
        return parse_option(f"{self.origin}: {quantity.field}", parse, quantity.value)

    def _refused(self, field: str, why: str) -> TopologyError:
        return self.error(f"{self.quantities[field].field} {why}")
