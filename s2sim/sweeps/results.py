"""The results of a sweep as a table: a row a cell and reducer."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s2sim.experiment.json_form import SCHEMA_VERSION
from s2sim.sweeps.store import COLUMNS, FILE, SweepStore
from s2sim.sweeps.study import axis_text
from s2sim.tables import Table

_FIRST = ("cell", "state", "reason")
_OF_LINES = tuple(name for name in COLUMNS if name not in _FIRST)


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult:
    """The finished cells of the study that a folder was last used for."""

    path: Path
    what: str
    axes: tuple[str, ...]
    counts: dict[str, int]  # Cells by state, ``missing`` those that were not computed
    table: Table  # A row a cell and reducer; units stand in names

    @classmethod
    def load(cls, path: Path | str) -> SweepResult:
        """Return the results in a folder, or in the file of a store."""
        path = Path(path)
        file = path / FILE if path.is_dir() or not path.suffix else path
        with closing(SweepStore(file, create=False)) as store:
            study, what, axes = store.latest()
            rows = []
            for cell, values, line in store.rows(study):
                named = {name: axis_text(value) for name, value in zip(axes, values, strict=True)}
                first = {"cell": cell, "state": line["state"], "reason": line["reason"]}
                rows.append({**first, **named, **{name: line[name] for name in _OF_LINES}})
            columns = (*_FIRST, *axes, *_OF_LINES)
            return cls(file, what, tuple(axes), store.counts(study), Table(columns, tuple(rows)))

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The rows of the table."""
        return self.table.rows

    def details(self, cell: int) -> dict[str, Any]:
        """Return the result of a cell as JSON, with its inputs, CPU seconds and the memory of its process."""
        with closing(SweepStore(self.path, create=False)) as store:
            return store.details(store.latest()[0], cell)

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
        """Return one line: where, and how many cells are in each state."""
        counts = ", ".join(f"{count} {state}" for state, count in sorted(self.counts.items()))
        return f"<s2sim sweep in {self.path.parent}: {counts}>"
