"""The scripts of successive steps as one recording."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.reducers.scripts.script import AwaitGradient, Post, Recording, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.reducers.scripts.script import Call, Script, Step


def join(recordings: Sequence[Recording]) -> Recording:
    """Return what happened in several steps, one after the other; a single one as it is.

    What needs the batch alone no longer runs beside compute: in the middle of several steps there are other gradients
    to wait for.
    """
    if len(recordings) == 1:
        return recordings[0]
    calls: list[Call] = []
    scripts: list[list[Step]] = [[] for _ in recordings[0].scripts]
    for recording in recordings:
        for whole, script in zip(scripts, recording.scripts, strict=True):
            whole.extend(_renumbered(script, len(calls)))
        calls += recording.calls
    return Recording(tuple(calls), tuple(map(tuple, scripts)), sum(each.steps for each in recordings))


def _renumbered(script: Script, first: int) -> list[Step]:
    found: list[Step] = []
    for step in script:
        if isinstance(step, Post):
            found.append(replace(step, call=first + step.call))
        elif isinstance(step, Wait):
            found.append(Wait(tuple(first + call for call in step.calls)))
        elif not isinstance(step, AwaitGradient):
            found.append(step)
    return found
