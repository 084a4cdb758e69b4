"""Reads the measured iterations of a folder, one a row of its ``iterations.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.data import data_directory
from s2sim.errors import S2SimError
from s2sim.study.validate.harness import MOST_LETTERS, read_index
from s2sim.study.validate.iterations.row import IterationRow
from s2sim.text_files import user_path

if TYPE_CHECKING:
    from pathlib import Path

FILE = "iterations.csv"
SHIPPED = "measured_iterations"


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
    if not has_iterations(folder):
        raise S2SimError(f"{folder} has no {FILE}: give a folder with one, or none for the public iterations")
    return tuple(
        Measured(cells["id"], row.source if row else cells["source"][:MOST_LETTERS] or cells["id"], row, problem)
        for cells, row, problem in read_index(
            folder / FILE, IterationRow, "measured iteration", str.isprintable, "is no name of a row"
        )
    )
