"""Finds what is shipped beside the program, in a checkout and in an installed package alike."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_directory(kind: str) -> Path:
    """Return the directory of shipped ``kind``, the name of a folder such as ``topologies`` or ``measured``.

    A wheel carries it inside the package; in a checkout it lies beside ``src``.
    """
    installed = _PACKAGE / "_data" / kind
    return installed if installed.is_dir() else _PACKAGE.parents[1] / kind
