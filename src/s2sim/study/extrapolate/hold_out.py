"""The check of every extrapolation: half of what was recorded is held back and predicted from the other half."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.gradients.extrapolation.law import fit_law
from s2sim.gradients.extrapolation.law_ranks import MoreRanks, SomeRanks
from s2sim.gradients.extrapolation.scaling import keep_rows, scale_to
from s2sim.seeds import named_generator
from s2sim.study.extrapolate.scaled_scripts import grow, run_quietly
from s2sim.study.measuring.executed import Executed
from s2sim.study.measuring.make_row import traffic
from s2sim.topology.cluster import build_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from s2sim.collectives.libraries.library import Library
    from s2sim.gradients.gradient import Gradient
    from s2sim.gradients.load import AnyTrace
    from s2sim.reducers.rank import Reducer
    from s2sim.reducers.scripts.script import Recording
    from s2sim.topology.files.hardware import Gpu
    from s2sim.topology.shape import ClusterShape


@dataclass(frozen=True, slots=True)
class HoldOut:
    """What the check found for one reducer.

    Attributes
    ----------
    what : str
        What predicted what, for people.
    error_bytes, error_time : float
        Predicted over recorded less 1: of the bytes that the busiest rank sends, and of the simulated time of the
        communication phase.
    """

    what: str
    error_bytes: float
    error_time: float


@dataclass(frozen=True, slots=True)
class Stage:
    """Where recorded and predicted scripts are replayed: the run's own cluster for as many ranks, filled in order.

    Attributes
    ----------
    shape : ClusterShape
        Its topology.
    library : Library
        What executes the collectives, each by its fastest algorithm.
    gpu : Gpu
        What encodes and decodes.
    seed : int
        Root of all randomness.
    """

    shape: ClusterShape
    library: Library
    gpu: Gpu
    seed: int


def hold_out(
    reducers: Mapping[str, Reducer], trace: AnyTrace, stage: Stage, *, ranks: int, scaled: bool
) -> dict[str, HoldOut]:
    """Predict every reducer's bytes and time at the size that was recorded from half of it.

    Parameters
    ----------
    reducers : dict of str to Reducer
        By option string.
    trace : AnyTrace
        The trace of the run. One with more ranks than recorded is predicted from the first half of its recorded ranks.
    stage : Stage
        Where scripts are replayed.
    ranks : int
        Ranks of the prediction, all recorded.
    scaled : bool
        Whether a random half of the rows of each layer is held back as well.
    """
    recorded = [trace.gradient(0, rank) for rank in range(ranks)]
    change = partial(keep_rows, kept=_random_half(recorded[0], stage.seed)) if scaled else _unchanged
    source: SomeRanks | MoreRanks
    if isinstance(trace, MoreRanks):
        few = SomeRanks(trace.source, ranks // 2, change)
        source = MoreRanks(trace.name, trace.manifest, few, fit_law(few), ranks, stage.seed)
        what = [f"{few.world_size} of {ranks} ranks"]
    else:
        source = SomeRanks(trace, ranks, change)
        what = []
    gradients = [source.gradient(0, rank) for rank in range(ranks)]
    fitted = _fitted(reducers, gradients, stage.seed)
    predicted = run_quietly(fitted, gradients, seed=stage.seed)
    if scaled:
        scaling = scale_to(recorded[0].size, gradients[0])
        predicted = grow(fitted, predicted, gradients, scaling, seed=stage.seed)
        what.append("half of the rows")
    truth = run_quietly(_fitted(reducers, recorded, stage.seed), recorded, seed=stage.seed)
    timer = Timer(build_cluster(stage.shape, ranks, seed=stage.seed), AUTO)
    found = {}
    for text in reducers:
        (sent, time_ps), (sent_predicted, time_predicted_ps) = (
            _cost(scripts[text], timer, stage) for scripts in (truth, predicted)
        )
        found[text] = HoldOut(
            f"{' and '.join(what)} predict all", _relative(sent_predicted, sent), _relative(time_predicted_ps, time_ps)
        )
    return found


def _fitted(reducers: Mapping[str, Reducer], gradients: Sequence[Gradient], seed: int) -> dict[str, Reducer]:
    return {text: reducer.fitted(gradients, seed) for text, reducer in reducers.items()}


def _random_half(gradient: Gradient, seed: int) -> list[NDArray[np.int64]]:
    """Return a random half of the rows of each layer, increasing; more than half of an odd number."""
    kept = []
    for index, layer in enumerate(gradient.layers):
        generator = named_generator(seed, "rows that are not held back", index)
        rows = generator.choice(layer.shape[0], -(-layer.shape[0] // 2), replace=False)
        kept.append(np.sort(rows))
    return kept


def _cost(recording: Recording, timer: Timer, stage: Stage) -> tuple[int, int]:
    """Return the bytes that the busiest rank sends in rings, and the time of the phase in picoseconds."""
    executed = Executed(recording, stage.library, timer, stage.gpu)
    return int(traffic(executed, ring=True)[0].max()), executed.replay.total_ps


def _relative(predicted: int, recorded: int) -> float:
    """Return how much more was predicted, relatively; on one rank nothing is sent and nothing is predicted."""
    return predicted / recorded - 1 if recorded else 0.0


def _unchanged(gradient: Gradient) -> Gradient:
    return gradient
