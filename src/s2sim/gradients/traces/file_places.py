"""Which step and rank a file of gradients is of, by its name: ``step3-rank1.pt``, ``step-0003/rank-0001.npz``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from s2sim.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_STEP, _RANK = (re.compile(rf"{word}[-_=]?(\d+)", re.ASCII | re.IGNORECASE) for word in ("step", "rank"))
_EXAMPLE = "name all of them like step3-rank1.npz"


def by_step_and_rank(paths: Sequence[Path]) -> tuple[tuple[Path, ...], ...]:
    """Return the files of each step in the order of ranks; without a step in any name, one step in the order given.

    The last number after "step", and after "rank", in the file's name or its directory's counts. Steps and ranks need
    not begin at 0. Files whose names tell steps and no ranks are of one rank. `TraceError` if some names tell less than
    others, two tell the same, or a step lacks a rank that another has.
    """
    steps = _numbers(paths, _STEP, "step")
    if steps is None:
        return (tuple(paths),)
    ranks = _numbers(paths, _RANK, "rank") or [0] * len(paths)
    places: dict[tuple[int, int], Path] = {}
    for path, *place in zip(paths, steps, ranks, strict=True):
        step, rank = place
        if (step, rank) in places:
            raise TraceError(f"{places[step, rank]} and {path} are both of step {step}, rank {rank}: {_EXAMPLE}")
        places[step, rank] = path
    for step in steps:
        for rank in ranks:
            if (step, rank) not in places:
                raise TraceError(f"step {step} has no file of rank {rank}: every step needs one of every rank")
    return tuple(tuple(places[step, rank] for rank in sorted(set(ranks))) for step in sorted(set(steps)))


def _numbers(paths: Sequence[Path], pattern: re.Pattern[str], what: str) -> list[int] | None:
    """Return the number that each name tells; None where none does."""
    found = [pattern.findall("/".join(path.parts[-2:])) for path in paths]
    if not any(found):
        return None
    for path, numbers in zip(paths, found, strict=True):
        if not numbers:
            raise TraceError(f"{path} does not tell its {what}, and other files do: {_EXAMPLE}")
    return [int(numbers[-1]) for numbers in found]
