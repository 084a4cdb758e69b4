"""What a long computation tells whoever watches it."""

from collections.abc import Collection, Iterator
from typing import TypeVar

T = TypeVar("T")

INTERRUPTED_NOTE = "interrupted: what was not finished is missing"
"""Stands among the notes of a result that somebody did not want to wait for."""


class ProgressWatcher:
    """Watches one phase after another, without a word; `s2sim.cli` draws a bar."""

    def start(self, total: int, what: str) -> None:
        """Begin a phase of ``total`` advances."""

    def advance(self, steps: int = 1) -> None:
        """Take some steps of the phase."""

    def stop(self) -> None:
        """End the last phase."""


def watched(watcher: ProgressWatcher, what: str, items: Collection[T]) -> Iterator[T]:
    """Yield items, of which each is a step of a phase."""
    watcher.start(len(items), what)
    for item in items:
        yield item
        watcher.advance()
    watcher.stop()


def tell(watcher: ProgressWatcher, line: str) -> None:
    """Tell a watcher who listens, by a method ``tell``, of a result that is finished."""
    if (listens := getattr(watcher, "tell", None)) is not None:
        listens(line)


SILENT = ProgressWatcher()
"""Watches without a word."""
