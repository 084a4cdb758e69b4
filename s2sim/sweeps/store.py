"""The store of a sweep, and its results as a table: one SQLite file in WAL mode, to which one process writes.

A cell is stored under the hash of all that its answer follows from, in one transaction with its rows; what is finished
stays, whatever happens to the process, and is never there twice.
"""

import json
import re
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from s2sim.errors import S2SimError
from s2sim.experiment.json_form import SCHEMA_VERSION
from s2sim.files import own_tables
from s2sim.provenance import content_hash
from s2sim.sweeps.study import Cell, Study, axis_text
from s2sim.tables import Table

State: TypeAlias = Literal["done", "refused", "failed", "too large"]

FILE = "sweep.sqlite"
# Finished for good: others are tried again.
_FINAL = ("done", "refused")


@dataclass(frozen=True, slots=True)
class Line:
    """One reducer, or the collective, of a cell; None where a figure does not apply."""

    reducer: str | None
    state: State
    reason: str | None = None
    total_s: float | None = None
    iteration_s: float | None = None
    speedup_vs_dense: float | None = None
    relative_l2: float | None = None
    bytes_sent_per_rank: int | None = None
    chosen: bool | None = None  # Whether the cell's verdict takes it
    algorithm: str | None = None
    protocol: str | None = None  # Of the library
    busbw_Bps: float | None = None
    lower_bound_s: float | None = None


