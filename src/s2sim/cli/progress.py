"""A bar on standard error, where a person watches."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from s2sim.cli.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s2sim.study.progress import Progress


@contextmanager
def watching(*, quiet: bool) -> Iterator[Progress]:
    """Yield a bar where standard error is a terminal and nobody asked for quiet, else a silent watcher."""
    from s2sim.study.progress import Silent

    progress: Progress = Silent() if quiet or not sys.stderr.isatty() else Bar()
    try:
        yield progress
    finally:
        progress.stop()


class Bar:
    """One bar a phase; it leaves no trace on the terminal.

    Implements `s2sim.study.progress.Progress`.
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def start(self, total: int, what: str) -> None:
        """Begin a phase of ``total`` advances."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.stop()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(printable(what), total=total)
        self._bar.start()

    def advance(self, steps: int = 1) -> None:
        """Take some steps of the phase."""
        if self._bar is not None:
            self._bar.advance(self._task, steps)

    def stop(self) -> None:
        """End the phase."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
