"""What the tables beside this file say of s2sim's own reducers and wrappers; plug-ins say it in their classes."""

from dataclasses import Field
from typing import Any

from s2sim.files import own_tables
from s2sim.registry import Catalogue

_ROOM = __name__.rpartition(".")[0]


def read_table(name: str) -> dict[str, dict[str, Any]]:
    """Return a table by its name: ``systems``, or ``options``, which documentation alone reads."""
    return own_tables(__file__, f"{name}.toml")


OWN = Catalogue(f"{_ROOM}.systems", read_table("systems")["reducers"])


def own_traits(cls: type) -> dict[str, Any] | None:
    """Return the arguments of the `Traits` of an own reducer; None for any other class."""
    return {key: value for key, value in OWN.facts(cls).items() if key != "family"} or None


def option_text(cls: type, item: Field[Any]) -> str | None:
    """Return what an option of a reducer or wrapper does, by its own field or the nearest class with a text of it."""
    if "text" in item.metadata:  # See `s2sim.options.option`.
        return str(item.metadata["text"])
    table, own = read_table("options"), [base for base in cls.__mro__ if base.__module__.startswith(f"{_ROOM}.")]
    texts = (table.get(base.__name__, {}).get(item.name) for base in own)
    return next((table["*"].get(text, text) for text in texts if text), None)
