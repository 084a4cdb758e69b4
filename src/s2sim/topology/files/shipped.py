"""Which cluster descriptions come with s2sim, and where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.data import data_directory

if TYPE_CHECKING:
    from pathlib import Path

HARDWARE_FILE = "hardware.toml"

GROUPS = {"fabrics": ".", "machines": "machines", "clusters": "clusters"}
"""Kinds of cluster descriptions, each with its folder in ``topologies/``."""


def hardware_file() -> Path:
    """Return the path of the hardware catalogue."""
    return data_directory("topologies") / HARDWARE_FILE


def shipped_topologies() -> dict[str, Path]:
    """Return the paths of all cluster descriptions by name, one kind of them after the other."""
    directory = data_directory("topologies")
    return {
        path.stem: path
        for folder in GROUPS.values()
        for path in sorted((directory / folder).glob("*.toml"), key=lambda path: path.stem)
        if path.name != HARDWARE_FILE
    }


def group_of_topology(name: str) -> str | None:
    """Return the kind of a shipped description, one of `GROUPS`; None for a name that is not shipped."""
    directory = data_directory("topologies")
    path = shipped_topologies().get(name)
    return next((group for group, folder in GROUPS.items() if path and path.parent == directory / folder), None)
