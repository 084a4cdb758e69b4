"""What came of rebuilding a published claim: values that tables and pages are functions of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from s2sim.study.json_form import JsonForm
from s2sim.study.progress import INTERRUPTED_NOTE
from s2sim.study.result_form import ResultForm

Judged = Literal["reproduced", "not reproduced", "not testable"]


@dataclass(frozen=True, slots=True)
class Claim(JsonForm):
    """One published claim, judged.

    Attributes
    ----------
    text : str
        What is claimed, in plain words.
    source : str
        Where it stands: the section, table or abstract.
    published : str
        The figure as published; a dash for words alone.
    ours : str
        What came out here, computed when it was asked for; a dash where nothing could be.
    judgement : {"reproduced", "not reproduced", "not testable"}
        By ``rule`` alone.
    rule : str
        When the claim counts as reproduced; for what cannot be tested, what is missing.
    why : str
        What explains the result.
    """

    text: str
    source: str
    published: str
    ours: str
    judgement: Judged
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class Table(JsonForm):
    """Numbers behind claims, as texts with their units; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Line(JsonForm):
    """One line of a chart; ``low`` and ``high`` bound what lies around ``y``, or are empty."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart(JsonForm):
    """Lines over one axis; ``x`` and ``y`` name the axes with their units."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class HeatMap(JsonForm):
    """Figures of named rows and columns, coloured around ``middle``; None where there is none."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    middle: float = 1.0


@dataclass(frozen=True, slots=True)
class Rebuilt(JsonForm):
    """What came of one paper.

    Attributes
    ----------
    name, title, source : str
        Its name here, its title, and who published it where.
    setup : tuple of str
        What was computed, a line each.
    assumed : tuple of str
        What is not known and was assumed, a line each.
    claims : tuple of Claim
        Each claim with its judgement.
    tables : tuple of Table
        Numbers behind them.
    pictures : tuple of Chart or HeatMap
        What a page draws.
    complete : bool
        Whether nobody interrupted it.
    """

    name: str
    title: str
    source: str
    setup: tuple[str, ...]
    assumed: tuple[str, ...]
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Chart | HeatMap, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class Papers(ResultForm):
    """What `s2sim paper` returns.

    Attributes
    ----------
    quick : bool
        Whether the short form was asked for.
    papers : tuple of Rebuilt
        One a paper, in the order asked for.
    provenance : dict
        The run record.
    notes : tuple of str
        What a reader must know to read the judgements rightly.
    """

    answers: ClassVar[str] = "paper"

    headline: str
    quick: bool
    papers: tuple[Rebuilt, ...]
    provenance: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nobody interrupted it."""
        return INTERRUPTED_NOTE not in self.notes
