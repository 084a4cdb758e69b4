"""Which rows belong together: sweeps of one option of a reducer, single points, and what is exact."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.result import Row


@dataclass(frozen=True, slots=True)
class Series:
    """Rows that are drawn as one line, or one row.

    Attributes
    ----------
    rows : tuple of Row
        In the order of the swept option.
    swept : str or None
        The option in which they differ; None of a single row.
    """

    rows: tuple[Row, ...]
    swept: str | None

    @property
    def name(self) -> str:
        """What all rows have in common, and the option in which they differ."""
        first = self.rows[0].reducer
        if self.swept is None:
            return first
        name, _, options = first.partition(":")
        others = [option for option in options.split(",") if option and not option.startswith(f"{self.swept}=")]
        return f"{':'.join([name, ','.join(others)]) if others else name}, by {self.swept}"

    def labels(self) -> list[str]:
        """Return what stands beside each point: the value of the swept option, of a single row its name."""
        if self.swept is None:
            return [self.name]
        return [f"{row.options[self.swept]:g}" for row in self.rows]


def find_series(rows: Sequence[Row]) -> list[Series]:
    """Return all rows of one number of workers, those together that differ in one number among their options."""
    left = list(rows)
    found: list[Series] = []
    while sweeps := _sweeps(left):
        longest = max(sweeps, key=lambda series: len(series.rows))
        found.append(longest)
        taken = {row.reducer for row in longest.rows}
        left = [row for row in left if row.reducer not in taken]
    return [*found, *(Series((row,), None) for row in left)]


def _sweeps(rows: Sequence[Row]) -> list[Series]:
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        for key, value in row.options.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                others = repr(sorted((name, repr(other)) for name, other in row.options.items() if name != key))
                groups[row.name, key, others].append(row)

    def ordered(group: list[Row], key: str) -> Series:
        return Series(tuple(sorted(group, key=lambda row: float(row.options[key]))), key)

    return [ordered(group, key) for (_, key, _), group in groups.items() if len(group) > 1]
