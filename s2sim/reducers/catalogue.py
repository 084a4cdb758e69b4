"""What the tables beside this file say of s2sim's own reducers and wrappers; plug-ins say it in their classes."""

import tomllib
from dataclasses import Field
from functools import cache
from pathlib import Path
from typing import Any

_ROOM = __name__.rpartition(".")[0]
_SYSTEMS = f"{_ROOM}.systems"
_PLACE = ("family", "class")  # Where a reducer stands: no fields of `Traits`


@cache
def read_table(name: str) -> dict[str, dict[str, Any]]:
    """Return a table by its name: ``systems``, or ``options``, which documentation alone reads."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))


@cache
def reducer_places() -> dict[str, dict[str, str]]:
    """Return the own reducers of each family by name, as ``module:class``, in the order in which they are listed."""
    table = read_table("systems")
    rows = table["reducers"].items()
    return {
        family: {name: f"{_SYSTEMS}.{row['class']}" for name, row in rows if row["family"] == family}
        for family in table["families"]
    }


@cache
def _names() -> dict[str, str]:
    return {place: name for places in reducer_places().values() for name, place in places.items()}


def own_traits(cls: type) -> dict[str, Any] | None:
    """Return the arguments of the `Traits` of an own reducer; None for any other class."""
    if cls.__module__.rpartition(".")[0] != _SYSTEMS:
        return None
    name = _names().get(f"{cls.__module__}:{cls.__name__}")
    if name is None:
        return None
    row = read_table("systems")["reducers"][name]
    return {"name": name, **{key: row[key] for key in row if key not in _PLACE}}


def option_text(cls: type, item: Field[Any]) -> str | None:
    """Return what an option of a reducer or wrapper does, by its own field or the nearest class with a text of it."""
    if "text" in item.metadata:  # See `s2sim.options.option`.
        return str(item.metadata["text"])
    table, own = read_table("options"), [base for base in cls.__mro__ if base.__module__.startswith(f"{_ROOM}.")]
    texts = (table.get(base.__name__, {}).get(item.name) for base in own)
    return next((table["*"].get(text, text) for text in texts if text), None)
