"""A paper to rebuild: its set-up, and the parts that each compute some of its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Literal, get_args

from s2sim.errors import OptionError
from s2sim.experiment.json_form import JsonForm, ResultForm
from s2sim.experiment.progress import INTERRUPTED_NOTE, SILENT, ProgressWatcher
from s2sim.provenance import run_record
from s2sim.registry import Registry
from s2sim.units import format_number_of

ClaimJudgement = Literal["reproduced", "not reproduced", "not testable"]
SHARE = 0.15
"""How far from a published figure one counts as the same."""

WITHIN = f"reproduced where ours is within {SHARE:.0%} of the published figure"
IN_RANGE = f"reproduced where the published figure lies in our range, widened by {SHARE:.0%}"
_NAMES = (
    *("s2-reducer", "does-it-pay", "deepreduce", "dgc", "gtopk", "ok-topk"),
    *("omnireduce", "powersgd", "random-block", "sbc", "spardl", "topka2a"),
)
PAPERS = Registry(
    "paper", "s2sim.papers", {name: f"s2sim.claims.papers.{name.replace('-', '_')}:PAPER" for name in _NAMES}
)
"""Names, and the `Paper` that each stands for."""


@dataclass(frozen=True, slots=True)
class Claim(JsonForm):
    """One published claim, judged."""

    text: str  # What is claimed, in plain words
    source: str  # Where it stands: the section, table or abstract
    published: str  # The figure as published; a dash for words alone
    ours: str  # What came out here, computed when it was asked for; a dash where nothing could be
    judgement: ClaimJudgement  # By ``rule`` alone
    rule: str  # When the claim counts as reproduced; for what cannot be tested, what is missing
    why: str  # What explains the result


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
    """What came of one paper."""

    name: str  # By which `s2sim paper` knows it
    title: str
    source: str  # Who published it where
    setup: tuple[str, ...]  # What was computed, a line each
    assumed: tuple[str, ...]  # What is not known and was assumed, a line each
    claims: tuple[Claim, ...]  # Each claim with its judgement
    tables: tuple[Table, ...]  # Numbers behind them
    pictures: tuple[Chart | HeatMap, ...] = ()  # What a page draws
    complete: bool = True  # Whether nobody interrupted it


@dataclass(frozen=True, slots=True, repr=False)
class PapersResult(ResultForm):
    """What `s2sim paper` returns."""

    answers: ClassVar[str] = "paper"
    tabulated: ClassVar[str] = "papers"

    headline: str
    quick: bool  # Whether the short form was asked for
    papers: tuple[Rebuilt, ...]  # One a paper, in the order asked for
    provenance: dict[str, Any]  # The run record
    notes: tuple[str, ...] = ()  # What a reader must know to read the judgements rightly

    @property
    def complete(self) -> bool:
        """Whether nobody interrupted it."""
        return INTERRUPTED_NOTE not in self.notes


def judge_condition(condition: bool) -> ClaimJudgement:
    """Return the judgement on a claim whose rule is met or not.

    >>> judge_condition(True)
    'reproduced'
    """
    return "reproduced" if condition else "not reproduced"


def judge_conditions(conditions: Iterable[bool]) -> ClaimJudgement:
    """Return the judgement on a rule that is met or not for each value of something unknown.

    >>> judge_conditions([True, True]), judge_conditions([False, False]), judge_conditions([True, False])
    ('reproduced', 'not reproduced', 'not testable')
    """
    found = set(conditions)
    return "not testable" if len(found) > 1 else judge_condition(True in found)


def judge_within(ours: float, published: float) -> ClaimJudgement:
    """Return the judgement by `WITHIN`.

    >>> judge_within(1.9, 1.8), judge_within(2.5, 1.8)
    ('reproduced', 'not reproduced')
    """
    return judge_condition(abs(ours - published) <= SHARE * abs(published))


def figure_claim(
    text: str, source: str, published: float, ours: float, why: str, *, form: str, published_form: str | None = None
) -> Claim:
    """Return a claim of one figure, judged by `WITHIN`.

    ``form`` is the format of our figure, such as ``{:.1f} ms``, and of the published one without ``published_form``.
    """
    theirs = (published_form or form).format(published)
    return Claim(text, source, theirs, form.format(ours), judge_within(ours, published), WITHIN, why)


def not_testable(text: str, source: str, needs: str, why: str, *, published: str = "-", ours: str = "-") -> Claim:
    """Return a claim that nothing here can judge: ``needs`` says what is missing."""
    return Claim(text, source, published, ours, "not testable", needs, why)


def judge_in_range(ours: Iterable[float], published: float) -> ClaimJudgement:
    """Return the judgement by `IN_RANGE`, of what several settings came to.

    >>> judge_in_range([1.2, 1.7], 1.8), judge_in_range([1.2, 1.5], 1.8)
    ('reproduced', 'not reproduced')
    """
    values = list(ours)
    room = SHARE * abs(published)
    return judge_condition(min(values) - room <= published <= max(values) + room)


@dataclass(frozen=True, slots=True)
class PaperEffort:
    """How much time may be spent: ``quick`` is half a minute a paper, else what sharper figures need."""

    quick: bool = True


@dataclass(frozen=True, slots=True)
class PaperPart:
    """What one part of a paper came to: claims judged, the numbers behind them, pictures, and its set-up."""

    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Chart | HeatMap, ...] = ()
    setup: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Paper:
    """A published paper with claims that can be rebuilt."""

    name: str  # By which `s2sim paper` knows it
    title: str
    source: str  # Who published it where
    claimed: str  # Its claims in one line
    setup: tuple[str, ...]  # What is computed in all parts
    assumed: tuple[str, ...]  # What is not known and assumed in all parts
    # Finished parts are kept after an interrupt; those that need no computing are there already.
    parts: tuple[PaperPart | Callable[[PaperEffort, ProgressWatcher], PaperPart], ...]


def rebuild_paper(paper: Paper, effort: PaperEffort, progress: ProgressWatcher) -> Rebuilt:
    """Rebuild a paper; after Ctrl-C the finished parts are kept."""
    done: list[PaperPart] = []
    try:
        for part in paper.parts:
            done.append(part if isinstance(part, PaperPart) else part(effort, progress))
            progress.stop()
    except KeyboardInterrupt:
        progress.stop()

    def joined(name: str) -> tuple[Any, ...]:
        return tuple(chain.from_iterable(getattr(part, name) for part in done))

    setup, assumed = (*paper.setup, *joined("setup")), (*paper.assumed, *joined("assumed"))
    found = joined("claims"), joined("tables"), joined("pictures")
    return Rebuilt(paper.name, paper.title, paper.source, setup, assumed, *found, len(done) == len(paper.parts))


def run_papers(
    names: Sequence[str], effort: PaperEffort | None = None, progress: ProgressWatcher = SILENT
) -> PapersResult:
    """Rebuild papers; after Ctrl-C the finished ones are kept.

    Parameters
    ----------
    names : sequence of str
        Papers. `UnknownNameError` for an unknown one, `OptionError` if none was given or one twice.
    effort : PaperEffort, optional
        How much is computed.
    progress : ProgressWatcher
        Called as the work advances.
    """
    if not names:
        raise OptionError("no paper was named; for example s2sim paper s2-reducer, or s2sim paper list")
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"{name} stands twice: name each paper once")
    papers: list[Paper] = [PAPERS.get(name) for name in names]
    effort = effort or PaperEffort()
    found: list[Rebuilt] = []
    for paper in papers:
        found.append(rebuild_paper(paper, effort, progress))
        if not found[-1].complete:
            break
    complete = len(found) == len(papers) and found[-1].complete
    claims = [claim for paper in found for claim in paper.claims]
    counts = {word: sum(claim.judgement == word for claim in claims) for word in get_args(ClaimJudgement)}
    judged = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    counted = f"{format_number_of(len(claims), 'claim')} of {format_number_of(len(found), 'paper')}"
    return PapersResult(
        headline=f"{counted}: {judged or 'none judged'}",
        quick=effort.quick,
        papers=tuple(found),
        provenance=run_record(
            spec={"papers": list(names), "quick": effort.quick},
            inputs={paper.name: {"source": paper.source} for paper in papers},
            measured=["values, errors and bytes: reducers ran on real arrays", "losses: models were trained"],
            assumed=["times: scripts replayed on simulated clusters"],
        ),
        notes=() if complete else (INTERRUPTED_NOTE,),
    )
