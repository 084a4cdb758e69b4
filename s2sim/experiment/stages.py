"""A run in three calls: what reducers send, the time that this takes on a cluster, and the comparison."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from s2sim.errors import OptionError
from s2sim.experiment import run as whole
from s2sim.experiment.cluster_spec import accept_fields_of
from s2sim.experiment.prediction import predict as predict_rows
from s2sim.experiment.prediction import record as record_reducers
from s2sim.experiment.record import RecordedReducer
from s2sim.experiment.recording_store import recordings_content
from s2sim.experiment.row_parts import Refused
from s2sim.experiment.rows import Result
from s2sim.experiment.run_state import RunState
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.experiment.spec import RunSpec


@dataclass(frozen=True, slots=True, eq=False)
class Recordings:
    """What reducers compute and send on each number of workers; no time."""

    spec: RunSpec
    scenario: ReducerScenario
    recorded: dict[int, list[RecordedReducer]]  # By number of workers
    refused: tuple[Refused, ...]

    def __repr__(self) -> str:
        names = ", ".join(item.option_string for item in next(iter(self.recorded.values())))
        return f"<s2sim recordings: {names} on {', '.join(map(str, self.recorded))} workers>"


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """The rows of recordings on a cluster, not judged yet."""

    spec: RunSpec
    scenario: ReducerScenario
    state: RunState

    def __repr__(self) -> str:
        return f"<s2sim predictions: {len(self.state.rows)} rows on {self.scenario.shape.name}>"


@accept_fields_of(RunSpec)
def record(
    topology: str | None = None,
    *,
    workers: int | Sequence[int] | None = None,
    reducers: Sequence[str] | None = None,
    spec: RunSpec | None = None,
    **options: Any,
) -> Recordings:
    """Run reducers on gradients, as `s2sim.run`; a cluster decides only which ranks share a node, and bucket sizes."""
    scenario, spec = whole.resolve_named(whole.spec_of(topology, workers, reducers, spec, options))
    _check_stages(spec)
    scenario, state = whole.begin(spec, scenario)
    recorded: dict[int, list[RecordedReducer]] = {}
    refused = state.refused
    for count in spec.workers:
        recorded[count], more = record_reducers(scenario, scenario.ranks_of(count))
        refused += more
    return Recordings(spec, scenario, recorded, tuple(refused))


def predict(recordings: Recordings, *, thorough: bool = False, **changes: Any) -> Predictions:
    """Return the times of recordings on their cluster, or on one that differs; ``thorough``: with other libraries too.

    ``changes`` are fields of the spec, such as ``topology``, ``overrides``, ``library``, ``gpu`` or ``faults``.
    `OptionError` for those on which the recordings depend, such as ``workers``, ``trace`` or ``profile``.
    """
    scenario, spec = recordings.scenario, recordings.spec
    if changes:
        named = {each.name: getattr(spec, each.name) for each in fields(spec)} | changes
        scenario, spec = whole.resolve_named(RunSpec.of(**named))
        _check_stages(spec)
    scenario, state = whole.begin(spec, scenario)
    before = recordings.scenario
    same = spec.workers == recordings.spec.workers and all(
        recordings_content(before, before.ranks_of(count)) == recordings_content(scenario, scenario.ranks_of(count))
        for count in (recordings.recorded if changes else ())
    )
    if not same:
        raise OptionError(
            "the recordings are of other gradients, workers, nodes, buckets or reducers: s2sim.record those first"
        )
    state.refused = list(recordings.refused)
    for count, recorded in recordings.recorded.items():
        state.add(predict_rows(scenario, recorded, thorough=thorough), [], count, scenario.ranks_of(count))
    return Predictions(spec, scenario, state)


def _check_stages(spec: RunSpec) -> None:
    if spec.steps > 1 or spec.instead:
        raise OptionError("steps and instead ask more than one recording answers: leave them out, or call s2sim.run")


def compare(predictions: Predictions) -> Result:
    """Return the judged rows, verdict, notes and run record of predictions; break-even is left to `s2sim.run`."""
    return whole.compare(predictions.spec, predictions.scenario, predictions.state)
