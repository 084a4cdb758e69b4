"""Costs of what the host's CPU does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Phase


def code_on_host(steps: int, copied_bytes: int, phase: Phase) -> Work:
    """Return the cost of values or bits that one core codes one after the other, with what is copied over PCIe.

    The GPU has no part in it. What comes from there a program first waits for, with ``rank.synchronise()``.
    """
    return Work(phase, 0, launches=0, host_steps=steps, copied_bytes=copied_bytes)
