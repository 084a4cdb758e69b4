"""What processes of all ranks do on a testbed: one task after another, each timed from an instant that they share."""

import ctypes
import os
import platform
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from s2sim.arrays import Floats
from s2sim.errors import S2SimError
from s2sim.pytorch.launch import ProcessPlace, run_job, tcp_infos
from s2sim.testbed.layout import NetworkLayout, places
from s2sim.testbed.measured import Kind, MeasuredSetting, MeasuredTiming, add_setting, add_timed, read_existing

# Place and form in struct tcp_info of tcpi_notsent_bytes, and of tcpi_bytes_sent and tcpi_bytes_retrans after others.
_NOT_SENT, _COUNTS = 144, struct.Struct("<I52xQQ")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
"""Collectives that are timed, by the names of `s2sim.collectives`."""

# Of these a rank's buffer has a part for each rank.
_IN_PARTS = ("all_gather", "reduce_scatter", "all_to_all")
ITEM_BYTES = 4
_NS_PER_S = 10**9
_MIN_REPEATS = 3
_WARM_UPS = 2
# From the moment when rank 0 says when until then; doubled whenever a rank heard of it too late.
_FIRST_LEAD_NS, _MAX_LEAD_NS = 4_000_000, 2_000_000_000
_PR_SET_TIMERSLACK = 29


def sent_bytes() -> int:
    """Return the payload bytes given to this process's TCP connections, queued ones included, retransmissions not."""
    counts = (_COUNTS.unpack_from(info, _NOT_SENT) for info in tcp_infos())
    return sum(waiting + sent - again for waiting, sent, again in counts)


@dataclass(frozen=True, slots=True)
class MeasurementTask:
    """What one row of a table tells of, see `s2sim.testbed.measured.MeasuredTiming`."""

    what: str
    trace: str
    compute_s: float
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Repetitions:
    """How often something is repeated."""

    repeats: int = 30  # Most repetitions
    budget_s: float = 2.0  # Seconds of repetitions after which there are no more, once there are three


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """What is measured on each testbed, and how thoroughly."""

    # Returns what is to be measured between so many workers, by kind.
    tasks: Callable[[int], Mapping[Kind, Sequence[MeasurementTask]]]
    effort: Repetitions
    seed: int = 0  # Of what reducers draw


def collective_task(what: str, size_bytes: int, ranks: int) -> MeasurementTask:
    """Return a collective of so many bytes of float32, or a few less where a buffer has equal parts.

    >>> collective_task("all_gather", 1024, 3).payload_bytes
    1020
    """
    unit = ITEM_BYTES * (ranks if what in _IN_PARTS else 1)
    return MeasurementTask(what, "", 0.0, max(size_bytes // unit, 1) * unit)


@dataclass(frozen=True, slots=True)
class RepetitionResult:
    """One rank's repetition: seconds outside of collectives and spinning, and CPU seconds of spinning."""

    codec_s: float = 0.0
    computed_s: float = 0.0


def time_across_ranks(
    rank: int, prepare: Callable[[], Callable[[], RepetitionResult]], effort: Repetitions
) -> dict[str, float]:
    """Return the duration of an operation of all ranks of the process group, each of which calls this.

    What is returned has the names of fields of `s2sim.testbed.measured.MeasuredTiming`. ``prepare`` sets up a
    repetition, untimed, and returns the operation. Rank 0 announces a start on the machine's shared monotonic clock; a
    repetition ends with the last rank and does not count if one started late.
    """
    # By default the kernel may wake a sleeper 50 us late, to save energy.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    rows: list[Floats] = []
    spent_s, warm_ups, lead_ns = 0.0, 0, _FIRST_LEAD_NS
    while True:
        late, row = _time_once(rank, prepare(), lead_ns)
        if late:
            lead_ns *= 2
            if lead_ns > _MAX_LEAD_NS:
                raise S2SimError("processes cannot begin together, so busy is the machine: measure when it is quiet")
            continue
        last_s = float(row[:, 0].max())
        if warm_ups < _WARM_UPS and (warm_ups == 0 or last_s < effort.budget_s / 2):
            warm_ups += 1
            continue
        rows.append(row)
        spent_s += last_s
        if len(rows) >= effort.repeats or (spent_s >= effort.budget_s and len(rows) >= _MIN_REPEATS):
            break
    times = np.stack(rows)  # (repetitions, ranks, columns of `_time_once`)
    slowest = times[:, :, 0].argmax(axis=1)
    low_s, median_s, high_s = np.percentile(times[:, :, 0].max(axis=1), (10, 50, 90)).tolist()
    seconds = {
        "median_s": median_s,
        "low_s": low_s,
        "high_s": high_s,
        "codec_s": float(np.median(times[np.arange(len(rows)), slowest, 1])),
        "cpu_s": float(np.median(times[:, :, 3].sum(axis=1))),
    }
    rounded = {name: max(round(each, 9), 0.0) for name, each in seconds.items()}
    return {"repeats": len(rows), "sent_bytes": int(np.median(times[:, :, 2].max(axis=1))), **rounded}


def _time_once(rank: int, act: Callable[[], RepetitionResult], lead_ns: int) -> tuple[bool, Floats]:
    """Return whether a rank was late, and for each rank its time, codec time, bytes sent and CPU time."""
    import torch
    import torch.distributed as dist

    instant = torch.tensor([time.monotonic_ns() + lead_ns if rank == 0 else 0])
    dist.broadcast(instant, 0)
    begin_ns = int(instant)
    sent, cpu_s = sent_bytes(), time.process_time()
    early_ns = begin_ns - time.monotonic_ns()
    if early_ns > 0:
        time.sleep(early_ns / _NS_PER_S)
    done = act()
    end_ns = time.monotonic_ns()
    cpu_s = time.process_time() - cpu_s - done.computed_s
    here = [(end_ns - begin_ns) / _NS_PER_S, done.codec_s, sent_bytes() - sent, cpu_s, early_ns <= 0]
    everywhere = torch.empty(dist.get_world_size() * len(here), dtype=torch.float64)
    dist.all_gather_into_tensor(everywhere, torch.tensor(here, dtype=torch.float64))
    row = everywhere.numpy().reshape(-1, len(here))
    return bool(row[:, -1].any()), row


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

        how = {"effort": asdict(plan.effort), "spin": setting.workers <= setting.processors, "seed": plan.seed}
        arguments = {"tasks": [asdict(task) for task in tasks], **how}
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
