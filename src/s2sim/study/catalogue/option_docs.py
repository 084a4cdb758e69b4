"""What the docstrings of a class say: of itself, and of each of its options."""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import MISSING, dataclass
from typing import Any

from s2sim.options import value_text

_SECTION = re.compile(r"^(Attributes|Parameters|Examples|Raises|Notes)\n-+$", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.+)$")


@dataclass(frozen=True, slots=True)
class OptionDoc:
    """An option of a class.

    Attributes
    ----------
    name, type, text : str
        As its class, or one that this class is derived from, documents it; in one line each.
    default : str
        As option strings have it; ``none`` where nothing is given by default.
    """

    name: str
    type: str
    default: str
    text: str


def paragraphs_of(cls: type) -> tuple[str, ...]:
    """Return what a class says of itself before its options, a line each paragraph."""
    text = _SECTION.split(inspect.getdoc(cls) or "", maxsplit=1)[0]
    return tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())


def options_of(cls: type) -> tuple[OptionDoc, ...]:
    """Return the options of a dataclass, in the order of its fields.

    >>> from s2sim.reducers.systems.topka2a import TopKA2A
    >>> [(option.name, option.default) for option in options_of(TopKA2A)]
    [('density', '0.01'), ('calls', 'separate')]
    """
    documented: dict[str, tuple[str, str]] = {}
    for base in reversed(cls.__mro__):
        documented |= _documented(base)
    found = []
    for item in dataclasses.fields(cls):
        if item.init:
            type_text, text = documented.get(item.name, ("", ""))
            found.append(OptionDoc(item.name, type_text, _default(item), text))
    return tuple(found)


def _default(item: dataclasses.Field[Any]) -> str:
    return "none" if item.default is MISSING or item.default is None else value_text(item.default)


def _documented(cls: type) -> dict[str, tuple[str, str]]:
    """Return type and description of what the section "Attributes" of a class's own docstring names."""
    text = inspect.cleandoc(cls.__doc__ or "")
    _, _, section = text.partition("Attributes\n----------\n")
    found: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for line in _SECTION.split(section, maxsplit=1)[0].splitlines():
        entry = _ENTRY.match(line)
        if entry is not None:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, (entry[2], ""))
        elif line.startswith(" "):
            for name in names:
                kind, words = found[name]
                found[name] = kind, f"{words} {line.strip()}".strip()
    return found
