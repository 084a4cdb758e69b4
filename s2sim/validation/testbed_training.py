"""Training on testbeds, predicted as ``s2sim run --recorded`` does from one recording for each number of workers."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from s2sim.experiment import stages
from s2sim.experiment.progress import SILENT, ProgressWatcher, watched
from s2sim.testbed.measured import MeasuredSetting, MeasuredTestbeds, MeasuredTiming
from s2sim.testbed.training import PYTORCH, find_recorded
from s2sim.validation.testbed_fit import setting_toml


class PredictedIteration(NamedTuple):
    """An iteration of training as predicted."""

    seconds: float
    recorded_on: str  # The setting on which it was recorded
    undecided_below: float  # Share of the time that the prediction of the recorded job itself is off


def predict_trainings(
    measured: MeasuredTestbeds, folder: Path | None, first: str, progress: ProgressWatcher = SILENT
) -> dict[MeasuredTiming, PredictedIteration]:
    """Return the predictions of rows by the recordings in ``folder``, of several that of the setting ``first``.

    Without a recording between as many workers a row is left out, as are those of PyTorch's own hooks.
    """
    settings = {setting.name: setting for setting in measured.settings}
    groups: dict[tuple[str, str], list[MeasuredTiming]] = {}
    for row in measured.training if folder is not None else ():
        if not row.what.startswith(PYTORCH):
            groups.setdefault((row.setting, row.trace), []).append(row)
    found: dict[MeasuredTiming, PredictedIteration] = {}
    for (name, trace), rows in watched(progress, "predicting training", list(groups.items())):
        assert folder is not None
        job = find_recorded(folder, trace, settings[name].workers, first)
        if job is not None:
            predicted = predict_iterations(settings[name], job, [row.what for row in rows])
            found |= {row: predicted[row.what] for row in rows if row.what in predicted}
    return found


def predict_iterations(setting: MeasuredSetting, job: Path, reducers: Sequence[str]) -> dict[str, PredictedIteration]:
    """Return the iteration of a recorded job on a setting with each reducer that can run there."""
    with TemporaryDirectory() as place:
        topology = Path(place) / f"{setting.name}.toml"
        topology.write_text(setting_toml(setting), "utf-8")
        recorded = stages.record(str(topology), workers=setting.workers, reducers=reducers, recorded=str(job))
        found = stages.predict(recorded)
    training, times_s = found.scenario.training, {row.reducer: row.iteration_s for row in found.state.rows}
    error = 0.0 if training is None or training.recorded is None else training.recorded.error
    where = job.parent.name
    return {name: PredictedIteration(time_s, where, error) for name, time_s in times_s.items() if time_s is not None}
