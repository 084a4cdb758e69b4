"""Patterns with what a library adds to their messages, found once for all sizes and rates with which they are sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from s2sim.collectives.schedules.overheads import Overheads
    from s2sim.collectives.schedules.schedule import Pattern

# Some 150 bytes each.
_KEPT_MESSAGES = 1 << 18


class KeptPatterns:
    """Patterns as a library sends them on one cluster, and on others that differ from it in rates alone.

    As many as memory holds are kept, those that were used last.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[bytes, Hashable], Pattern] = {}
        self._messages = 0

    def of(self, pattern: Pattern, told: Hashable, overheads: Callable[[], Overheads | None]) -> Pattern:
        """Return a pattern with its overheads, which are computed once; itself where there are none.

        They depend on ``told``, the pattern and the cluster alone, see `Profile.told_by`.
        """
        key = (pattern.key, told)
        sent = self._found.pop(key, None)
        if sent is None:
            found = overheads()
            if found is None:
                return pattern
            sent = replace(pattern, overheads=found)
            self._messages += sent.messages
            while self._found and self._messages > _KEPT_MESSAGES:
                self._messages -= self._found.pop(next(iter(self._found))).messages
        self._found[key] = sent
        return sent
