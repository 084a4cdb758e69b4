"""Reads a folder of measured curves: an index with a row each, and a table of sizes and times for every row."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.csv_files import SHOWN, problem_of, read_table
from s2sim.data import data_directory
from s2sim.errors import S2SimError
from s2sim.study.validate.curve import Curve, Machine, MeasuredPoint
from s2sim.text_files import user_path

if TYPE_CHECKING:
    from pydantic import TypeAdapter

INDEX = "index.csv"
# What a row cannot do without; others may be missing.
_NEEDED = (
    "id",
    "gpu_model",
    "gpus_per_node",
    "nodes",
    "ranks",
    "intra_interconnect",
    "nics_per_node",
    "nic_rate_gbps",
    "collective",
    "outlier_sizes_bytes",
    "quality",
    "system",
    "launch",
    "algorithm",
    "nvlink_domain_gpus",
    "transport",
    "doubt",
)
_POINT_COLUMNS = ("size_bytes", "time_us")
_MOST_CURVE_BYTES = 2**20
_MOST_CURVES = 4096
# Bytes, and seconds: what is beyond is a slip of the pen.
_MOST_SIZE_BYTES, _LEAST_S, _MOST_S = 2**46, 1e-12, 1e6
# Of a name of a file.
_MOST_LETTERS = 200


def folder_of(text: str | None) -> Path:
    """Return the folder that was asked for, or that of the public curves."""
    return data_directory("measured") if text is None else user_path(text, S2SimError)


def read_folder(folder: Path) -> tuple[Curve, ...]:
    """Return the curves of a folder in the order of its index.

    What is wrong with one curve is its ``problem``; `S2SimError` is raised for an index that cannot be read at all.
    """
    from pydantic import TypeAdapter

    if not folder.is_dir():
        raise S2SimError(f"{folder} is no directory: give one with an {INDEX}, or none for the public curves")
    rows = read_table(folder / INDEX, _NEEDED)
    if not rows:
        raise S2SimError(f"{folder / INDEX} has no row: write one for each curve")
    if len(rows) > _MOST_CURVES:
        raise S2SimError(f"{folder / INDEX} has {len(rows)} rows, more than {_MOST_CURVES}: split the folder")
    adapter = TypeAdapter(Machine)
    curves: list[Curve] = []
    numbers: dict[str, int] = {}
    for number, cells in rows:
        name = cells.get("id") or ""
        if not name or name != Path(name).name or name.startswith(".") or len(name) > _MOST_LETTERS:
            raise S2SimError(f"{INDEX}, row {number}, column id: {name[:SHOWN]!r} names no file of the folder")
        if name in numbers:
            raise S2SimError(f"{INDEX}, row {number}, column id: {name!r} stands in row {numbers[name]} too")
        numbers[name] = number
        curves.append(_curve(folder, name, number, cells, adapter))
    return tuple(curves)


def _curve(folder: Path, name: str, number: int, cells: dict[str, str], adapter: TypeAdapter[Machine]) -> Curve:
    from pydantic import ValidationError

    machine = None
    try:
        machine = adapter.validate_python(cells)
        return Curve(name, machine, _points(folder / f"{name}.csv"))
    except ValidationError as error:
        problem = problem_of(error, f"{INDEX}, row {number}", cells)
    except S2SimError as error:
        problem = str(error)
    return Curve(name, machine, (), problem)


def _points(path: Path) -> tuple[MeasuredPoint, ...]:
    """Return the sizes and times of a table by size; rows of no bytes are left out."""
    points = []
    for number, cells in read_table(path, _POINT_COLUMNS, _MOST_CURVE_BYTES):
        size, time_us = (
            _number(cells[column], f"{path.name}, row {number}, column {column}") for column in _POINT_COLUMNS
        )
        where = f"{path.name}, row {number}"
        if size != int(size) or not 0 <= size <= _MOST_SIZE_BYTES:
            raise S2SimError(f"{where}, column size_bytes: {cells['size_bytes'][:SHOWN]!r} is no number of bytes")
        if not _LEAST_S * 1e6 <= time_us <= _MOST_S * 1e6:
            raise S2SimError(f"{where}, column time_us: {cells['time_us'][:SHOWN]!r} is no time in microseconds")
        if size:
            points.append(MeasuredPoint(int(size), time_us / 1e6))
    if not points:
        raise S2SimError(f"{path.name} has no point: write a row for each size")
    return tuple(sorted(points, key=lambda point: point.size_bytes))


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise S2SimError(f"{where}: {text[:SHOWN]!r} is not a number") from None
    if not math.isfinite(value):
        raise S2SimError(f"{where}: {text[:SHOWN]!r} is not a finite number")
    return value
