"""A paper to rebuild: its set-up, and the parts that each compute some of its claims."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from s2sim.study.papers.claim import Rebuilt

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.study.papers.claim import Chart, Claim, HeatMap, Table
    from s2sim.study.progress import Progress


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time may be spent: ``quick`` is half a minute a paper, else what sharper figures need."""

    quick: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of a paper came to: claims judged, the numbers behind them, pictures, and its set-up."""

    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Chart | HeatMap, ...] = ()
    setup: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Paper:
    """A published paper with claims that can be rebuilt."""

    name: str  # By which `s2sim paper` knows it
    # title, source: As published, and who published it where.
    title: str
    source: str
    claimed: str  # Its claims in one line
    # setup, assumed: What all parts share: what is computed, and what is not known and assumed.
    setup: tuple[str, ...]
    assumed: tuple[str, ...]
    # Each from an `Effort` and a `Progress` to a `Part`; what is finished when somebody interrupts is kept.
    parts: tuple[Callable[[Effort, Progress], Part], ...]


def rebuild(paper: Paper, effort: Effort, progress: Progress) -> Rebuilt:
    """Return what comes of a paper; after Ctrl-C that of the parts that are finished."""
    done: list[Part] = []
    try:
        for part in paper.parts:
            done.append(part(effort, progress))
            progress.stop()
    except KeyboardInterrupt:
        progress.stop()
    return Rebuilt(
        paper.name,
        paper.title,
        paper.source,
        (*paper.setup, *chain.from_iterable(part.setup for part in done)),
        (*paper.assumed, *chain.from_iterable(part.assumed for part in done)),
        tuple(chain.from_iterable(part.claims for part in done)),
        tuple(chain.from_iterable(part.tables for part in done)),
        tuple(chain.from_iterable(part.pictures for part in done)),
        complete=len(done) == len(paper.parts),
    )