COLUMNS = tuple(each.name for each in fields(Line))
_FIRST = ("cell", "state", "reason")
_OF_LINES = tuple(name for name in COLUMNS if name not in _FIRST)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of one cell."""

    key: str
    state: State
    reason: str | None
    cpu_s: float
    memory_bytes: int  # Most that the process had
    lines: tuple[Line, ...]
    details: dict[str, Any]  # The result as JSON, without its inputs
    inputs: dict[str, Any]  # The inputs of the run record

    @classmethod
    def without_answer(
        cls, key: str, state: State, reason: str | None, cpu_s: float = 0.0, memory_bytes: int = 0
    ) -> "Outcome":
        """Return the outcome of a cell that has a reason instead of an answer."""
        return cls(key, state, reason, cpu_s, memory_bytes, (Line(None, state, reason),), {}, {})


_SQL = own_tables(__file__, "statements.toml")
_COLUMNS, _NEW = ", ".join(COLUMNS), _SQL["new"].format(final=_FINAL)


def _pack(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":"), sort_keys=True).encode(), 6)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


class SweepStore:
    """The cells of the sweeps of one folder."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        if not create and not path.exists():
            raise S2SimError(f"{path.parent} holds no sweep: s2sim sweep STUDY.toml --out {path.parent} makes one")
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            journal = path.with_name(f"{path.name}-wal")
            # Where SQLite can make no files beside it, as on a disk that is full, the file alone may be read.
            disk = re.match("SQLITE_(CANTOPEN|IOERR|READONLY|FULL)", getattr(error, "sqlite_errorname", ""))
            if create or (journal.exists() and journal.stat().st_size) or not disk or not self._is_readable():
                advice = "; take another --out" if create else ""
                raise S2SimError(f"{path} cannot be used as the store of a sweep: {error}{advice}") from None

    def _is_readable(self) -> bool:
        """Return whether the file alone can be read."""
        try:
            self._connection = sqlite3.connect(f"{self.path.resolve().as_uri()}?immutable=1", uri=True)
            return bool(self._connection.execute("SELECT name FROM sqlite_master").fetchall())
        except (sqlite3.Error, UnicodeDecodeError):
            return False

    def _open(self) -> None:
        self._connection = sqlite3.connect(self.path, timeout=60)
        self._connection.execute("PRAGMA journal_mode=WAL")
        # A transaction is on the disk before the next begins, even if the power fails.
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SQL["schema"].format(columns=_COLUMNS))
        with suppress(sqlite3.OperationalError):  # It is there, unless an earlier version made the store
            self._connection.execute(_SQL["plan_started"])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                yield self._connection
        except sqlite3.Error as error:
            raise S2SimError(
                f"{self.path} cannot be written: {error}; what is finished is there, run again to go on"
            ) from None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connection
        except S2SimError:
            raise
        except (sqlite3.Error, TypeError, ValueError, zlib.error) as error:
            raise S2SimError(
                f"{self.path} is damaged, or of another version of s2sim ({error}): sweep into another folder"
            ) from None

    def begin(
        self, sha256: str, what: str, study: str, axes: Sequence[str], planned: Iterable[tuple[Cell, str]]
    ) -> None:
        """Store a study and the keys of its cells; it is the latest from now on."""
        now = _now()
        rows = [(sha256, cell.number, key, json.dumps(list(cell.axes.values())), now) for cell, key in planned]
        begun = (sha256, what, study, json.dumps(list(axes)), now)
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO studies VALUES (?, ?, ?, ?, ?)", begun)
            connection.execute("DELETE FROM plan WHERE study = ?", (sha256,))
            connection.executemany("INSERT INTO plan VALUES (?, ?, ?, ?, ?)", rows)

    def finished(self) -> set[str]:
        """Return the keys of the cells that need not be computed again."""
        with self._reading() as connection:
            return {key for (key,) in connection.execute(_SQL["finished"].format(final=_FINAL))}

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Store cells in one transaction; those that are there stay, unless they had failed."""
        insert = _SQL["insert_line"].format(marks=", ".join("?" * (2 + len(COLUMNS))))
        with self._transaction() as connection:
            for each in outcomes:
                inputs = content_hash(each.inputs)
                connection.execute("INSERT OR IGNORE INTO inputs VALUES (?, ?)", (inputs, _pack(each.inputs)))
                values = (each.key, each.state, each.reason, each.cpu_s, each.memory_bytes, _now(), inputs)
                (state,) = connection.execute("SELECT state FROM cells WHERE key = ?", values[:1]).fetchone() or (None,)
                if state in _FINAL:
                    continue
                packed = _pack(each.details)
                connection.execute("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*values, packed))
                connection.execute("DELETE FROM lines WHERE key = ?", values[:1])
                lines = [(each.key, position, *astuple(line)) for position, line in enumerate(each.lines)]
                connection.executemany(insert, lines)

    def merge(self, other: Path) -> None:
        """Add what another store has and this one has not, and studies that were begun later there."""
        # One that was killed at its start has its tables now.
        SweepStore(other).close()
        with closing(sqlite3.connect(self.path, timeout=60)) as connection:
            try:
                connection.execute("ATTACH DATABASE ? AS other", (str(other),))
                with connection:
                    for statement in _SQL["merge"].format(new=_NEW).split(";"):
                        connection.execute(statement)
            except sqlite3.Error as error:
                raise S2SimError(f"{other} cannot be merged into {self.path}: {error}") from None

    def study(self, sha256: str | None = None) -> tuple[str, str, str, list[str]]:
        """Return hash, what it computes, text and names of axes of a study, by default the one that was begun last."""
        with self._reading() as connection:
            if (row := connection.execute(_SQL["study"], (sha256,)).fetchone()) is None:
                raise S2SimError(f"{self.path.parent} holds no study: s2sim sweep STUDY.toml --out {self.path.parent}")
            sha256, what, text, axes = row
            return sha256, what, text, json.loads(axes)

    def planned(self) -> tuple[Study, list[tuple[str, list[Any]]]]:
        """Return the study that was begun last, and the key and the values of the axes of each of its cells."""
        with self._reading() as connection:
            sha256, _, text, _ = self.study()
            rows = connection.execute(_SQL["plan"], (sha256,)).fetchall()
            return Study.load(json.loads(text)), [(key, json.loads(axes)) for key, axes in rows]

    def answer(self, key: str) -> tuple[State, str | None, dict[str, Any]] | None:
        """Return state, reason and result of the cell with a key; None if it is not there."""
        with self._reading() as connection:
            row = connection.execute(_SQL["answer"], (key,)).fetchone()
            return None if row is None else (row[0], row[1], json.loads(zlib.decompress(row[2])))

    def lines(self, key: str) -> list[dict[str, Any]]:
        """Return the lines of the cell with a key, none if it is not there."""
        with self._reading() as connection:
            rows = connection.execute(_SQL["lines"].format(columns=_COLUMNS), (key,)).fetchall()
            return [dict(zip(COLUMNS, row, strict=True)) for row in rows]

    def rows(self, study: str) -> Iterator[tuple[int, list[Any], dict[str, Any]]]:
        """Yield number, values of the axes and each line of the study's finished cells, in their order."""
        with self._reading() as connection:
            for cell, axes, *values in connection.execute(_SQL["rows"].format(columns=_COLUMNS), (study,)):
                line = dict(zip(COLUMNS, values, strict=True))
                line["chosen"] = None if line["chosen"] is None else bool(line["chosen"])
                yield cell, json.loads(axes), line

    def counts(self, study: str) -> dict[str, int]:
        """Return how many of the study's cells are in each state, ``missing`` those that were not computed."""
        with self._reading() as connection:
            return dict(connection.execute(_SQL["counts"], (study,)).fetchall())

    def warnings(self, study: str) -> Counter[str]:
        """Return what the study's cells warn of, with the number of cells."""
        with self._reading() as connection:
            texts = (zlib.decompress(details) for (details,) in connection.execute(_SQL["all_details"], (study,)))
            return Counter(each for text in texts if b'"warnings"' in text for each in json.loads(text)["warnings"])

    def details(self, study: str, cell: int) -> dict[str, Any]:
        """Return the stored result of a cell, with the inputs of its run record."""
        with self._reading() as connection:
            if (row := connection.execute(_SQL["details"], (study, cell)).fetchone()) is None:
                raise S2SimError(f"{self.path.parent}: cell {cell} has not been computed")
            state, reason, cpu_s, memory_bytes, details, inputs = row
            found = {"cell": cell, "state": state, "reason": reason, "cpu_s": cpu_s, "memory_bytes": memory_bytes}
            return {**found, **json.loads(zlib.decompress(details)), "inputs": json.loads(zlib.decompress(inputs))}


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult:
    """The finished cells of a study in a store."""

    path: Path
    study: str  # Its hash
    what: str
    axes: tuple[str, ...]
    counts: dict[str, int]  # Cells by state, ``missing`` those that were not computed
    table: Table  # A row a cell and reducer; units stand in names
    warnings: Counter[str]  # With the number of cells that have each

    @classmethod
    def load(cls, path: Path | str, sha256: str | None = None) -> "SweepResult":
        """Return the results in a folder, or the file of a store: of a study by its hash, or of the last one."""
        path = Path(path)
        file = path / FILE if path.is_dir() or not path.suffix else path
        with closing(SweepStore(file, create=False)) as store:
            study, what, _, axes = store.study(sha256)
            # An axis may have the name of what ran.
            executed = {name: f"executed_{name}" if name in axes else name for name in _OF_LINES}
            rows = []
            for cell, values, line in store.rows(study):
                named = {name: axis_text(value) for name, value in zip(axes, values, strict=True)}
                first = {"cell": cell, "state": line["state"], "reason": line["reason"]}
                rows.append({**first, **named, **{title: line[name] for name, title in executed.items()}})
            table = Table((*_FIRST, *axes, *executed.values()), tuple(rows))
            return cls(file, study, what, tuple(axes), store.counts(study), table, store.warnings(study))

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The rows of the table."""
        return self.table.rows

    def details(self, cell: int) -> dict[str, Any]:
        """Return the result of a cell as JSON, with its inputs, CPU seconds and the memory of its process."""
        with closing(SweepStore(self.path, create=False)) as store:
            return store.details(self.study, cell)

    def to_json(self) -> dict[str, Any]:
        """Return the rows with the axes, and the number of cells by state."""
        named = {"what": self.what, "axes": list(self.axes), "cells": self.counts}
        return {"schema_version": SCHEMA_VERSION, **named, "rows": list(self.rows)}

    def to_frame(self) -> Any:
        """Return the rows as a ``polars.DataFrame``."""
        return self.table.to_frame()

    def to_csv(self) -> str:
        """Return the rows as CSV."""
        return self.table.to_csv()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(self.counts.items()))
        return f"<s2sim sweep in {self.path.parent}: {counts}>"
