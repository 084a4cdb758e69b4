"""Plug-in registry; installed packages add entry points, as ``[project.entry-points."s2sim.reducers"]``."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from s2sim.errors import S2SimError, S2SimWarning, unknown_name


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
                warnings.warn(
                    f"{self.kind} {point.name!r} of {point.value} is ignored: the name is taken by "
                    f"{targets[point.name]}",
                    S2SimWarning,
                    stacklevel=2,
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
