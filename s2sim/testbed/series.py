"""Measurements of a series of testbeds, as tasks: what is missing in a folder is measured, row by row."""

import math
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

from s2sim.errors import OptionError, S2SimError, check_known
from s2sim.pytorch.launch import ProcessPlace, run_job
from s2sim.testbed.layout import NetworkLayout, places
from s2sim.testbed.measure import COLLECTIVES, ITEM_BYTES, MeasurementTask, Repetitions, collective_task, run_tasks
from s2sim.testbed.measured import KINDS, Kind, MeasuredSetting, MeasuredTiming, add_row, read_existing
from s2sim.testbed.training import Training, check_hook, gradient_bytes, prepare_recorded, run_trainings
from s2sim.units import parse_option, parse_rate_Bps, parse_size_bytes

REDUCERS = ("dense", "fp16", "union", "gather-rows", "owner-reduce", "topk", "s2", "s2-exact")
HOOKS = ("dense", "torch:fp16", "fp16", "powersgd:rank=4", "topk:density=0.01")
COLLECTIVES_BY_DEFAULT = ("all_reduce", "all_gather", "all_to_all")


def choose_layouts(
    up: str | None, *, workers: Sequence[int], rate: str | None, nodes: str | None, uplink: str | None
) -> list[NetworkLayout]:
    """Return the existing testbed named ``up``, or one for each number of workers, rate and uplink rate.

    ``rate`` and ``uplink`` are comma-separated rates with units (None: not shaped, and as the interfaces); ``nodes`` is
    such as ``2x4``, two nodes of four workers, and replaces ``workers``.
    """
    given = {"--workers": workers, "--rate": rate, "--nodes": nodes, "--uplink": uplink}
    if up is not None:
        if taken := [option for option, value in given.items() if value]:
            raise OptionError(f"{taken[0]} is of testbeds that are made, and {up} is one that is up: leave one out")
        from s2sim.testbed.network import find_testbed

        layout = find_testbed(up)
        if layout is None:
            raise OptionError(f"testbed {up} is not whole: s2sim dev testbed down {up}, and make it again")
        return [layout]
    if bool(workers) == (nodes is not None):
        raise OptionError("give the name of a testbed, or --workers, or --nodes, for example --workers 4 --rate 1Gbps")
    counts = [(each, each) for each in workers] if nodes is None else [parse_nodes(nodes)]
    if nodes is None and uplink is not None:
        raise OptionError(f"--uplink {uplink} changes nothing without --nodes: one switch joins all workers")
    found = {}
    for (count, among), rate_Bps in product(counts, _rates("--rate", rate)):
        for uplink_Bps in [math.inf] if nodes is None else _rates("--uplink", uplink, rate_Bps):
            name = _name(count, among, rate_Bps, uplink_Bps)
            found[name] = NetworkLayout(name, count, among, rate_Bps, uplink_Bps)
    return list(found.values())


def parse_nodes(text: str) -> tuple[int, int]:
    """Return how many workers there are, and nodes.

    >>> parse_nodes("2x4")
    (8, 2)
    """
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if match is None:
        raise OptionError(f"--nodes {text!r}: write nodes x workers of each, for example 2x4")
    return int(match[1]) * int(match[2]), int(match[1])


def _rates(option: str, text: str | None, default_Bps: float = math.inf) -> list[float]:
    parts = [] if text is None else text.split(",")
    return [parse_option(option, parse_rate_Bps, part.strip()) for part in parts] or [default_Bps]


def _name(workers: int, nodes: int, rate_Bps: float, uplink_Bps: float) -> str:
    """Return the name of one of a series.

    >>> _name(4, 4, 25e6, float("inf")), _name(8, 2, 125e6, 312500.0)
    ('w4-200mbps', 'w8-n2-1000mbps-2-5mbps')
    """
    parts = [f"w{workers}", *([f"n{nodes}"] if nodes != workers else []), _rate_label(rate_Bps)]
    return "-".join(parts + ([_rate_label(uplink_Bps)] if nodes != workers else []))


def _rate_label(rate_Bps: float) -> str:
    return "unshaped" if rate_Bps == float("inf") else f"{rate_Bps * 8 / 1e6:g}mbps".replace(".", "-").replace("+", "")


