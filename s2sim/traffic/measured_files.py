"""What benchmarks of collectives measured, from each of their files.

nccl-tests and rccl-tests print a log; nccl-tests writes JSON too (``-J FILE.json``, src/util.cu of 2026), rccl-tests
JSON or CSV (``-Z json -x FILE``, its `Reporter`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from s2sim.errors import S2SimError, describe_problems
from s2sim.files import describe_problem, read_table, read_text
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
    """Return the tables of a file of nccl-tests or rccl-tests, at least one, each with at least one row.

    A log is read line by line, see `s2sim.traffic.nccl_tests.parse_nccl_tests`; rows of other files count from 1.
    ``in_place`` selects the times in place. `S2SimError` with the place for what is damaged or holds no table, and for
    a table that s2sim has simulated.
    """
    text = read_text(path, noun="the log", most_bytes=MAX_BYTES)
    if text.startswith("# simulated by s2sim"):
        raise S2SimError(f"{path} was simulated by s2sim, as its first line says: a measurement is needed")
    begin = text.lstrip()[:1]
    if begin == "{":
        found = _nccl_tables(_read_json(text, _NcclRun, path), in_place)
    elif begin == "[":
        found = _rccl_tables(list(enumerate(_read_json(text, list[_RcclRow], path), 1)), in_place)
    elif text.startswith("numCycle,"):
        found = _rccl_tables(_read_rccl_csv(path), in_place)
    else:
        return parse_nccl_tests(text, str(path), in_place=in_place)
    if not found:
        raise S2SimError(f"{path} has no row with an {'in-place' if in_place else 'out-of-place'} time")
    return found


def _read_json(text: str, form: type[T], path: Path) -> T:
    try:
        return TypeAdapter(form).validate_python(json.loads(text))
    except ValidationError as error:
        problems = describe_problems(error.errors(include_url=False), "file", 1)
        raise S2SimError(f"{path} is no JSON of nccl-tests or rccl-tests: {problems}") from None
    except (ValueError, RecursionError) as error:
        raise S2SimError(f"{path} is no JSON of nccl-tests or rccl-tests: {error}") from None


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
        channels=None,
        rows=tuple(rows),
        unfinished=(),
    )
    return (table,) if rows else ()


def _rccl_tables(rows: Sequence[tuple[int, _RcclRow]], in_place: bool) -> tuple[MeasuredTable, ...]:
    """Return a table for each stretch of rows of one collective and number of ranks."""
    kept = [(number, row) for number, row in rows if row.in_place == in_place and row.time is not None]
    tables = []
    for (name, ranks, per_node, gpus), stretch in groupby(
        kept, lambda item: (item[1].name, item[1].ranks, item[1].ranks_per_node, item[1].gpus)
    ):
        measured = [
            MeasuredRow(number, row.size, row.time / 1e6, row.wrong) for number, row in stretch if row.time is not None
        ]
        hosts = [RankDevice(rank, f"node {rank // per_node}", "") for rank in range(ranks or 0)] if per_node else []
        tables.append(
            MeasuredTable(
                line=measured[0].line,
                collective=kind_of(name),
                ranks=ranks,
                devices=tuple(hosts),
                gpus_per_thread=gpus,
                library="RCCL",
                channels=None,
                rows=tuple(measured),
                unfinished=(),
            )
        )
    return tuple(tables)
