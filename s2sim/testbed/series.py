"""Measurements of a series of testbeds: what is missing in a folder is measured, row by row."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, astuple, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from s2sim.errors import S2SimError
from s2sim.pytorch.launch import ProcessPlace, run_job
from s2sim.testbed.layout import NetworkLayout, places
from s2sim.testbed.measure import MeasurementTask, run_tasks
from s2sim.testbed.measured import Kind, MeasuredSetting, MeasuredTiming, add_row, read_existing
from s2sim.testbed.settings import RequestedMeasurements
from s2sim.testbed.training import prepare_recorded, run_trainings

_LONGEST_ROW_S, _LONGEST_RECORDING_S = 120.0, 600.0


def current_setting(layout: NetworkLayout, command: str) -> MeasuredSetting:
    """Return the setting of a testbed on this machine, now."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        raise S2SimError("workers of a testbed talk by PyTorch, which is missing: pip install 's2sim[torch]'") from None
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return MeasuredSetting(
        **asdict(layout),
        processors=len(os.sched_getaffinity(0)),
        machine=models[0] if models else platform.machine(),
        kernel=f"{platform.system()} {platform.release()}",
        torch=torch,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
    )


def missing_tasks(
    folder: Path, setting: MeasuredSetting, wanted: RequestedMeasurements
) -> dict[Kind, list[MeasurementTask]]:
    """Return by kind the tasks without a row in the folder; `S2SimError` if its setting of this name differs."""
    have = read_existing(folder)
    for old in have.settings:
        if old.name == setting.name and replace(old, date=setting.date, command=setting.command) != setting:
            raise S2SimError(
                f"{folder} has a setting {setting.name!r} of another machine, network or version: give another folder"
            )
    found: dict[Kind, list[MeasurementTask]] = {}
    for kind, tasks in wanted.tasks(setting.workers).items():
        rows = [row for row in have.of(kind) if row.setting == setting.name]
        done = {(row.what, row.trace, row.compute_s, row.payload_bytes) for row in rows}
        if todo := [task for task in tasks if astuple(task) not in done]:
            found[kind] = todo
    return found


def measure_testbed(
    folder: Path,
    setting: MeasuredSetting,
    places: Sequence[ProcessPlace],
    todo: Mapping[Kind, Sequence[MeasurementTask]],
    wanted: RequestedMeasurements,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Measure tasks, with one start of processes a kind; workers without a processor each sleep rather than compute."""
    if all(known.name != setting.name for known in read_existing(folder).settings):
        add_row(folder, None, setting)
    for kind, tasks in todo.items():

        def hear(_: int, told: Any, kind: Kind = kind, tasks: Sequence[MeasurementTask] = tasks) -> None:
            add_row(folder, kind, MeasuredTiming(setting.name, **asdict(tasks[told["number"]]), **told["summary"]))
            done()

        arguments: dict[str, Any] = {"tasks": [asdict(task) for task in tasks], "effort": asdict(wanted.effort)}
        job = f"{run_tasks.__module__}:{run_tasks.__name__}"
        # Between two rows no process tells anything; over a slow network one takes a while.
        timeout_s = _LONGEST_ROW_S + 2 * wanted.effort.budget_s
        if kind == "training":
            assert wanted.training is not None
            place = prepare_recorded(folder, wanted.training.name, setting.workers, setting.name)
            arguments |= {"training": asdict(wanted.training), "recorded": None if place is None else str(place)}
            job, timeout_s = f"{run_trainings.__module__}:{run_trainings.__name__}", timeout_s + _LONGEST_RECORDING_S
        else:
            arguments |= {"spin": setting.workers <= setting.processors, "seed": wanted.seed}
        run_job(job, arguments, places, timeout_s=timeout_s, hear=hear)


def measure_series(
    folder: Path,
    layouts: Sequence[NetworkLayout],
    wanted: RequestedMeasurements,
    *,
    command: str,
    existing: bool = False,
    start: Callable[[int, str], None],
    advance: Callable[[], None],
) -> None:
    """Measure all rows missing in a folder on each testbed; every row is saved at once.

    Testbeds are created and removed unless ``existing``. ``command`` is the command line for the table of settings;
    ``start`` is called with the number and kind of rows before each testbed, ``advance`` after each row.
    """
    from s2sim.testbed.network import temporary_testbed

    todo = [(layout, missing_tasks(folder, current_setting(layout, command), wanted)) for layout in layouts]
    for number, (layout, tasks) in enumerate(todo, 1):
        if not tasks:
            continue
        start(sum(map(len, tasks.values())), f"testbed {layout.name}, {number} of {len(todo)} (rows)")
        block: AbstractContextManager[Any] = nullcontext() if existing else temporary_testbed(layout)
        with block:
            measure_testbed(folder, current_setting(layout, command), places(layout), tasks, wanted, advance)
