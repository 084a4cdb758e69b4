"""The two halves of a run: what reducers do on gradients, and what that takes on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from s2sim.experiment.execute import ExecutedRecording
from s2sim.experiment.predict import make_row
from s2sim.experiment.progress import ProgressWatcher, SilentProgress
from s2sim.experiment.record import RecordedReducer, baseline_of
from s2sim.experiment.row_parts import Refused
from s2sim.experiment.rows import Row
from s2sim.experiment.run_extrapolation import record_at_size
from s2sim.experiment.scaled_buckets import record_buckets
from s2sim.experiment.scenario.reducers import ReducerScenario, step_reader


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a recording takes on a cluster."""

    recorded: RecordedReducer  # The reducer and its recording
    executed: ExecutedRecording  # The recording on the cluster, as the library executes it
    row: Row  # All numbers of it


def record(
    scenario: ReducerScenario, ranks: int, progress: ProgressWatcher | None = None
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run every reducer of a scenario on its gradients of the first step.

    Parameters
    ----------
    scenario : ReducerScenario
        Reducers, gradients and, where whole iterations are simulated, buckets. Of its cluster only two things count:
        which ranks share a node, for reducers that look at that, and how long exchanges take, for bucketing that does.
    ranks : int
        Ranks that exchange gradients.
    progress : Progress, optional
        Advanced once for each rank and each reducer.

    Returns
    -------
    list of Recorded
        What each reducer computes, sends and waits for on every rank, and its errors: values that know no cluster,
        library or GPU, for any number of calls of `predict`.
    list of Refused
        Optional reducers that refuse these gradients.

    Raises
    ------
    S2SimError
        Where another reducer refuses them.
    """
    progress = progress or SilentProgress()
    gradients = []
    for rank in range(ranks):
        gradients.append(scenario.trace.gradient(0, rank))
        progress.advance()
    others = step_reader(scenario.trace, ranks)
    training = scenario.training
    if training is None:
        return record_at_size(scenario, gradients, others, on_reducer=progress.advance)
    timer = scenario.timer(ranks).with_profile(scenario.library.profile)
    return record_buckets(
        scenario.reducers_on(ranks),
        gradients,
        training.profile.tensors,
        training.buckets(timer, scenario.dtype),
        seed=scenario.seed,
        others=others,
        model=training.model,
        on_reducer=progress.advance,
    )


def execute(scenario: ReducerScenario, recorded: Sequence[RecordedReducer]) -> list[ExecutedRecording]:
    """Return each recording on the scenario's cluster, by the algorithm of its reducer where it has one.

    Nothing is simulated until a time of it is read.
    """
    ranks = recorded[0].recording.workers
    ways = scenario.route_table(ranks)
    scenarios = {each: scenario.running(each) for each in dict.fromkeys(item.reducer.runs_by for item in recorded)}
    timers = {each: where.timer(ranks, ways) for each, where in scenarios.items()}
    return [
        ExecutedRecording(item.recording, scenarios[item.reducer.runs_by], timers[item.reducer.runs_by], item.exchange)
        for item in recorded
    ]


def predict(
    scenario: ReducerScenario, recorded: Sequence[RecordedReducer], *, thorough: bool = True
) -> list[Prediction]:
    """Return what recordings take on a scenario's cluster, with its library and on its GPU.

    Parameters
    ----------
    scenario : ReducerScenario
        Where they run, which may differ in everything but the ranks from where they were recorded.
    recorded : sequence of Recorded
        Of as many ranks each, ``dense`` among them, which all are compared with.
    thorough : bool
        Whether to work out as well what other libraries would make of each, which takes more replays.
    """
    executed = execute(scenario, recorded)
    dense = executed[list(recorded).index(baseline_of(recorded))]
    return [
        Prediction(item, each, make_row(item, each, dense, thorough=thorough))
        for item, each in zip(recorded, executed, strict=True)
    ]
