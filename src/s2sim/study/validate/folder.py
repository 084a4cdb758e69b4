"""Reads a folder of measured curves: an index with a row each, and a table of sizes and times for every row."""

from __future__ import annotations

import math
from pathlib import Path

from s2sim.csv_files import SHOWN, read_table
from s2sim.data import data_directory
from s2sim.errors import S2SimError
from s2sim.study.validate.curve import Curve, Machine, MeasuredPoint
from s2sim.study.validate.harness import read_index
from s2sim.text_files import user_path

INDEX = "index.csv"
_POINT_COLUMNS = ("size_bytes", "time_us")
_MOST_CURVE_BYTES = 2**20
# Bytes, and seconds: what is beyond is a slip of the pen.
_MOST_SIZE_BYTES, _LEAST_S, _MOST_S = 2**46, 1e-12, 1e6


def folder_of(text: str | None) -> Path:
    """Return the folder that was asked for, or that of the public curves."""
    return data_directory("measured") if text is None else user_path(text, S2SimError)


def read_folder(folder: Path) -> tuple[Curve, ...]:
    """Return the curves of a folder in the order of its index.

    What is wrong with one curve is its ``problem``; `S2SimError` is raised for an index that cannot be read at all.
    """
    if not folder.is_dir():
        raise S2SimError(f"{folder} is no directory: give one with an {INDEX}, or none for the public curves")
    curves = []
    no_name = "names no file of the folder"
    for cells, machine, problem in read_index(folder / INDEX, Machine, "curve", _names_a_file, no_name):
        try:
            points = () if machine is None else _points(folder / f"{machine.id}.csv")
            curves.append(Curve(cells["id"], machine, points, problem))
        except S2SimError as error:
            curves.append(Curve(cells["id"], machine, (), str(error)))
    return tuple(curves)


def _names_a_file(name: str) -> bool:
    return name == Path(name).name and not name.startswith(".")


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