@dataclass(frozen=True, slots=True)
class RequestedMeasurements:
    """What is to be measured on every testbed, and how thoroughly."""

    kinds: tuple[Kind, ...]
    collectives: tuple[str, ...] = COLLECTIVES_BY_DEFAULT  # By name
    sizes_bytes: tuple[int, ...] = ()  # Buffers of collectives
    reducers: tuple[str, ...] = REDUCERS  # Option strings; each does its first step, or with ``warm=true`` a later one
    trace: str = "ncf"  # What they reduce
    compute_s: float = 0.05  # Seconds that ranks compute before they reduce, in iterations
    training: Training | None = None
    hooks: tuple[str, ...] = HOOKS  # With which it is trained, see `s2sim.testbed.training.check_hook`
    effort: Repetitions = field(default_factory=Repetitions)
    seed: int = 0  # Of what reducers draw

    def __post_init__(self) -> None:
        for name in self.collectives:
            check_known(name, COLLECTIVES, f"--collective {name!r} is none that is timed")
        asked = "training" in self.kinds
        if asked != (self.training is not None):
            needs = "--what training needs --module FILE.py:FUNCTION or --model NAME"
            raise OptionError(needs if asked else "--model and --module are of --what training: add that")
        for text in self.hooks if asked else ():
            check_hook(text)
        if {"reducers", "iterations"} & set(self.kinds):
            from s2sim.reducers.registry import make_reducer

            for text in self.reducers:
                made = make_reducer(text)
                if made.period > 1 or made.warmup_steps:
                    raise OptionError(
                        f"--reducer {text}: what is measured is a step by itself, and its steps are not alike"
                    )
        if "iterations" in self.kinds and not self.compute_s:
            raise OptionError("--compute 0s: iterations compute before they exchange; without that measure reducers")

    def tasks(self, workers: int) -> Mapping[Kind, Sequence[MeasurementTask]]:
        """Return what is measured between so many workers, each once."""
        found: dict[Kind, Sequence[MeasurementTask]] = {}
        for kind in self.kinds:
            if kind == "collectives":
                pairs = [(name, size) for name in self.collectives for size in self.sizes_bytes]
                tasks = [collective_task(name, size, workers) for name, size in pairs]
            elif kind == "training":
                assert self.training is not None
                about = (self.training.name, 0.0, gradient_bytes(self.training))
                tasks = [MeasurementTask(hook, *about) for hook in self.hooks]
            else:
                from s2sim.gradients.synthetic import load_trace

                try:
                    size = ITEM_BYTES * load_trace(self.trace, workers=workers).gradient(0, 0).size
                except OSError as error:
                    raise S2SimError(f"cannot read the trace {self.trace}: {error.strerror or error}") from None
                compute_s = self.compute_s if kind == "iterations" else 0.0
                tasks = [MeasurementTask(reducer, self.trace, compute_s, size) for reducer in self.reducers]
            found[kind] = list(dict.fromkeys(tasks))
        return found


def parse_kinds(text: str) -> tuple[Kind, ...]:
    """Return kinds of things by a list of them.

    >>> parse_kinds("collectives, reducers")
    ('collectives', 'reducers')
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        check_known(name, KINDS, f"--what {name!r} is nothing that is measured")
    return tuple(kind for kind in KINDS if kind in names)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return sizes in bytes: a list, or from the first to the last, each four times the one before.

    >>> parse_sizes("1KiB,3KiB"), parse_sizes("1KiB-16KiB"), parse_sizes("1KiB-10KiB")
    ((1024, 3072), (1024, 4096, 16384), (1024, 4096, 10240))
    """
    first, dash, last = text.partition("-")
    if not dash:
        return tuple(sorted(set(map(_size, text.split(",")))))
    size, end = _size(first), _size(last)
    if size > end:
        raise OptionError(f"--sizes {text}: the first size is larger than the last; write the smaller one first")
    sizes = []
    while size < end:
        sizes.append(size)
        size *= 4
    return (*sizes, end)


def _size(text: str) -> int:
    size = parse_option("--sizes", parse_size_bytes, text.strip())
    if not ITEM_BYTES <= size <= 2**32:
        raise OptionError(f"--sizes {text.strip()}: a buffer has {ITEM_BYTES} bytes to 4GiB")
    return size


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
