"""The traces that come with the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.data import data_directory
from s2sim.gradients.traces.manifest_file import MANIFEST_NAME, read_manifest
from s2sim.words import number_of

if TYPE_CHECKING:
    from pathlib import Path


def shipped_directories() -> dict[str, Path]:
    """Return the directory of every shipped trace by name, in alphabetical order."""
    root = data_directory("traces")
    return {path.parent.name: path.parent for path in sorted(root.glob(f"*/{MANIFEST_NAME}"))}


def shipped_traces() -> list[tuple[str, str, str]]:
    """Return (name, what it is, where it is from) of every shipped trace, from the manifests alone."""
    rows = []
    for name, directory in shipped_directories().items():
        manifest = read_manifest(directory)
        size = f"{manifest.parameters / 1e6:.2g} M parameters"
        extent = f"{number_of(manifest.world_size, 'rank')} x {number_of(manifest.steps, 'step')}"
        rows.append(
            (name, f"{manifest.model}; {size}; {extent}", f"{manifest.origin.data} ({manifest.origin.licence})")
        )
    return rows
