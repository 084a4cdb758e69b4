"""The bandwidth lower bound of a recording as a library executes it."""

from collections.abc import Iterable, Sequence
from functools import cache
from math import inf

import numpy as np

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import LowerBound, lower_bound
from s2sim.collectives.timing.timer import Timer
from s2sim.experiment.execute import ExecutedRecording
from s2sim.libraries.lowering import LoweredCall, merge_into_launch
from s2sim.reducers.script import AwaitGradient, Post, Recording, Script, Wait
from s2sim.simulation.bucketing.sharded import Gather
from s2sim.simulation.plan import Plan, make_plan
from s2sim.tables import group_by
from s2sim.topology.cluster import Cluster
from s2sim.units import PS_PER_S


def stages(script: Script) -> list[list[int]]:
    """Return a rank's calls in groups that complete before the next is posted, without those that need no gradient."""
    groups: list[list[int]] = [[]]
    open_calls: set[int] = set()
    for step in script:
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


def _calls_of_phase(recording: Recording) -> list[int]:
    return sorted({call for script in recording.distinct_scripts for stage in stages(script) for call in stage})


def communication_bound(
    recording: Recording, plan: Plan, cluster: Cluster | Timer, *, assisted: bool, work_s: float = inf
) -> LowerBound:
    """Return the bound of all bytes on the wire: the sum of the bounds of the stages.

    If groups of ranks post separately, the bytes of all groups count as well, less ``work_s``, the work of the
    slowest rank outside of communication, behind which they may hide. ``cluster`` may be the timer of concurrent
    groups; ``assisted`` states whether switches or servers reduce, see `lower_bound`.
    """
    cuts = cluster.cuts()

    @cache
    def stage_bound(calls: tuple[int, ...]) -> LowerBound:
        """Return the larger of the bound of all bytes of a group's calls and of one call's launches in sequence."""
        bounds = [lower_bound((), cuts)]
        for ranks, lowered in group_by((plan.lowered[call] for call in calls), lambda each: each.ranks).items():
            own = cuts.within(ranks) if ranks else cuts
            bounds.append(lower_bound([demand for each in lowered for demand in each.demands], own, assisted=assisted))
            bounds += [
                _sum_bounds([lower_bound(step.demands, own, assisted=assisted) for step in each.steps])
                for each in lowered
                if len(each.steps) > 1
            ]
        return max(bounds, key=lambda bound: bound.seconds)

    # Dictionaries keep the order of ranks, so that of equal bounds the first rank's is given.
    scripts = recording.distinct_scripts
    found = [_sum_bounds([stage_bound(tuple(calls)) for calls in stages(script)]) for script in scripts]
    if any(call.ranks for call in recording.calls):
        lowered = [plan.lowered[call] for call in _calls_of_phase(recording)]
        sent = [(demand, each.ranks) for each in lowered for demand in each.demands]
        members = [ranks for _, ranks in sent]
        all_of_it = lower_bound([demand for demand, _ in sent], cuts, assisted=assisted, members=members)
        found.append(LowerBound(max(all_of_it.seconds - work_s, 0.0), all_of_it.derivation))
    return max(found, key=lambda bound: bound.seconds)


def _sum_bounds(bounds: Sequence[LowerBound]) -> LowerBound:
    return LowerBound(sum(bound.seconds for bound in bounds), max(bounds, key=lambda bound: bound.seconds).derivation)


def iteration_bound_s(executed: ExecutedRecording) -> float:
    """Return a lower bound of the slowest rank's iteration in seconds.

    All gradients that become ready after some time of backward cross every cut after that, and the optimizer
    follows. If forward waits only for its own parameters, an iteration takes at least its compute or all traffic
    over a cut. Traffic that needs only the batch is left out, as it may be hidden.
    """
    scenario, iterations, recording = executed.scenario, executed.iterations, executed.recording
    assert scenario.training is not None
    assert iterations is not None
    work, cuts = executed.rank_work, executed.timer.cuts()
    compute = work.compute
    settings = scenario.training.conditions(recording.workers, recording.steps, scenario.seed)
    assisted = any(launch.timed.schedule.assisted for launch in iterations.launches)
    alone_s = float(settings.slower.min()) / PS_PER_S
    forward_s, backward_s = (float(each.sum()) * alone_s for each in (compute.forward_ps, compute.backward_ps))
    after_ps = sum(each for _, each in compute.after_ps)
    optimizer_s = after_ps * (alone_s if settings.optimizer is None else settings.optimizer / PS_PER_S)
    compute_s = settings.idle_ps / PS_PER_S + settings.accumulate * (forward_s + backward_s) + optimizer_s
    before_s = compute_s - optimizer_s - backward_s
    ready_ps = np.cumsum(compute.backward_ps)
    later = sorted(
        (float(ready_ps[max(leaving.bucket.tensors)]) * alone_s if leaving.bucket.tensors else 0.0, place, leaving)
        for place, leaving in enumerate(executed.bucket_exchanges)
    )[::-1]
    found = [compute_s]
    sent: dict[tuple[str, int, tuple[int, ...]], Demand] = {}

    def crossing_s(more: Iterable[LoweredCall]) -> float:
        """Return the bound of all calls so far and of some more, in seconds."""
        for lowered in more:
            for demand in lowered.demands:
                key = (demand.kind, demand.root, lowered.ranks)
                sent[key] = merge_into_launch([sent[key], demand]) if key in sent else demand
        members = [ranks for _, _, ranks in sent]
        return lower_bound(list(sent.values()), cuts, assisted=assisted, members=members).seconds

    for ready_s, _, leaving in later:
        plan = make_plan(leaving.recording, scenario.library)
        calls = [plan.lowered[call] for call in _calls_of_phase(leaving.recording)]
        chain_s = crossing_s(calls) / leaving.recording.steps
        found.append(before_s + ready_s + chain_s + optimizer_s if settings.waits_for_all else chain_s)
    longest_s = max(found)

    def gathers_s(gathers: Iterable[Gather]) -> float:
        plans = [make_plan(gather.exchange.recording, scenario.library) for gather in gathers]
        return crossing_s(lowered for plan in plans for lowered in plan.lowered)

    found.append(gathers_s(work.gathers.in_order(settings.accumulate)) + optimizer_s)
    if work.gathers.after_step:
        # They follow the optimizer, and the next forward waits for them.
        sent.clear()
        found.append(longest_s + gathers_s(work.gathers.after_step))
    return max(found)
