"""Plug-in registry; installed packages add entry points, as ``[project.entry-points."s2sim.reducers"]``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from s2sim.errors import S2SimError, unknown_name, warn


@dataclass(frozen=True)
class Registry:
    """Entries of one kind (a singular word for messages): ``module:attribute`` texts, imported on first use."""

    kind: str
    group: str
    builtin: dict[str, str]

    @cached_property
    def _targets(self) -> dict[str, str]:
        targets = dict(self.builtin)
        # Twelve milliseconds of every command, which only lookups need.
        from importlib.metadata import entry_points

        for point in entry_points(group=self.group):
            if targets.get(point.name, point.value) != point.value:
                warn(
                    f"{self.kind} {point.name!r} of {point.value} is ignored: the name is taken by "
                    f"{targets[point.name]}"
                )
                continue
            targets[point.name] = point.value
        return targets

    def names(self) -> list[str]:
        """Return every known name, built-in ones first."""
        return list(self._targets)

    def get(self, name: str) -> Any:
        """Return the object called ``name``, importing it; `UnknownNameError` names the nearest known one."""
        if name not in self._targets:
            raise unknown_name(self.kind, name, self._targets)
        target = self._targets[name]
        module, _, attribute = target.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise S2SimError(f"{self.kind} {name!r} cannot be loaded from {target}: {error}") from error


class Catalogue:
    """A table of the own classes of a package by name: ``class``, as ``file:Class``, and facts of it."""

    def __init__(self, package: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
        self.rows = rows
        self.places = {name: f"{package}.{row['class']}" for name, row in rows.items()}
        self._names = {place: name for name, place in self.places.items()}

    def facts(self, cls: type) -> dict[str, Any]:
        """Return the name and the facts of a class; nothing of one that is not in the table, which has its own."""
        name = self._names.get(f"{cls.__module__}:{cls.__name__}")
        row = {} if name is None else {"name": name, **self.rows[name]}
        return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items() if key != "class"}
