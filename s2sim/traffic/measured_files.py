"""What benchmarks and jobs measured of collectives, from each of their files.

nccl-tests and rccl-tests print a log; nccl-tests writes JSON too (``-J FILE.json``, src/util.cu of 2026), rccl-tests
JSON or CSV (``-Z json -x FILE``, its `Reporter`). PyTorch's flight recorder keeps a job's last collectives, and dumps
a pickle a rank (``TORCH_FR_DUMP_TEMP_FILE``) or JSON; it times them with ``TORCH_NCCL_ENABLE_TIMING=1``. Chakra has
traces of a job's ranks. OSU's benchmarks of MPI print a line a size.
"""

import json
import pickle
import pickletools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from math import prod
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from s2sim.errors import S2SimError, describe_problems
from s2sim.files import describe_problem, own_tables, read_bytes, read_table, read_text
from s2sim.traffic.chakra import BEGINNING, read_chakra
from s2sim.traffic.log_table import MeasuredRow, MeasuredTable, RankDevice
from s2sim.traffic.nccl_tests import MAX_BYTES, MAX_S, MAX_SIZE_BYTES, NONE, kind_of, library_of_code, parse_nccl_tests

T = TypeVar("T")

_MOST_RANKS = 1 << 20


def _or_none(value: Any) -> Any:
    text = value.strip('"') if isinstance(value, str) else value
    return None if isinstance(text, str) and text.lower() in NONE else text


_Size = Annotated[int, Field(ge=0, le=MAX_SIZE_BYTES)]
_Time = Annotated[Annotated[float, Field(ge=0, le=MAX_S * 1e6)] | None, BeforeValidator(_or_none)]
_Wrong = Annotated[float | None, BeforeValidator(_or_none)]
_Ranks = Annotated[int, Field(ge=0, le=_MOST_RANKS)]


@dataclass(frozen=True, slots=True)
class _Way:
    time: _Time = None
    cpu_time: _Time = None
    nwrong: _Wrong = None


@dataclass(frozen=True, slots=True)
class _NcclRow:
    size: _Size
    out_of_place: _Way | None = None
    in_place: _Way | None = None


@dataclass(frozen=True, slots=True)
class _Device:
    rank: _Ranks
    hostname: str = ""
    device_info: str = ""


@dataclass(frozen=True, slots=True)
class _Config:
    nthreads: Annotated[int, Field(ge=1, le=1024)] = 1
    ngpus: Annotated[int, Field(ge=1, le=1024)] = 1
    devices: Annotated[list[_Device], Field(max_length=_MOST_RANKS)] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _NcclRun:
    results: list[_NcclRow]
    args: list[str] = field(default_factory=list)
    nccl_version: int = 0
    config: _Config = field(default_factory=_Config)


@dataclass(frozen=True, slots=True)
class _RcclRow:
    size: _Size
    time: _Time
    in_place: Annotated[bool, Field(validation_alias="inPlace")]
    name: str
    wrong: _Wrong = None
    ranks: _Ranks | None = None
    ranks_per_node: Annotated[_Ranks, Field(validation_alias="ranksPerNode")] = 0
    gpus: Annotated[_Ranks, Field(validation_alias="gpusPerRank")] = 1


