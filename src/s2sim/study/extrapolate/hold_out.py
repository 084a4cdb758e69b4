"""The check of every extrapolation: half of what was recorded is held back and predicted from the other half."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.extrapolation.law import fit_law
from s2sim.gradients.extrapolation.law_ranks import MoreRanks, SomeRanks
from s2sim.gradients.extrapolation.scaling import keep_rows, scale_to
from s2sim.reducers.scripts.script import Recording
from s2sim.seeds import named_generator
from s2sim.study.extrapolate.scaled_scripts import grow, relative_error, run_quietly
from s2sim.study.measuring.executed import Executed
from s2sim.study.measuring.make_row import traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.gradients.gradient import Gradient
    from s2sim.study.scenario.asked import AskedReducer
    from s2sim.study.scenario.reducers import ReducerScenario


@dataclass(frozen=True, slots=True)
class HoldOut:
    """What the check found for one reducer, by its option string; ``what`` says for people what predicted what.

    Errors are predicted over recorded less 1: of the bytes that the busiest rank sends, and of the simulated time of
    the communication phase.
    """

    reducer: str
    what: str
    error_bytes: float
    error_time: float


def hold_out(scenario: ReducerScenario, ranks: int) -> tuple[tuple[HoldOut, ...], dict[str, str]]:
    """Predict every reducer's bytes and time at the size that was recorded from half of it.

    Recorded and predicted scripts are replayed on the cluster for as many ranks, all recorded and filled in order,
    without faults, each collective by its fastest algorithm. Gradients of more ranks than recorded are predicted from
    the first half of the recorded ranks; where sizes are scaled, a random half of the rows of each layer is held back
    as well. Beside the checks stand, by option string, the reasons of those optional reducers that refuse one.
    """
    trace, seed, scaled = scenario.trace, scenario.seed, scenario.target is not None
    recorded = [trace.gradient(0, rank) for rank in range(ranks)]
    change = partial(keep_rows, kept=_random_half(recorded[0], seed)) if scaled else _unchanged
    source: SomeRanks | MoreRanks
    if isinstance(trace, MoreRanks):
        few = SomeRanks(trace.source, ranks // 2, change)
        source = MoreRanks(trace.name, trace.manifest, few, fit_law(few), ranks, seed)
        what = [f"{few.world_size} of {ranks} ranks"]
    else:
        source = SomeRanks(trace, ranks, change)
        what = []
    gradients = [source.gradient(0, rank) for rank in range(ranks)]
    plain = scenario.plain()
    fitted = _fitted(plain, gradients)
    predicted = run_quietly(fitted, gradients, seed=seed)
    if scaled:
        scaling = scale_to(recorded[0].size, gradients[0])
        predicted = grow(fitted, predicted, gradients, scaling, seed=seed)
        what.append("half of the rows")
    truth = run_quietly(_fitted(plain, recorded), recorded, seed=seed)
    timer = plain.timer(ranks)
    found, refused = [], {}
    for asked, *outcomes in zip(scenario.reducers, truth, predicted, strict=True):
        recordings = [each for each in outcomes if isinstance(each, Recording)]
        if len(recordings) < len(outcomes):
            refused[asked.option_string] = next(str(each) for each in outcomes if not isinstance(each, Recording))
            continue
        runs = [Executed(recording, plain, timer) for recording in recordings]
        sent, sent_predicted = (int(traffic(run)[0].max()) for run in runs)
        time_ps, time_predicted_ps = (run.replay.total_ps for run in runs)
        found.append(
            HoldOut(
                asked.option_string,
                f"{' and '.join(what)} predict all",
                relative_error(sent_predicted, sent),
                relative_error(time_predicted_ps, time_ps),
            )
        )
    return tuple(found), refused


def _fitted(scenario: ReducerScenario, gradients: Sequence[Gradient]) -> list[AskedReducer]:
    return [
        replace(item, reducer=item.reducer.fitted(gradients, scenario.seed))
        for item in scenario.reducers_on(len(gradients))
    ]


def _random_half(gradient: Gradient, seed: int) -> list[NDArray[np.int64]]:
    """Return a random half of the rows of each layer, increasing; more than half of an odd number."""
    kept = []
    for index, layer in enumerate(gradient.layers):
        generator = named_generator(seed, "rows that are not held back", index)
        rows = generator.choice(layer.shape[0], -(-layer.shape[0] // 2), replace=False)
        kept.append(np.sort(rows))
    return kept


def _unchanged(gradient: Gradient) -> Gradient:
    return gradient
