"""The lower bound of a training iteration: the longest chain through compute and cuts (DESIGN law 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.launches import one_launch
from s2sim.collectives.timing.bounds import lower_bound
from s2sim.replay.plan import make_plan
from s2sim.study.measuring.communication_bound import stages
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.libraries.library import Library
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.replay.iteration.compute import Compute
    from s2sim.replay.iteration.exchange import Leaving
    from s2sim.topology.cuts import Cuts


def iteration_bound_s(
    exchange: Sequence[Leaving],
    compute: Compute,
    cuts: Cuts,
    library: Library,
    *,
    waits_for_all: bool,
    accumulate: int = 1,
    assisted: bool = False,
    fastest: float = 1.0,
    idle_ps: int = 0,
) -> float:
    """Return the seconds in which no iteration of the slowest rank can be over.

    All that becomes ready from some instant of backward on has to cross every cut after that, and then the optimizer
    follows; where forward waits for its own parameters alone, an iteration takes as long as its compute or as all that
    crosses a cut. Ranks wait ``idle_ps`` for stages, and compute takes at least ``fastest`` times what is stated. What
    needs the batch alone is left out: it may hide behind any of that.
    """
    alone_s = fastest / PS_PER_S
    forward_s, backward_s = (float(each.sum()) * alone_s for each in (compute.forward_ps, compute.backward_ps))
    optimizer_s = compute.optimizer_ps * alone_s
    compute_s = idle_ps / PS_PER_S + accumulate * (forward_s + backward_s) + optimizer_s
    before_s = compute_s - optimizer_s - backward_s
    ready_ps = np.cumsum(compute.backward_ps)
    later = sorted(
        (float(ready_ps[max(leaving.bucket.tensors)]) * alone_s if leaving.bucket.tensors else 0.0, place, leaving)
        for place, leaving in enumerate(exchange)
    )[::-1]
    found = [compute_s]
    sent: dict[tuple[str, int, tuple[int, ...]], Demand] = {}
    for ready_s, _, leaving in later:
        plan = make_plan(leaving.recording, library)
        after = {call for script in set(leaving.recording.scripts) for stage in stages(script) for call in stage}
        for call in sorted(after):
            for demand in plan.lowered[call].demands:
                key = (demand.kind, demand.root, plan.lowered[call].ranks)
                sent[key] = one_launch([sent[key], demand]) if key in sent else demand
        members = [ranks for _, _, ranks in sent]
        bound = lower_bound(list(sent.values()), cuts, assisted=assisted, members=members)
        chain_s = bound.seconds / leaving.recording.steps
        found.append(before_s + ready_s + chain_s + optimizer_s if waits_for_all else chain_s)
    return max(found)