def read_measured(path: Path, *, in_place: bool = False) -> tuple[MeasuredTable, ...]:
    """Return the tables of a file of measured collectives, at least one, each with at least one row.

    Files of nccl-tests and rccl-tests, of OSU's benchmarks, dumps of PyTorch's flight recorder, and traces of Chakra. A
    log is read line by line, see `s2sim.traffic.nccl_tests.parse_nccl_tests`; rows of other files count from 1.
    ``in_place`` selects the times in place. `S2SimError` with the place for what is damaged or holds no table, and for
    a table that s2sim has simulated.
    """
    if BEGINNING.match(head := _head(path)):
        return _chakra_tables(read_bytes(path, MAX_BYTES), path)
    if head.startswith(b"\x80"):
        return _flight_recorder_tables(read_bytes(path, MAX_BYTES), path)
    text = read_text(path, noun="the log", most_bytes=MAX_BYTES)
    if text.startswith("# simulated by s2sim"):
        raise S2SimError(f"{path} was simulated by s2sim, as its first line says: a measurement is needed")
    # Lines of a log may begin with a tag in brackets.
    begun, load = re.match(r"\s*(?:(\{)|\[\s*(?:[\[{\]]|$))", text), partial(json.loads, text)
    begin = begun and (begun[1] or "[")
    no_json = f"{path} is no JSON of nccl-tests or rccl-tests"
    if begin == "{" and '"entries"' in text:
        return _flight_recorder_tables(text.encode(), path)
    if _OSU.search(text):
        return _osu_tables(text, path)
    if begin == "{":
        found = _nccl_tables(_load_as(_NcclRun, load, no_json), in_place)
    elif begin == "[":
        found = _rccl_tables(list(enumerate(_load_as(list[_RcclRow], load, no_json), 1)), in_place)
    elif text.startswith("numCycle,"):
        found = _rccl_tables(_read_rccl_csv(path), in_place)
    else:
        return parse_nccl_tests(text, str(path), in_place=in_place)
    if not found:
        raise S2SimError(f"{path} has no row with an {'in-place' if in_place else 'out-of-place'} time")
    return found


def _head(path: Path) -> bytes:
    # What is no regular file may wait for ever, and what cannot be read is refused by who reads it all.
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(64)
    return b""


def _load_as(form: type[T], load: Callable[[], Any], refusal: str) -> T:
    try:
        return TypeAdapter(form).validate_python(load())
    except ValidationError as error:
        raise S2SimError(f"{refusal}: {describe_problems(error.errors(include_url=False), 'file', 1)}") from None
    except (*_DAMAGE, pickle.UnpicklingError) as error:
        raise S2SimError(f"{refusal}: {error}") from None


def _read_rccl_csv(path: Path) -> list[tuple[int, _RcclRow]]:
    rows, adapter = [], TypeAdapter(_RcclRow)
    for number, cells in read_table(path, ("collective", "size", "inplace", "time"), MAX_BYTES):
        named = {
            **{key: text.strip('"') for key, text in cells.items()},
            "name": cells["collective"].strip('"'),
            "inPlace": cells["inplace"],
            "wrong": cells.get("#wrong", "N/A"),
            "gpusPerRank": cells.get("gpusPerRank", "1"),
        }
        try:
            rows.append((number, adapter.validate_python(named)))
        except ValidationError as error:
            raise S2SimError(describe_problem(error, f"{path.name}, row {number}", named)) from None
    return rows


def _nccl_tables(run: _NcclRun, in_place: bool) -> tuple[MeasuredTable, ...]:
    rows = []
    for number, each in enumerate(run.results, 1):
        way = each.in_place if in_place else each.out_of_place
        time_us = None if way is None else way.time if way.time is not None else way.cpu_time
        if way is not None and time_us is not None:
            rows.append(MeasuredRow(number, each.size, time_us / 1e6, way.nwrong))
    named = re.search(r"(\w+?)_perf(?:_mpi)?$", run.args[0]) if run.args else None
    # Of each process its first GPU is listed.
    each_process = run.config.nthreads * run.config.ngpus
    devices = [
        RankDevice(first.rank + more, first.hostname, first.device_info.strip())
        for first in run.config.devices
        for more in range(each_process)
    ]
    table = MeasuredTable(
        line=1,
        collective=None if named is None else kind_of(named[1]),
        ranks=max((each.rank for each in devices), default=each_process - 1) + 1 if devices else None,
        devices=tuple(devices),
        gpus_per_thread=run.config.ngpus,
        library=library_of_code(run.nccl_version) if run.nccl_version else None,
        rows=tuple(rows),
    )
    return (table,) if rows else ()


