"""What was measured on a testbed: its settings, and times of collectives, reducers and training, as tables."""

import csv
import io
from collections.abc import Collection
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

from pydantic import Field, TypeAdapter, ValidationError

from s2sim.errors import S2SimError
from s2sim.files import describe_problem, measured_folder, read_table, replace_file

_Word = Annotated[str, Field(min_length=1, max_length=200)]
_Count = Annotated[int, Field(ge=1, le=2**20)]
_Bytes = Annotated[int, Field(ge=0, le=2**60)]
_Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
_Rate = Annotated[float, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """One testbed as it stood while something was measured."""

    name: _Word  # By which the other tables name it
    # workers, nodes: Processes, and nodes that they are dealt to evenly; with ``nodes == workers`` each has an
    # interface of its own.
    workers: _Count
    nodes: _Count
    # rate_Bps, uplink_Bps: Of each node's interface, each way, and of each node's uplink to the switch that joins them;
    # infinite where nothing shapes it.
    rate_Bps: _Rate
    uplink_Bps: _Rate
    processors: _Count  # CPUs that all processes share
    # machine, kernel, torch: Model of the CPU, release of the kernel, and version of PyTorch.
    machine: _Word
    kernel: _Word
    torch: _Word
    # date, command: When, as ISO 8601, and what was called.
    date: _Word
    command: str


@dataclass(frozen=True, slots=True)
class MeasuredTiming:
    """Times of one thing repeated on a testbed, each that of the slowest rank."""

    setting: _Word  # Name of the testbed
    # A collective, as ``all_reduce``, or an option string of a reducer, which does its first step, or with
    # ``warm=true`` a later one; of training the hook, ``dense`` without one, ``torch:fp16`` for one of PyTorch's own.
    what: _Word
    # Trace whose gradients of its first step are reduced, rank by rank, or name of the training; empty for collectives
    trace: str
    compute_s: _Seconds  # Seconds that every rank spins before it exchanges; 0 where the exchange stands alone
    payload_bytes: _Bytes  # Buffer of a collective as nccl-tests count it, or of the dense gradient, in bytes
    repeats: _Count  # Times measured, after those that warm up
    # median_s, low_s, high_s: Median of the times in seconds, and their 10th and 90th percentile.
    median_s: _Seconds
    low_s: _Seconds
    high_s: _Seconds
    # Of the median, seconds that the slowest rank spends outside of collectives and of spinning; 0 of collectives. Of
    # training those of the reducer in its hook, copies of gradients left out, in the mean.
    codec_s: _Seconds
    # Bytes that TCP of the rank with most has sent in one repetition, payload and framing of the library.
    sent_bytes: _Bytes
    # CPU seconds of all processes together in one repetition, the kernel's work for them included, spinning not; of
    # training its compute too.
    cpu_s: _Seconds


Kind: TypeAlias = Literal["collectives", "reducers", "iterations", "training"]
Row = TypeVar("Row", MeasuredSetting, MeasuredTiming)

KINDS: tuple[Kind, ...] = get_args(Kind)
_SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class MeasuredTestbeds:
    """All that a folder holds, in the order of its files."""

    settings: tuple[MeasuredSetting, ...] = ()  # One for each testbed
    # collectives, reducers, iterations, training: Each names one of the settings; empty without such a table.
    collectives: tuple[MeasuredTiming, ...] = ()
    reducers: tuple[MeasuredTiming, ...] = ()
    iterations: tuple[MeasuredTiming, ...] = ()
    training: tuple[MeasuredTiming, ...] = ()

    def of(self, kind: Kind) -> tuple[MeasuredTiming, ...]:
        """Return the times of one kind."""
        found: tuple[MeasuredTiming, ...] = getattr(self, kind)
        return found

    def only(self, names: Collection[str], kinds: Collection[Kind]) -> "MeasuredTestbeds":
        """Return what there is of some settings, by name, and of some kinds."""
        settings = tuple(setting for setting in self.settings if setting.name in names)
        rows = {kind: tuple(row for row in self.of(kind) if row.setting in names) for kind in kinds}
        return MeasuredTestbeds(settings, **rows)


resolve_testbeds_folder = partial(measured_folder, "testbed")


def read_measured(folder: Path) -> MeasuredTestbeds:
    """Read a folder of measurements; `S2SimError` on missing, unreadable or duplicate rows or settings."""
    settings = _rows(folder / f"{_SETTINGS}.csv", MeasuredSetting)
    names = [setting.name for setting in settings]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise S2SimError(f"{folder / _SETTINGS}.csv has {twice!r} twice: leave one out, or rename it in all tables")
    found: dict[Kind, tuple[MeasuredTiming, ...]] = {}
    for kind in KINDS:
        path = folder / f"{kind}.csv"
        found[kind] = _rows(path, MeasuredTiming) if path.exists() else ()
        if unknown := next((row.setting for row in found[kind] if row.setting not in names), None):
            raise S2SimError(f"{path} tells of {unknown!r}, which {_SETTINGS}.csv has not: add its row there")
    return MeasuredTestbeds(settings, **found)


def read_existing(folder: Path) -> MeasuredTestbeds:
    """Return what a folder holds; nothing where there is no folder, or none of its tables yet."""
    begun = any((folder / f"{name}.csv").exists() for name in (_SETTINGS, *KINDS))
    return read_measured(folder) if begun else MeasuredTestbeds()


def _rows(path: Path, form: type[Row]) -> tuple[Row, ...]:
    found: list[Row] = []
    adapter = TypeAdapter(form)
    for number, cells in read_table(path, [item.name for item in fields(form)]):
        try:
            found.append(adapter.validate_python(cells))
        except ValidationError as error:
            raise S2SimError(describe_problem(error, f"{path}, row {number}", cells)) from None
    return tuple(found)


def add_row(folder: Path, kind: Kind | None, row: MeasuredSetting | MeasuredTiming) -> None:
    """Add a row to the table of one kind, None for that of settings; the folder is made where there is none.

    What stood there before stays whole also where the disk is full or the process ends.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise S2SimError(f"cannot make the folder {folder}: {error.strerror or error}") from None
    path, text = folder / f"{kind or _SETTINGS}.csv", io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    try:
        before = path.read_text("utf-8") if path.exists() else ""
        if not before:
            table.writerow(item.name for item in fields(row))
        table.writerow(astuple(row))
        replace_file(path, (before + text.getvalue()).encode())
    except OSError as error:
        raise S2SimError(f"cannot write {path}: {error.strerror or error}") from None
