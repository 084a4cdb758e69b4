"""Measures tasks between the processes of one testbed, and adds a row to a folder for each as soon as it is done."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, astuple, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sim.errors import S2SimError
from s2sim.testbed.measured import Setting, Timed
from s2sim.testbed.measured_folder import Kind, add_setting, add_timed, read_if_any
from s2sim.testbed.measuring.job import JOB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from s2sim.bridge.processes.launch import Place
    from s2sim.testbed.measuring.task import Plan, Task
    from s2sim.testbed.network.layout import Layout

# Between two rows no process tells anything; over a slow network one takes a while.
_LEAST_SILENCE_S = 120.0


def setting_here(layout: Layout, command: str) -> Setting:
    """Return the setting of a testbed on this machine, now."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        raise S2SimError("workers of a testbed talk by PyTorch, which is missing: pip install 's2sim[torch]'") from None
    return Setting(
        name=layout.name,
        workers=layout.workers,
        nodes=layout.nodes,
        rate_Bps=layout.rate_Bps,
        uplink_Bps=layout.uplink_Bps,
        processors=len(os.sched_getaffinity(0)),
        machine=_machine(),
        kernel=f"{platform.system()} {platform.release()}",
        torch=torch,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
    )


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def missing(folder: Path, setting: Setting, plan: Plan) -> dict[Kind, list[Task]]:
    """Return the tasks of which a folder has no row for this setting, by kind, those without any left out.

    Raises
    ------
    S2SimError
        If the folder has a setting of this name that was another one.
    """
    have = read_if_any(folder)
    for old in have.settings:
        if old.name == setting.name and _stable(old) != _stable(setting):
            raise S2SimError(
                f"{folder} has a setting {setting.name!r} of another machine, network or version: give another folder"
            )
    found: dict[Kind, list[Task]] = {}
    for kind, tasks in plan.tasks(setting.workers).items():
        rows = [row for row in have.of(kind) if row.setting == setting.name]
        done = {(row.what, row.trace, row.compute_s, row.payload_bytes) for row in rows}
        if todo := [task for task in tasks if astuple(task) not in done]:
            found[kind] = todo
    return found


def _stable(setting: Setting) -> Setting:
    return replace(setting, date="", command="")


def measure(
    folder: Path,
    setting: Setting,
    places: Sequence[Place],
    todo: Mapping[Kind, Sequence[Task]],
    plan: Plan,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Measure tasks on a testbed with one start of its processes a kind; ``done`` is called after each.

    Waiting for gradients is computing where every worker has a processor, and sleeping where it has not, because a
    processor computes for one of them at a time.
    """
    from s2sim.bridge.processes.launch import run_job

    if all(known.name != setting.name for known in read_if_any(folder).settings):
        add_setting(folder, setting)
    for kind, tasks in todo.items():

        def hear(_: int, told: Any, kind: Kind = kind, tasks: Sequence[Task] = tasks) -> None:
            add_timed(folder, kind, Timed(setting.name, **asdict(tasks[told["number"]]), **told["summary"]))
            done()

        arguments = {
            "tasks": [asdict(task) for task in tasks],
            "effort": asdict(plan.effort),
            "spin": spins(setting),
            "seed": plan.seed,
        }
        run_job(JOB, arguments, places, timeout_s=_LEAST_SILENCE_S + 2 * plan.effort.budget_s, hear=hear)


def spins(setting: Setting) -> bool:
    """Return whether every worker has a processor to compute on."""
    return setting.workers <= setting.processors
