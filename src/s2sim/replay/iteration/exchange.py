"""What a discipline and a reducer make of an iteration's gradients together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.reducers.scripts.script import AwaitGradient, Post, Recording, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.reducers.scripts.script import Call, Script, Step
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
    calls: list[Call] = []
    early: list[list[list[Script]]] = [[] for _ in exchange[0].recording.scripts]
    late: list[list[list[Script]]] = [[] for _ in exchange[0].recording.scripts]
    for each in exchange:
        for rank, script in enumerate(each.recording.scripts):
            before, after = split_at_gradient(script)
            early[rank].append(_turns(before, len(calls)))
            late[rank].append(_turns(after, len(calls)))
        calls += each.recording.calls
    scripts = [
        (*first, AwaitGradient(), *then) if first else then
        for first, then in zip(map(_in_turns, early), map(_in_turns, late), strict=True)
    ]
    return Recording(tuple(calls), tuple(scripts), max(each.recording.steps for each in exchange))


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
