"""The results of a sweep as a table: a row a cell and reducer."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from s2sim.sweep.store import COLUMNS, FILE, SweepStore
from s2sim.sweep.study import axis_text

_FIRST = ("cell", "state", "reason")
_OF_LINES = tuple(name for name in COLUMNS if name not in _FIRST)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The finished cells of the study that a folder was last used for."""

    path: Path
    what: str
    axes: tuple[str, ...]
    counts: dict[str, int]  # Cells by state, ``missing`` those that were not computed
    rows: tuple[dict[str, Any], ...]  # One a cell and reducer, with a key for each of ``columns``

    @classmethod
    def load(cls, path: Path | str) -> SweepResult:
        """Return the results in a folder, or in the file of a store."""
        path = Path(path)
        file = path / FILE if path.is_dir() or not path.suffix else path
        with closing(SweepStore(file, create=False)) as store:
            study, what, axes = store.latest()
            rows = []
            for cell, values, line in store.rows(study):
                own = dict(zip(COLUMNS, astuple(line), strict=True))
                named = {name: axis_text(value) for name, value in zip(axes, values, strict=True)}
                first = {"cell": cell, "state": own["state"], "reason": own["reason"]}
                rows.append({**first, **named, **{name: own[name] for name in _OF_LINES}})
            return cls(file, what, tuple(axes), store.counts(study), tuple(rows))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns: those of the axes between those of all sweeps; units stand in names."""
        return (*_FIRST, *self.axes, *_OF_LINES)

    def details(self, cell: int) -> dict[str, Any]:
        """Return the result of a cell as JSON, with its inputs, CPU seconds and the memory of its process."""
        with closing(SweepStore(self.path, create=False)) as store:
            return store.details(store.latest()[0], cell)

    def to_csv(self) -> str:
        """Return the rows as CSV with a line of names; what does not apply is empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows."""
        return iter(self.rows)
