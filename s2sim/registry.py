"""One plug-in registry for codecs, reducers, collectives, disciplines of exchange and topologies.

Built-in entries are ``module:attribute`` texts, imported when first used. Installed packages add their own through
entry points of the group ``s2sim.<kind>``, for example ``[project.entry-points."s2sim.reducers"]``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from s2sim.errors import S2SimError, S2SimWarning, unknown_name


@dataclass(frozen=True)
class Registry:
    """Names of one kind (a singular word for messages) and what they stand for, ``module:attribute`` texts.

    An installed package adds to the built-in ones by the entry-point group.
    """

    kind: str
    group: str
    builtin: dict[str, str]

    @cached_property
    def _targets(self) -> dict[str, str]:
        targets = dict(self.builtin)
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
        """Return what ``name`` stands for, importing it; `UnknownNameError` names the nearest known one."""
        if name not in self._targets:
            raise unknown_name(self.kind, name, self._targets)
        target = self._targets[name]
        module, _, attribute = target.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise S2SimError(f"{self.kind} {name!r} cannot be loaded from {target}: {error}") from error
