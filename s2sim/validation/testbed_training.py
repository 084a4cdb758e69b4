"""Training on testbeds, predicted as ``s2sim run --recorded`` does from one recording for each number of workers."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from s2sim.experiment import stages
from s2sim.experiment.progress import SILENT, ProgressWatcher, watched
from s2sim.testbed.measured import MeasuredSetting, MeasuredTestbeds, MeasuredTiming
from s2sim.testbed.training import PYTORCH, find_recorded
from s2sim.validation.testbed_fit import setting_toml


def predict_trainings(
    measured: MeasuredTestbeds, folder: Path | None, first: str, progress: ProgressWatcher = SILENT
) -> dict[MeasuredTiming, tuple[float, str]]:
    """Return the predicted seconds of rows, and on which setting each one's training was recorded.

    Recordings are those in ``folder``, of several between as many workers that of the setting ``first``. Without one a
    row is left out, as are those of PyTorch's own hooks.
    """
    settings = {setting.name: setting for setting in measured.settings}
    groups: dict[tuple[str, str], list[MeasuredTiming]] = {}
    for row in measured.training if folder is not None else ():
        if not row.what.startswith(PYTORCH):
            groups.setdefault((row.setting, row.trace), []).append(row)
    found: dict[MeasuredTiming, tuple[float, str]] = {}
    for (name, trace), rows in watched(progress, "predicting training", list(groups.items())):
        assert folder is not None
        job = find_recorded(folder, trace, settings[name].workers, first)
        if job is not None:
            times_s = iteration_times(settings[name], job, [row.what for row in rows])
            found |= {row: (times_s[row.what], job.parent.name) for row in rows if row.what in times_s}
    return found


def iteration_times(setting: MeasuredSetting, job: Path, reducers: Sequence[str]) -> dict[str, float]:
    """Return the predicted seconds of an iteration of a recorded job on a setting, with each reducer that can run."""
    with TemporaryDirectory() as place:
        topology = Path(place) / f"{setting.name}.toml"
        topology.write_text(setting_toml(setting), "utf-8")
        recorded = stages.record(str(topology), workers=setting.workers, reducers=reducers, recorded=str(job))
        rows = stages.predict(recorded).state.rows
    times_s = {row.reducer: row.iteration_s for row in rows}
    return {name: time_s for name, time_s in times_s.items() if time_s is not None}
