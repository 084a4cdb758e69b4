"""The columns of a table of nccl-tests, and the figures of its rows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMES = ("time", "cputime")
_WRONG = "#wrong"
_NONE = ("n/a", "nan", "-nan")
# An asterisk marks errors that old versions find too large.
_FIGURE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\*?")
_GIGA = 1e9
_MICRO = 1e-6
# A day: beyond is damage.
_MOST_S = 86_400.0


class Figures(NamedTuple):
    """One group of columns of a row: out-of-place or in-place. None where there is no number."""

    time_s: float | None
    algbw_Bps: float | None
    busbw_Bps: float | None
    wrong: float | None


@dataclass(frozen=True, slots=True)
class Columns:
    """The titles of each group of figures of a table, which begins with its time; the first is out-of-place."""

    groups: tuple[tuple[str, ...], ...]

    @property
    def count(self) -> int:
        """Figures in a whole row."""
        return sum(map(len, self.groups))

    def figures(self, cells: Sequence[str]) -> list[Figures] | None:
        """Return the groups of a row, the root before them left out; None where their number does not fit.

        A program that was stopped may have printed the first group alone. `S2SimError` for what is no figure.
        """
        for count in (len(self.groups), 1):
            groups = self.groups[:count]
            needed = sum(map(len, groups))
            if len(cells) - needed in (0, 1):
                left = iter(cells[len(cells) - needed :])
                return [_figures({title: next(left) for title in group}) for group in groups]
        return None


def read_columns(words: Sequence[str]) -> Columns | None:
    """Return the columns of a header's words; None for a line that is no header, or has a title twice in a group."""
    if "size" not in words or "type" not in words:
        return None
    groups: list[list[str]] = []
    for word in words[words.index("type") + 1 :]:
        if word in _TIMES:
            groups.append([])
        if groups and word != "timestamp":
            groups[-1].append("time" if word in _TIMES else word)
    whole = bool(groups) and all(
        {"time", "algbw", "busbw"} <= set(group) and len(set(group)) == len(group) for group in groups
    )
    return Columns(tuple(map(tuple, groups))) if whole else None


def is_figure(text: str) -> bool:
    """Return whether a cell holds a number, or says that there is none."""
    return text.lower() in _NONE or _FIGURE.fullmatch(text) is not None


def number(text: str) -> float | None:
    """Return the number of a cell, None where it says that there is none; `S2SimError` for everything else."""
    if text.lower() in _NONE:
        return None
    value = float(text.rstrip("*")) if _FIGURE.fullmatch(text) else math.inf
    if not 0 <= value < math.inf:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise S2SimError(f"{shown!r} is no figure of a measured row: mend the line or take it out")
    return value


def _figures(cells: dict[str, str]) -> Figures:
    time_us, algbw, busbw = (number(cells[title]) for title in ("time", "algbw", "busbw"))
    if time_us is not None and time_us * _MICRO > _MOST_S:
        raise S2SimError(f"a time of {cells['time']} us is more than a day: mend the line or take it out")
    return Figures(
        None if time_us is None else time_us * _MICRO,
        None if algbw is None else algbw * _GIGA,
        None if busbw is None else busbw * _GIGA,
        number(cells[_WRONG]) if _WRONG in cells else None,
    )
