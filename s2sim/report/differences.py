"""What differs between two results: inputs first, then figures, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from s2sim.tables import Table, table_of

# What names a row; other values are figures or texts.
_KEYS = ("kind", "topology", "workers", "size_bytes", "reducer", "algorithm", "name", "curve", "step")
_IGNORED = ("sha256", "environment", "s2sim")


def compare_results(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Table, Table]:
    """Return the inputs and the figures that differ between two results, as JSON objects."""
    inputs: list[dict[str, Any]] = []
    figures: list[dict[str, Any]] = []
    for found in _walk(a, b, ""):
        is_input = found["where"].startswith(("spec.", "provenance.inputs."))
        (inputs if is_input else figures).append(found)
    return table_of(inputs), table_of(figures)


def _walk(a: Any, b: Any, where: str) -> Iterator[dict[str, Any]]:
    """Yield a row of a table for each value that differs, None where one result has none, with the ratio of numbers."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in dict.fromkeys([*a, *b]):
            if not any(part in name for part in _IGNORED):
                yield from _walk(a.get(name), b.get(name), f"{where}.{name}" if where else name)
    elif isinstance(a, list) and isinstance(b, list):
        yield from _walk(_by_key(a), _by_key(b), where)
    elif a != b:
        numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (a, b))
        yield {"where": where, "a": _text(a), "b": _text(b), "b_over_a": b / a if numbers and a else None}


def _by_key(items: list[Any]) -> dict[str, Any]:
    """Return the items of a list by what names them, or by their place."""
    named: dict[str, Any] = {}
    for place, item in enumerate(items):
        keys = [item[key] for key in _KEYS if isinstance(item, Mapping) and item.get(key) is not None]
        name = " ".join(map(str, dict.fromkeys(keys))) or str(place)
        named[f"[{name}]" if f"[{name}]" not in named else f"[{name} {place}]"] = item
    return named


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else str(value)
