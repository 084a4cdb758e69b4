"""Finds cluster descriptions by name or path."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.errors import TopologyError, unknown_name
from s2sim.registry import Registry
from s2sim.text_files import is_toml_path, user_path
from s2sim.topology.files.read import read_shape
from s2sim.topology.files.shipped import shipped_topologies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.topology.shape import ClusterShape

# An installed package adds its own: an entry point of this group names the path of a TOML file.
_PLUGINS = Registry("topology", "s2sim.topologies", {})


def _path_of(name_or_path: str) -> Path:
    if is_toml_path(name_or_path):
        return user_path(name_or_path, TopologyError)
    shipped = shipped_topologies()
    if name_or_path in shipped:
        return shipped[name_or_path]
    installed = _PLUGINS.names()
    if name_or_path not in installed:
        # A name wins over what happens to lie in the working directory.
        if os.path.lexists(name_or_path):
            raise TopologyError(f"{name_or_path} is a path and not a name: give a TOML file as ./FILE")
        raise unknown_name("topology", name_or_path, [*shipped, *installed])
    return Path(_PLUGINS.get(name_or_path))


def load_shape(name_or_path: str | Path, overrides: Sequence[str] = ()) -> ClusterShape:
    """Return the shape of a shipped topology (a name) or of the user's own file (a text with a slash, or in ``.toml``).

    ``overrides`` are ``"field=value"`` each, for example ``"nic.rate=100Gbps"``; later ones win.
    """
    path = name_or_path if isinstance(name_or_path, Path) else _path_of(name_or_path)
    return read_shape(path, overrides)


def list_topologies() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary, source) of every topology that a name stands for, shipped ones first."""
    names = [*shipped_topologies(), *_PLUGINS.names()]
    shapes = [(name, read_shape(_path_of(name))) for name in names]
    return [(name, shape.description, shape.source) for name, shape in shapes]
