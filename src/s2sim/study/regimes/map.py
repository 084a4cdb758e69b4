"""What a regime map holds: cells, each with every reducer's time, bytes and error, and who wins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from s2sim.study.json_form import JsonForm, left_out
from s2sim.study.regimes.spec import DENSE
from s2sim.study.result_form import ResultForm
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.study.regimes.spec import RegimeSpec

# Models of this kind cannot tell times apart that differ by less.
_TIE = 1.01


@dataclass(frozen=True, slots=True)
class Contender(JsonForm):
    """One reducer in one cell.

    Attributes
    ----------
    total_ps : int
        Communication phase of the slowest rank, in picoseconds.
    error_relative_l2 : float or None
        Of the whole aggregate against the exact mean; None where that is zero.
    bytes_sent_per_rank : int
        Most bytes that a rank sends, by ring algorithms.
    acceptable : bool
        Whether the error allows it to win.
    """

    more_json: ClassVar[tuple[str, ...]] = ("total_s",)

    reducer: str
    total_ps: int = field(metadata=left_out(lambda row: round(row["total_s"] * PS_PER_S)))
    error_relative_l2: float | None
    bytes_sent_per_rank: int
    acceptable: bool

    @property
    def total_s(self) -> float:
        """The same time in seconds."""
        return self.total_ps / PS_PER_S


@dataclass(frozen=True, slots=True)
class Cell(JsonForm):
    """One density and overlap of the gradients, rate and latency of a network interface.

    ``reducers`` stand in the order of those that were asked for, ``dense`` among them; those that refuse these
    gradients are missing.
    """

    more_json: ClassVar[tuple[str, ...]] = ("winner", "ties", "runner_up", "margin", "speedup_vs_dense")

    density: float
    overlap: float
    rate_Bps: float
    latency_s: float
    reducers: tuple[Contender, ...]

    @property
    def ranking(self) -> tuple[Contender, ...]:
        """Those whose error is acceptable, the fastest first; of equals ``dense``, then as they were asked for."""
        allowed = (each for each in self.reducers if each.acceptable)
        return tuple(sorted(allowed, key=lambda each: (each.total_ps, each.reducer != DENSE)))

    @property
    def dense(self) -> Contender:
        """What the others are compared with."""
        return next(each for each in self.reducers if each.reducer == DENSE)

    @property
    def fastest(self) -> Contender:
        """The fastest with an acceptable error."""
        return self.ranking[0]

    @property
    def winner(self) -> str:
        """Option string of the fastest."""
        return self.fastest.reducer

    @property
    def runner_up(self) -> str | None:
        """Option string of the second."""
        return None if self.second is None else self.second.reducer

    @property
    def ties(self) -> tuple[str, ...]:
        """Option strings of those that take less than 1 % longer than the winner."""
        first, *others = self.ranking
        return tuple(each.reducer for each in others if each.total_ps < _TIE * first.total_ps)

    @property
    def compress(self) -> bool:
        """Whether anything gains 1 % or more over dense."""
        return DENSE not in (self.winner, *self.ties)

    @property
    def second(self) -> Contender | None:
        """The second, None where nothing else is acceptable."""
        return self.ranking[1] if len(self.ranking) > 1 else None

    @property
    def margin(self) -> float | None:
        """By which share the runner-up takes longer than the winner."""
        return None if self.second is None else self.slower(self.second) - 1

    @property
    def speedup_vs_dense(self) -> float:
        """The winner's over dense."""
        return self.slower(self.dense)

    def slower(self, contender: Contender) -> float:
        """Return how many times as long as the winner a contender takes."""
        return contender.total_ps / self.fastest.total_ps


@dataclass(frozen=True, slots=True)
class Wins:
    """How many cells a reducer wins."""

    cells: int  # With the constants of the GPU as they were taken
    # least, most: With each choice of the ends of what those may be that are only estimated, and as taken.
    least: int
    most: int


@dataclass(frozen=True, slots=True, repr=False)
class RegimeMap(ResultForm):
    """What `s2sim.study.regimes.run.run_regimes` returns.

    Attributes
    ----------
    cluster : str
        The cluster and the gradient in one line.
    cells : tuple of Cell
        By density, overlap, rate and latency, the last changing fastest; fewer than asked for after an interruption.
    wins : dict of str to Wins
        How many cells each reducer wins.
    summary : str
        Who wins where, in words.
    notes : tuple of str
        What a reader must know to read the map rightly.
    provenance : dict
        The run record.
    """

    answers: ClassVar[str] = "regimes"
    more_json: ClassVar[tuple[str, ...]] = ("complete",)

    spec: RegimeSpec
    cluster: str
    cells: tuple[Cell, ...]
    wins: dict[str, Wins]
    summary: str
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def complete(self) -> bool:
        """Whether no cell is missing."""
        return len(self.cells) == self.spec.cells
