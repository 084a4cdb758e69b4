"""The part that all kits share: how a check fails, and what every plug-in of options has to say about itself."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any

from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape

if TYPE_CHECKING:
    from s2sim.topology.cluster import Cluster


def require(condition: object, message: str) -> None:
    """Raise `AssertionError` with ``message`` unless ``condition`` is true."""
    if not condition:
        raise AssertionError(message)


@cache
def example_cluster(topology: str, overrides: tuple[str, ...], workers: int) -> Cluster:
    """Return a cluster of a shipped topology; the same for the same arguments."""
    return build_cluster(load_shape(topology, overrides), workers)


def require_options(plugin: Any) -> None:
    """Check that a plug-in is a frozen dataclass with a name and a source, equal to another of the same options."""
    cls = type(plugin)
    require(dataclasses.is_dataclass(cls), f"{cls.__name__} is no dataclass: its fields are its options")
    require(cls.__dataclass_params__.frozen, f"{cls.__name__} is not frozen: add frozen=True")
    for attribute in ("name", "source"):
        text = getattr(plugin, attribute, None)
        require(isinstance(text, str) and text.strip(), f"{cls.__name__} has no {attribute}")
    require(dataclasses.replace(plugin) == plugin, f"{plugin.name} does not equal another one with equal options")
