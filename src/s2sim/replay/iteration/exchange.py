"""What a discipline and a reducer make of an iteration's gradients together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from s2sim.reducers.scripts.script import AwaitGradient, Post, Recording, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.reducers.scripts.script import Script, Step
    from s2sim.replay.iteration.disciplines.discipline import Bucket


@dataclass(frozen=True, slots=True)
class Leaving:
    """One bucket, and what the reducer did with it, once a step or once in the steps of the recording."""

    bucket: Bucket
    recording: Recording


def joined(exchange: Sequence[Leaving]) -> Recording:
    """Return what happens with all buckets as one recording, in which all gradients are there at once.

    Every rank goes through the programs of its buckets in turns, each as far as it goes without waiting, in the order
    in which the buckets leave; work before the gradient comes first. One bucket is its recording.
    """
    if len(exchange) == 1:
        return exchange[0].recording
    calls = [call for each in exchange for call in each.recording.calls]
    firsts = [0, *accumulate(len(each.recording.calls) for each in exchange)]
    # Most ranks do alike in all buckets: what they do is put together once.
    known: dict[tuple[int, ...], Script] = {}
    same = [_first_alike(each.recording.scripts) for each in exchange]
    scripts = []
    for rank in range(exchange[0].recording.workers):
        alike = tuple(firsts_alike[rank] for firsts_alike in same)
        if alike not in known:
            own = [each.recording.scripts[rank] for each in exchange]
            known[alike] = _of_rank(list(zip(own, firsts, strict=False)))
        scripts.append(known[alike])
    return Recording(tuple(calls), tuple(scripts), max(each.recording.steps for each in exchange))


def _first_alike(scripts: Sequence[Script]) -> list[int]:
    """Return for each rank the first that has the same script."""
    found: dict[Script, int] = {}
    return [found.setdefault(script, rank) for rank, script in enumerate(scripts)]


def _of_rank(programs: Sequence[tuple[Script, int]]) -> Script:
    """Return one script of a rank's programs, each with the number that its first call has among all."""
    halves = [(split_at_gradient(script), first) for script, first in programs]
    first_of_all = _in_turns([_turns(before, first) for (before, _), first in halves])
    then = _in_turns([_turns(after, first) for (_, after), first in halves])
    return (*first_of_all, AwaitGradient(), *then) if first_of_all else then


def split_at_gradient(script: Script) -> tuple[Script, Script]:
    """Return what a rank does before it needs the gradient, and the rest."""
    if AwaitGradient() not in script:
        return (), script
    place = script.index(AwaitGradient())
    return script[:place], script[place + 1 :]


def _turns(script: Script, first_call: int) -> list[Script]:
    """Return a script in pieces that each begin where it waits, its calls renumbered."""
    turns: list[list[Step]] = [[]]
    for step in script:
        if isinstance(step, Post):
            turns[-1].append(replace(step, call=first_call + step.call))
        elif isinstance(step, Wait):
            turns.append([Wait(tuple(first_call + call for call in step.calls))])
        else:
            turns[-1].append(step)
    return [tuple(turn) for turn in turns]


def _in_turns(programs: Sequence[Sequence[Script]]) -> Script:
    """Return one script of a rank's programs."""
    longest = max(map(len, programs), default=0)
    return tuple(
        step for turn in range(longest) for program in programs if turn < len(program) for step in program[turn]
    )