def _rccl_tables(rows: Sequence[tuple[int, _RcclRow]], in_place: bool) -> tuple[MeasuredTable, ...]:
    kept = [
        ((row.name, row.ranks, row.ranks_per_node, row.gpus), MeasuredRow(number, row.size, row.time / 1e6, row.wrong))
        for number, row in rows
        if row.in_place == in_place and row.time is not None
    ]
    tables = []
    for (name, ranks, per_node, gpus), stretch in groupby(kept, itemgetter(0)):
        measured = tuple(row for _, row in stretch)
        hosts = [RankDevice(rank, f"node {rank // per_node}", "") for rank in range(ranks or 0)] if per_node else []
        tables.append(MeasuredTable(measured[0].line, kind_of(name), ranks, measured, "RCCL", tuple(hosts), gpus))
    return tuple(tables)


_DUMPS = own_tables(__file__, "flight_recorder.toml")
_BYTES: dict[str, int] = _DUMPS["bytes"]
_PLAIN = frozenset(_DUMPS["pickle"]["plain"].split())
# What is raised of values that are none.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, EOFError, RecursionError, MemoryError)
_Sizes = list[Annotated[list[Annotated[int, Field(ge=0, le=MAX_SIZE_BYTES)]], Field(max_length=64)]]


@dataclass(frozen=True, slots=True)
class _Entry:
    profiling_name: str
    process_group: tuple[str, str] = ("", "")
    input_sizes: _Sizes = field(default_factory=list)
    output_sizes: _Sizes = field(default_factory=list)
    input_dtypes: list[str] = field(default_factory=list)
    output_dtypes: list[str] = field(default_factory=list)
    duration_ms: Annotated[float, Field(ge=0, le=MAX_S * 1e3)] | None = None

    @property
    def kind(self) -> str | None:
        """The collective; None for sends, barriers and unknown ones."""
        name = self.profiling_name.rpartition(":")[2]
        return next((kind for form, kind in _DUMPS["kinds"].items() if re.match(form, name)), None)

    @property
    def size_bytes(self) -> int | None:
        """As nccl-tests counts it: what is handed in, of an all-gather what it gives; None of an unknown type."""
        gathers = self.kind == "all_gather"
        sizes, dtypes = (self.output_sizes, self.output_dtypes) if gathers else (self.input_sizes, self.input_dtypes)
        if len(set(dtypes)) != 1 or dtypes[0] not in _BYTES:
            return None
        return min(sum(map(prod, sizes)) * _BYTES[dtypes[0]], MAX_SIZE_BYTES)


@dataclass(frozen=True, slots=True)
class _Group:
    ranks: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Dump:
    entries: list[_Entry]
    pg_config: dict[str, _Group] = field(default_factory=dict)
    comm_lib_version: str = ""
    nccl_version: str = ""


