"""How often the messages of a reduction wait for one another, and the host for the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s2sim.reducers.scripts.script import AwaitGradient, HostSync, Post, Wait

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Recording, Script


class Rounds(NamedTuple):
    """How often a reduction waits, on the rank that does so most.

    Attributes
    ----------
    before_gradient, after_gradient : int
        Times that something is posted after a wait, the first included: until the gradient is there, and from then on.
    host_syncs : int
        Times that the host waits for the GPU: to know a size before it can post, or what comes next.
    """

    before_gradient: int
    after_gradient: int
    host_syncs: int


def count_rounds(recording: Recording) -> Rounds:
    """Return the rounds of a recording: the most of any rank, where ranks do unlike things."""
    return max(
        (_rounds(script, recording) for script in set(recording.scripts)), key=lambda found: (sum(found[:2]), found)
    )


def _rounds(script: Script, recording: Recording) -> Rounds:
    begun = {False: 0, True: 0}
    host_syncs = 0
    there = AwaitGradient() not in script
    waited = True
    for step in script:
        if isinstance(step, Post):
            begun[there] += waited
            waited = False
            host_syncs += recording.calls[step.call].size_from_data
        elif isinstance(step, Wait):
            waited = True
        elif isinstance(step, HostSync):
            host_syncs += 1
        elif isinstance(step, AwaitGradient):
            there = waited = True
    return Rounds(begun[False], begun[True], host_syncs)
