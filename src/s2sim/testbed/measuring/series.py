"""Measures one testbed after the other, each made for it and removed again, and goes on where a folder ends."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from s2sim.testbed.measuring.session import measure, missing, setting_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from s2sim.testbed.measuring.task import Plan
    from s2sim.testbed.network.layout import Layout


def measure_series(
    folder: Path,
    layouts: Sequence[Layout],
    plan: Plan,
    *,
    command: str,
    existing: bool = False,
    start: Callable[[int, str], None],
    advance: Callable[[], None],
) -> int:
    """Measure what a folder has no row of, and return how many rows that were.

    Parameters
    ----------
    folder : Path
        Rows are added to it one by one, so that those of before stay whatever happens.
    layouts : sequence of Layout
        Testbeds; each is made and removed, unless they are ``existing``.
    command : str
        What was called, for the table of settings.
    start, advance : callable
        Called with the number of rows and what they are of before each testbed, and after each row.
    """
    from s2sim.testbed.network.build import temporary
    from s2sim.testbed.network.layout import places

    rows = 0
    todo = [(layout, missing(folder, setting_here(layout, command), plan)) for layout in layouts]
    for number, (layout, tasks) in enumerate(todo, 1):
        if not tasks:
            continue
        count = sum(map(len, tasks.values()))
        start(count, f"testbed {layout.name}, {number} of {len(todo)} (rows)")
        block: AbstractContextManager[Any] = nullcontext() if existing else temporary(layout)
        with block:
            measure(folder, setting_here(layout, command), places(layout), tasks, plan, advance)
        rows += count
    return rows
