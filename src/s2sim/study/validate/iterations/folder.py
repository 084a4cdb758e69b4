"""Reads the measured iterations of a folder, one a row of its ``iterations.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.csv_files import problem_of, read_table
from s2sim.data import data_directory
from s2sim.errors import S2SimError
from s2sim.study.validate.iterations.row import IterationRow
from s2sim.text_files import user_path

if TYPE_CHECKING:
    from pathlib import Path

FILE = "iterations.csv"
SHIPPED = "measured_iterations"
# What a row cannot do without; others may be missing.
_NEEDED = (
    "id",
    "source",
    "gpu",
    "nodes",
    "gpus_per_node",
    "workers",
    "model",
    "reducer",
    "iteration_ms",
    "overlap_kind",
    "transport",
)
_MOST_ROWS = 4096
_MOST_LETTERS = 200
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of a folder; ``problem`` says why it cannot be read, else it is empty."""

    id: str
    source: str
    row: IterationRow | None
    problem: str = ""


def folder_of_iterations(text: str | None) -> Path:
    """Return the folder that was asked for; that of the public iterations for None, and for its name elsewhere."""
    path = None if text is None else user_path(text, S2SimError)
    return data_directory(SHIPPED) if path is None or (text == SHIPPED and not path.exists()) else path


def has_iterations(folder: Path) -> bool:
    """Return whether a folder holds measured iterations."""
    return (folder / FILE).is_file()


def read_iterations(folder: Path) -> tuple[Measured, ...]:
    """Return the measured iterations of a folder in the order of its file.

    What is wrong with one row is its ``problem``; `S2SimError` is raised for a file that cannot be read at all.
    """
    from pydantic import TypeAdapter, ValidationError

    if not has_iterations(folder):
        raise S2SimError(f"{folder} has no {FILE}: give a folder with one, or none for the public iterations")
    rows = read_table(folder / FILE, _NEEDED)
    if not rows:
        raise S2SimError(f"{folder / FILE} has no row: write one for each measured iteration")
    if len(rows) > _MOST_ROWS:
        raise S2SimError(f"{folder / FILE} has {len(rows)} rows, more than {_MOST_ROWS}: split the folder")
    adapter = TypeAdapter(IterationRow)
    found: list[Measured] = []
    numbers: dict[str, int] = {}
    for number, cells in rows:
        name = cells["id"]
        if not name or len(name) > _MOST_LETTERS or not name.isprintable():
            raise S2SimError(f"{FILE}, row {number}, column id: {name[:_SHOWN]!r} is no name of a row")
        if name in numbers:
            raise S2SimError(f"{FILE}, row {number}, column id: {name!r} stands in row {numbers[name]} too")
        numbers[name] = number
        try:
            row = adapter.validate_python(cells)
            found.append(Measured(name, row.source, row))
        except ValidationError as error:
            problem = problem_of(error, f"{FILE}, row {number}", cells)
            found.append(Measured(name, cells["source"][:_MOST_LETTERS] or name, None, problem))
    return tuple(found)
