"""Versions of libraries, as people write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection

# Of libraries; other numbers with dots, of systems and compilers, stand beside them.
_VERSION = re.compile(r"(?<![\d.])[12]\.\d{1,4}(\.\d{1,4})*")

Version: TypeAlias = tuple[int, ...]
"""The numbers of a version, none where it is not known."""


def read_version(text: str) -> Version:
    """Return the first version of a library that people wrote in a text, none where there is none.

    >>> read_version("2.18 (HPC SDK 23.7)"), read_version("2.x (GIN era, >=2.28)"), read_version("NGC 25.04 container")
    ((2, 18), (2, 28), ())
    """
    found = _VERSION.search(text)
    return tuple(map(int, found[0].split("."))) if found else ()


def version_of(libraries: Collection[str]) -> Version:
    """Return the one version that texts such as ``NCCL 2.21.5`` name; none where they name none, or several.

    >>> version_of(["NCCL 2.21.5", "NCCL 2.21.5+cuda12.4"]), version_of(["NCCL 2.18", "NCCL 2.21"])
    ((2, 21, 5), ())
    """
    found = {read_version(text) for text in libraries}
    return found.pop() if len(found) == 1 else ()
