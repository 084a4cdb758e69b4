"""The effects of faults, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.text import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class Effect(Protocol):
        """A fault with its effect."""

        @property
        def fault(self) -> str:
            """Its option string."""

        @property
        def did(self) -> str:
            """Its effect in words."""


def fault_lines(effects: Sequence[Effect]) -> list[str]:
    """Return a line a fault: what it is, and what it did."""
    return aligned([(effect.fault, effect.did) for effect in effects], indent="  fault ")
