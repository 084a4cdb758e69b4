"""Implicit feedback at hand everywhere: which identifier occurs in which file of the Python standard library."""

from __future__ import annotations

import ast
import platform
import sysconfig
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from s2sim.bridge.task import DataOrigin
from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.arrays import Ints


# Where syntax-tree nodes keep an identifier: names, attributes, parameters, definitions and imports.
_IDENTIFIER_FIELDS = ("id", "attr", "arg", "name")


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Pairs of a user (a file) and an item (an identifier in it), int64 (n,), sorted by user, then item, each once.

    Identifiers are numbered by falling frequency.
    """

    users: Ints
    items: Ints
    user_count: int
    item_count: int
    origin: DataOrigin


def identifiers(source: bytes) -> set[str]:
    """Return the identifiers of a Python source, empty if it does not parse.

    >>> sorted(identifiers(b"print(os.name)"))
    ['name', 'os', 'print']
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old files hold escapes that newer versions warn of
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    found = (getattr(node, field, None) for node in ast.walk(tree) for field in _IDENTIFIER_FIELDS)
    return {value for value in found if isinstance(value, str)}


def interactions_of(per_file: Iterable[set[str]], origin: DataOrigin) -> Interactions:
    """Return the pairs of file and identifier, identifiers in at least two files only."""
    files = [names for names in per_file if names]
    counts = Counter(name for names in files for name in names)
    ranked = sorted((name for name, count in counts.items() if count > 1), key=lambda name: (-counts[name], name))
    numbers = {name: number for number, name in enumerate(ranked)}
    rows = [sorted(numbers[name] for name in names if name in numbers) for names in files]
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    items = np.array([item for row in rows for item in row], np.int64)
    return Interactions(users, items, len(rows), len(ranked), origin)


@cache
def standard_library_interactions() -> Interactions:
    """Return the interactions of the running interpreter's standard library, site packages left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(root.rglob("*.py")) if "site-packages" not in path.relative_to(root).parts]
    if not paths:
        raise S2SimError(f"the standard library at {root} has no .py files: use a Python installed with its sources")
    origin = DataOrigin(
        data=f"which identifier occurs in which file of the Python {platform.python_version()} standard library",
        licence="Python Software Foundation License 2",
        source="the standard library of the recording interpreter, parsed with ast; https://www.python.org/",
    )
    return interactions_of((identifiers(path.read_bytes()) for path in paths), origin)
