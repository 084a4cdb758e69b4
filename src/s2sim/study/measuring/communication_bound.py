"""The bandwidth lower bound of a recording as a library executes it (DESIGN law 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.timing.bounds import LowerBound, lower_bound
from s2sim.reducers.scripts.script import AwaitGradient, Post, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.reducers.scripts.script import Recording
    from s2sim.replay.plan import Plan
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.cuts import Cuts


def stages(recording: Recording) -> list[list[int]]:
    """Return the calls in groups: all of a group are done on every rank before the next group is posted.

    Calls that need no gradient are left out: they may be over before the communication phase begins.
    """
    groups: list[list[int]] = [[]]
    open_calls: set[int] = set()
    for step in recording.scripts[0]:
        if isinstance(step, Post):
            if not open_calls and groups[-1]:
                groups.append([])
            groups[-1].append(step.call)
            open_calls.add(step.call)
        elif isinstance(step, Wait):
            open_calls -= set(step.calls)
        elif isinstance(step, AwaitGradient):
            groups, open_calls = [[]], set()
    return groups


def communication_bound(recording: Recording, plan: Plan, cluster: Cluster, *, assisted: bool) -> LowerBound:
    """Return the bound of what is really sent: its stages' bounds, one after another.

    Parameters
    ----------
    recording : Recording
        Says which calls wait for which.
    plan : Plan
        What the library executes for each.
    cluster : Cluster
        Whose links carry it.
    assisted : bool
        Whether switches or servers reduce, see `lower_bound`.
    """
    cuts = cluster.cuts()
    bounds = [_stage_bound(calls, plan, cuts, assisted=assisted) for calls in stages(recording)]
    longest = max(bounds, key=lambda bound: bound.seconds)
    return LowerBound(sum(bound.seconds for bound in bounds), longest.derivation)


def _stage_bound(calls: Sequence[int], plan: Plan, cuts: Cuts, *, assisted: bool) -> LowerBound:
    """Return the larger of two: all bytes of the stage over each cut, and one call's launches one after another."""
    together = [demand for call in calls for demand in plan.lowered[call].demands]
    found = [lower_bound(together, cuts, assisted=assisted)]
    for call in calls:
        steps = plan.lowered[call].steps
        if len(steps) > 1:
            each = [lower_bound(step.demands, cuts, assisted=assisted) for step in steps]
            longest = max(each, key=lambda bound: bound.seconds)
            found.append(LowerBound(sum(bound.seconds for bound in each), longest.derivation))
    return max(found, key=lambda bound: bound.seconds)
