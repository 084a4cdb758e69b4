"""What the process of a rank does on a testbed: one task after another, each timed together with all others."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, astuple, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from s2sim.errors import S2SimError
from s2sim.pytorch.launch import ProcessPlace, run_job
from s2sim.testbed.layout import NetworkLayout, places
from s2sim.testbed.measured import Kind, MeasuredSetting, MeasuredTiming, add_setting, add_timed, read_existing
from s2sim.testbed.workers import (
    COLLECTIVES,
    ITEM_BYTES,
    MeasurementPlan,
    MeasurementTask,
    RepetitionResult,
    Repetitions,
    time_across_ranks,
)


def run_tasks(rank: int, ranks: int, arguments: Mapping[str, Any], tell: Callable[[Any], None]) -> None:
    """Run all tasks (fields of `MeasurementTask`) reported by rank 0 with ``effort`` (`Repetitions`), seed and spin."""
    # With a usual priority others would keep a processor for milliseconds longer than a small message.
    for thread in Path("/proc/self/task").iterdir():
        # Only root may, who is needed for a network but not for processes on one machine.
        with suppress(PermissionError):
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))
    effort = Repetitions(**arguments["effort"])
    for number, fields in enumerate(arguments["tasks"]):
        task = MeasurementTask(**fields)
        if task.what in COLLECTIVES:
            prepare = _collective(task, ranks)
        else:
            prepare = _reduction(task, rank, ranks, spin=arguments["spin"], seed=arguments["seed"])
        summary = time_across_ranks(rank, prepare, effort)
        if rank == 0:
            tell({"number": number, "summary": summary})


def _collective(task: MeasurementTask, ranks: int) -> Callable[[], Callable[[], RepetitionResult]]:
    """Return what prepares a collective on float32 zeros, whose sums stay zeros however often they are taken."""
    import torch
    import torch.distributed as dist

    elements = task.payload_bytes // ITEM_BYTES
    whole, other = torch.zeros(elements), torch.zeros(elements)
    part = torch.zeros(elements // ranks)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
    }

    def act() -> RepetitionResult:
        calls[task.what]()
        return RepetitionResult()

    return lambda: act


def _reduction(
    task: MeasurementTask, rank: int, ranks: int, *, spin: bool, seed: int
) -> Callable[[], Callable[[], RepetitionResult]]:
    """Return what prepares a step of a reducer on this rank's gradient, after it has computed for a while."""
    from s2sim.gradients.synthetic import load_trace
    from s2sim.pytorch.rank import learn_here, reduce_here
    from s2sim.reducers.registry import make_reducer

    trace = load_trace(task.trace, workers=ranks, seed=seed)
    gradients = [trace.gradient(0, each) for each in range(ranks)]
    reducer, gradient = make_reducer(task.what).fitted(gradients, seed), gradients[rank]

    def prepare() -> Callable[[], RepetitionResult]:
        fresh = reducer.fresh()
        if reducer.traits.warm:
            learn_here(fresh, gradient, seed=seed)

        def act() -> RepetitionResult:
            computed_s = _compute(task.compute_s, spin=spin)
            here = reduce_here(fresh, gradient, seed=seed)
            return RepetitionResult(here.total_s - here.waited_s, computed_s)

        return act

    return prepare


def _compute(seconds: float, *, spin: bool) -> float:
    """Let so much time pass, computing or asleep, and return the CPU seconds that it took."""
    if not seconds:
        return 0.0
    cpu_s, until_s = time.process_time(), time.monotonic() + seconds
    if spin:
        matrix = np.ones((96, 96), np.float32)
        product = np.empty_like(matrix)
        while time.monotonic() < until_s:
            np.matmul(matrix, matrix, out=product)
    else:
        time.sleep(seconds)
    return time.process_time() - cpu_s


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


def missing_tasks(folder: Path, setting: MeasuredSetting, plan: MeasurementPlan) -> dict[Kind, list[MeasurementTask]]:
    """Return by kind the tasks without a row in the folder; `S2SimError` if its setting of this name differs."""
    have = read_existing(folder)
    for old in have.settings:
        if old.name == setting.name and replace(old, date=setting.date, command=setting.command) != setting:
            raise S2SimError(
                f"{folder} has a setting {setting.name!r} of another machine, network or version: give another folder"
            )
    found: dict[Kind, list[MeasurementTask]] = {}
    for kind, tasks in plan.tasks(setting.workers).items():
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
    plan: MeasurementPlan,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Measure tasks, with one start of processes a kind; workers without a processor each sleep rather than compute."""
    if all(known.name != setting.name for known in read_existing(folder).settings):
        add_setting(folder, setting)
    for kind, tasks in todo.items():

        def hear(_: int, told: Any, kind: Kind = kind, tasks: Sequence[MeasurementTask] = tasks) -> None:
            add_timed(folder, kind, MeasuredTiming(setting.name, **asdict(tasks[told["number"]]), **told["summary"]))
            done()

        arguments = {
            "tasks": [asdict(task) for task in tasks],
            "effort": asdict(plan.effort),
            "spin": setting.workers <= setting.processors,
            "seed": plan.seed,
        }
        # Between two rows no process tells anything; over a slow network one takes a while.
        timeout_s = 120.0 + 2 * plan.effort.budget_s
        run_job(f"{__name__}:run_tasks", arguments, places, timeout_s=timeout_s, hear=hear)


def measure_series(
    folder: Path,
    layouts: Sequence[NetworkLayout],
    plan: MeasurementPlan,
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

    todo = [(layout, missing_tasks(folder, current_setting(layout, command), plan)) for layout in layouts]
    for number, (layout, tasks) in enumerate(todo, 1):
        if not tasks:
            continue
        start(sum(map(len, tasks.values())), f"testbed {layout.name}, {number} of {len(todo)} (rows)")
        block: AbstractContextManager[Any] = nullcontext() if existing else temporary_testbed(layout)
        with block:
            measure_testbed(folder, current_setting(layout, command), places(layout), tasks, plan, advance)
