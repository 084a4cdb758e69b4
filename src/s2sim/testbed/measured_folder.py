"""Reads and writes what was measured on testbeds: a folder with a table of settings and one for each kind of thing."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args

from s2sim.csv_files import problem_of, read_table
from s2sim.data import data_directory
from s2sim.errors import S2SimError
from s2sim.testbed.measured import Setting, Timed
from s2sim.text_files import user_path

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

Kind: TypeAlias = Literal["collectives", "reducers", "iterations"]
Row = TypeVar("Row", Setting, Timed)

KINDS: tuple[Kind, ...] = get_args(Kind)
SHIPPED = "measured_testbed"
_SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class MeasuredTestbeds:
    """All that a folder holds, in the order of its files."""

    settings: tuple[Setting, ...] = ()  # One for each testbed
    # collectives, reducers, iterations: Each names one of the settings; empty where the folder has no such table.
    collectives: tuple[Timed, ...] = ()
    reducers: tuple[Timed, ...] = ()
    iterations: tuple[Timed, ...] = ()

    def of(self, kind: Kind) -> tuple[Timed, ...]:
        """Return the times of one kind."""
        found: tuple[Timed, ...] = getattr(self, kind)
        return found

    def only(self, names: Collection[str], kinds: Collection[Kind]) -> MeasuredTestbeds:
        """Return what there is of some settings, by name, and of some kinds."""
        settings = tuple(setting for setting in self.settings if setting.name in names)
        rows = {kind: tuple(row for row in self.of(kind) if row.setting in names) for kind in kinds}
        return MeasuredTestbeds(settings, **rows)


def measured_testbeds_folder(text: str | None) -> Path:
    """Return the folder that was asked for; that of the shipped measurements for None, and for its name elsewhere."""
    path = None if text is None else user_path(text, S2SimError)
    return data_directory(SHIPPED) if path is None or (text == SHIPPED and not path.exists()) else path


def read_measured(folder: Path) -> MeasuredTestbeds:
    """Return what a folder holds.

    Raises
    ------
    S2SimError
        If there is no ``settings.csv``, a row cannot be read, names no setting, or stands there twice.
    """
    settings = _rows(folder / f"{_SETTINGS}.csv", Setting)
    names = [setting.name for setting in settings]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise S2SimError(f"{folder / _SETTINGS}.csv has {twice!r} twice: leave one out, or rename it in all tables")
    return MeasuredTestbeds(settings, *(_timed(folder, kind, names) for kind in KINDS))


def read_if_any(folder: Path) -> MeasuredTestbeds:
    """Return what a folder holds; nothing where there is no folder, or none of its tables yet."""
    begun = any((folder / f"{name}.csv").exists() for name in (_SETTINGS, *KINDS))
    return read_measured(folder) if begun else MeasuredTestbeds()


def _timed(folder: Path, kind: Kind, names: list[str]) -> tuple[Timed, ...]:
    path = folder / f"{kind}.csv"
    rows = _rows(path, Timed) if path.exists() else ()
    for row in rows:
        if row.setting not in names:
            raise S2SimError(f"{path} tells of {row.setting!r}, which {_SETTINGS}.csv has not: add its row there")
    return rows


def _rows(path: Path, form: type[Row]) -> tuple[Row, ...]:
    from pydantic import TypeAdapter, ValidationError

    found: list[Row] = []
    adapter = TypeAdapter(form)
    for number, cells in read_table(path, _columns(form)):
        try:
            found.append(adapter.validate_python(cells))
        except ValidationError as error:
            raise S2SimError(problem_of(error, f"{path}, row {number}", cells)) from None
    return tuple(found)


def add_setting(folder: Path, setting: Setting) -> None:
    """Add a row to ``settings.csv``, which is replaced as a whole; the folder is made where there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise S2SimError(f"cannot make the folder {folder}: {error.strerror or error}") from None
    _add(folder / f"{_SETTINGS}.csv", setting)


def add_timed(folder: Path, kind: Kind, timed: Timed) -> None:
    """Add a row to the table of one kind, which is replaced as a whole."""
    _add(folder / f"{kind}.csv", timed)


def _add(path: Path, row: Setting | Timed) -> None:
    """Add a row; what stood there before stays whole also where the disk is full or the process ends."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        before = path.read_text("utf-8") if path.exists() else ""
        if not before:
            table.writerow(_columns(type(row)))
        table.writerow(astuple(row))
        partial.write_text(before + text.getvalue(), "utf-8")
        partial.replace(path)
    except OSError as error:
        raise S2SimError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


def _columns(form: type[Setting | Timed]) -> list[str]:
    return [item.name for item in fields(form)]
