"""The scripts of successive steps, or of the buckets of one step, as one recording."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.reducers.scripts.script import AwaitGradient, Post, Recording, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def join_buckets(recordings: Sequence[Recording]) -> Recording:
    """Return what happens with all buckets of one step, one after the other, as if all gradients were there at once.

    What needs the batch alone comes first, of all buckets. Calls are in the order of buckets.
    """
    if len(recordings) == 1:
        return recordings[0]
    firsts = [0]
    for recording in recordings:
        firsts.append(firsts[-1] + len(recording.calls))
    # Ranks do alike in most recordings: what they have in common is put together once.
    known: dict[tuple[int, ...], Script] = {}
    same = [_first_equal(recording.scripts) for recording in recordings]
    scripts = []
    for rank in range(recordings[0].workers):
        alike = tuple(places[rank] for places in same)
        if alike not in known:
            own = [recording.scripts[place] for recording, place in zip(recordings, alike, strict=True)]
            known[alike] = _in_turn(zip(own, firsts, strict=False))
        scripts.append(known[alike])
    calls = tuple(call for recording in recordings for call in recording.calls)
    return Recording(calls, tuple(scripts), recordings[0].steps)


def _first_equal(scripts: Sequence[Script]) -> list[int]:
    """Return for each rank the first whose script is the same."""
    found: dict[Script, int] = {}
    return [found.setdefault(script, rank) for rank, script in enumerate(scripts)]


def _in_turn(scripts: Iterable[tuple[Script, int]]) -> Script:
    """Return one rank's scripts in turn, each with the number that its first call has among all."""
    ahead: list[Step] = []
    after: list[Step] = []
    for script, first in scripts:
        cut = script.index(AwaitGradient()) if AwaitGradient() in script else 0
        ahead += _renumbered(script[:cut], first)
        after += _renumbered(script[cut:], first)
    return (*ahead, AwaitGradient(), *after) if ahead else tuple(after)


def _renumbered(script: Sequence[Step], first: int) -> list[Step]:
    found: list[Step] = []
    for step in script:
        if isinstance(step, Post):
            found.append(replace(step, call=first + step.call))
        elif isinstance(step, Wait):
            found.append(Wait(tuple(first + call for call in step.calls)))
        elif not isinstance(step, AwaitGradient):
            found.append(step)
    return found