def _load_plain_pickle(data: bytes) -> Any:
    """Return the plain value of a pickle; `ValueError` for one that would make anything else."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _PLAIN or (opcode.name == "LONG_BINPUT" and int(argument or 0) > len(data)):
            raise ValueError(f"it holds {opcode.name}, which is in no dump of the flight recorder")
    return pickle.loads(data)  # noqa: S301 # opcodes that call nothing


def _flight_recorder_tables(data: bytes, path: Path) -> tuple[MeasuredTable, ...]:
    """Return a table for each collective and group of ranks of a dump, with the median duration of each size."""
    # Rows have the number of the first entry of their size. A kernel waits for the last rank to join, so that durations
    # have in them what ranks are apart. `S2SimError` where nothing is timed.
    load = partial(json.loads if data[:1] == b"{" else _load_plain_pickle, data)
    dump = _load_as(_Dump, load, f"{path} is no dump of the flight recorder")
    numbers = {key: tuple(map(int, re.findall(r"\d{1,9}", each.ranks))) for key, each in dump.pg_config.items()}
    members = {name: numbers[key] for key, each in dump.pg_config.items() for name in (key, each.name)}
    entries = [(one.kind, one.process_group[0], one.size_bytes, (one.duration_ms or 0) / 1e3) for one in dump.entries]
    version = dump.comm_lib_version or dump.nccl_version
    if not (tables := _median_tables(entries, members, f"NCCL {version}" if version else None)):
        raise S2SimError(
            f"{path} has no collective with a duration: record with TORCH_NCCL_ENABLE_TIMING=1 and dump again"
        )
    return tables


def _chakra_tables(data: bytes, path: Path) -> tuple[MeasuredTable, ...]:
    """Return the same of a trace of Chakra; an all-gather, of which it has a rank's part, where it says of how many."""
    try:
        found, ranks = read_chakra(data)
    except ValueError as error:
        raise S2SimError(f"{path} is no trace of Chakra: {error}") from None
    entries: list[tuple[str | None, str, int | None, float]] = []
    for kind, group, size, seconds in found:
        parts = ranks.get(group) if kind == "all_gather" else 1
        entries.append((kind, group, None if parts is None else min(size * parts, MAX_SIZE_BYTES), seconds))
    if not (tables := _median_tables(entries, ranks)):
        raise S2SimError(
            f"{path} has no collective with a duration ({len(found)} without): link it with a device trace"
        )
    return tables


def _median_tables(
    entries: Sequence[tuple[str | None, str, int | None, float]],
    ranks: Mapping[str, int | tuple[int, ...]],
    library: str | None = None,
) -> tuple[MeasuredTable, ...]:
    """Return a table for each kind and group, with the median of the seconds of each size in bytes.

    ``ranks`` has the number of a group's ranks, or their numbers in the job.
    """
    timed: dict[tuple[str, str], dict[int, list[tuple[int, float]]]] = {}
    for number, (kind, group, size, seconds) in enumerate(entries, 1):
        if kind is not None and size is not None and seconds:
            timed.setdefault((kind, group), {}).setdefault(size, []).append((number, seconds))
    tables = []
    for (kind, group), sizes in timed.items():
        rows = [MeasuredRow(own[0][0], size, median(s for _, s in own), None) for size, own in sorted(sizes.items())]
        known = ranks.get(group)
        members = known if isinstance(known, tuple) else ()
        count = known if isinstance(known, int) else len(members) or None
        tables.append(MeasuredTable(rows[0].line, kind, count, tuple(rows), library, members=members))
    return tuple(tables)


# Behind what a launcher writes before a line, such as ``[1,0]<stdout>:``.
_OSU, _OSU_ROW = (
    re.compile(r"^(?:\S+[:>|\]])?[ \t]*# OSU ", re.MULTILINE),
    re.compile(r"(?:\S+[:>|\]])?[ \t]*(\d{1,15})\s+(\d{1,12}(?:\.\d{1,9})?)(?:\s|$)"),
)


def _osu_tables(text: str, path: Path) -> tuple[MeasuredTable, ...]:
    """Return the table of an OSU benchmark of a collective, whose averages over ranks it takes."""
    # `S2SimError` for one whose sizes are those of a part of a buffer, as the file does not say in how many it is cut.
    named = re.search(r"# OSU MPI\S* (\S+) (?:\w+ )?Latency Test", text)
    kind = kind_of(named[1].lower().replace("bcast", "broadcast")) if named else ""
    if named is None or kind not in ("all_reduce", "reduce", "broadcast"):
        raise S2SimError(
            f"{path} is {f'of {named[1]}' if named else 'no table of a collective'}: of OSU's benchmarks allreduce, "
            "reduce and bcast are read, whose sizes are those of a whole buffer"
        )
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if found := _OSU_ROW.match(line):
            rows.append(MeasuredRow(number, min(int(found[1]), MAX_SIZE_BYTES), float(found[2]) / 1e6, None))
    if not rows:
        raise S2SimError(f"{path} has no row with a size and a latency in microseconds")
    return (MeasuredTable(rows[0].line, kind, None, tuple(rows)),)
