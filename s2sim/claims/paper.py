"""A paper to rebuild: its set-up, and the parts that each compute some of its claims."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any, Literal, TypeAlias, get_args

from s2sim.errors import OptionError
from s2sim.experiment import json_form, spec
from s2sim.experiment.progress import INTERRUPTED_NOTE, SILENT, ProgressWatcher
from s2sim.files import own_tables
from s2sim.provenance import run_record
from s2sim.registry import Registry
from s2sim.units import format_number_of

ClaimJudgement = Literal["reproduced", "not reproduced", "depends on the implementation", "not testable"]
SHARE = 0.15
"""How far from a published figure one counts as the same."""

_EFFECT, _APART = 0.5, 2


@cache
def _catalogue() -> dict[str, dict[str, Any]]:
    found = own_tables(__file__, "papers.toml")
    return found | {"rules": {name: rule.format(share=SHARE) for name, rule in found["rules"].items()}}


PAPERS = Registry(
    "paper",
    "s2sim.papers",
    {name: f"s2sim.claims.papers.{entry['object']}" for name, entry in _catalogue().items() if name != "rules"},
)
"""Names, and the `Paper` that each stands for."""


@dataclass(frozen=True, slots=True)
class Claim(json_form.JsonForm):
    """One published claim, judged."""

    text: str  # What is claimed, in plain words
    source: str  # Where it stands: the section, table or abstract
    published: str  # The figure as published; a dash for words alone
    ours: str  # What came out here, computed when it was asked for; a dash where nothing could be
    judgement: ClaimJudgement  # By ``rule`` alone
    rule: str  # When the claim counts as reproduced; for what cannot be tested, what is missing
    why: str  # What explains the result


@dataclass(frozen=True, slots=True)
class Table(json_form.JsonForm):
    """Numbers behind claims, as texts with their units; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Line(json_form.JsonForm):
    """One line of a chart; ``low`` and ``high`` bound what lies around ``y``, or are empty."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart(json_form.JsonForm):
    """Lines over one axis; ``x`` and ``y`` name the axes with their units."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class HeatMap(json_form.JsonForm):
    """Figures of named rows and columns, coloured around ``middle``; None where there is none."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    middle: float = 1.0


@dataclass(frozen=True, slots=True)
class Rebuilt(json_form.JsonForm):
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
class PapersResult(json_form.ResultForm):
    """What `s2sim paper` returns."""

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
    """Return the judgement on a claim whose rule is met or not."""
    return "reproduced" if condition else "not reproduced"


def judge_conditions(conditions: Iterable[bool]) -> ClaimJudgement:
    """Return the judgement on a rule that is met or not for each value of something unknown.

    >>> judge_conditions([True, True]), judge_conditions([False, False]), judge_conditions([True, False])
    ('reproduced', 'not reproduced', 'not testable')
    """
    found = set(conditions)
    return "not testable" if len(found) > 1 else judge_condition(True in found)


def judge_within(ours: float, published: float) -> ClaimJudgement:
    """Return the judgement by the rule ``within`` of the catalogue.

    >>> judge_within(1.9, 1.8), judge_within(2.5, 1.8)
    ('reproduced', 'not reproduced')
    """
    return judge_condition(abs(ours - published) <= SHARE * abs(published))


def judge_saved(dense: float, ours: float, published: float) -> ClaimJudgement:
    """Return the judgement by the rule ``saving`` on what is saved of the time of dense's exchange.

    >>> judge_saved(77.0, 72.0, 73.0), judge_saved(77.0, 70.0, 60.0), judge_saved(77.0, 66.0, 27.0)
    ('not testable', 'not reproduced', 'not reproduced')
    """
    return "not testable" if judge_within(dense, published) == "reproduced" else judge_within(ours, published)


def judge_ratio(ours: float, published: float, times: Iterable[tuple[float, float]] = ()) -> ClaimJudgement:
    """Return the judgement by the rule ``within_ratio`` on a ratio of ``times``, pairs of ours and the published one.

    >>> judge_ratio(9.8, 9.5, [(1.0, 1.1), (0.1, 0.12)]), judge_ratio(9.8, 9.5, [(1.0, 10.0), (0.1, 1.0)])
    ('reproduced', 'not reproduced')
    >>> judge_ratio(1.08, 1.1), judge_ratio(0.99, 1.1), judge_ratio(1.0, 1.0)
    ('reproduced', 'not reproduced', 'not testable')
    """
    if published == 1:
        return "not testable"
    near_one = judge_within(1, published) == "reproduced"
    says = not near_one or (ours - 1) / (published - 1) >= _EFFECT
    far = any(max(own / theirs, theirs / own) > _APART for own, theirs in times)
    return judge_condition(says and not far and judge_within(ours, published) == "reproduced")


def all_within(ours: Mapping[Any, float], published: Mapping[Any, float]) -> bool:
    """Return whether each of our figures is the published one of its key, by `judge_within`."""
    return all(judge_within(own, published[key]) == "reproduced" for key, own in ours.items())


@dataclass(frozen=True, slots=True)
class PaperEffort:
    """How much time may be spent, and what codecs cost.

    ``quick`` is half a minute a paper, else what sharper figures need. ``codec_as`` is the basis of all times; None
    judges claims of time on idealised kernels and on published code.
    """

    quick: bool = True
    codec_as: spec.CodecBasis | None = None
    # What reducers have recorded for one basis, by whom and of what, which serves the other
    recorded: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def basis(self) -> spec.CodecBasis:
        """What codecs cost where one basis is asked for."""
        return self.codec_as or "kernels"


@dataclass(frozen=True, slots=True)
class PaperPart:
    """What one part of a paper came to: claims judged, the numbers behind them, pictures, and its set-up."""

    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Chart | HeatMap, ...] = ()
    setup: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


Part: TypeAlias = Callable[[PaperEffort, ProgressWatcher], PaperPart]


def on_both_bases(part: Part) -> Part:
    """Return a part whose claims rest on times, judged on idealised kernels and on published code.

    All rows of a claim are charged on one basis at a time. Where the judgements disagree, it depends on the
    implementation.
    """

    def judged(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
        if effort.codec_as is not None:
            return part(effort, progress)
        kernels, published = (part(replace(effort, codec_as=basis), progress) for basis in _BASES)
        as_published = tuple(replace(each, title=f"{each.title}; {_BASES['published']}") for each in published.tables)
        changed = tuple(new for old, new in zip(kernels.tables, as_published, strict=True) if old.rows != new.rows)
        claims = tuple(_on_both(*pair) for pair in zip(kernels.claims, published.claims, strict=True))
        return replace(kernels, claims=claims, tables=(*kernels.tables, *changed))

    return judged


_BASES: dict[spec.CodecBasis, str] = {"kernels": "codecs as idealised kernels", "published": "codecs as published code"}


def _on_both(kernels: Claim, published: Claim) -> Claim:
    if kernels.ours == published.ours and kernels.judgement == published.judgement:
        return kernels
    ours = f"{kernels.ours}; {published.ours} with {_BASES['published']}"
    agree = kernels.judgement == published.judgement
    return replace(kernels, ours=ours, judgement=kernels.judgement if agree else "depends on the implementation")


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
    parts: tuple[PaperPart | Part, ...]


def listed(figures: Mapping[Any, Any], form: str) -> str:
    """Return figures as a text, each written as ``form`` has it from its key and itself.

    >>> listed({4: 0.5, 8: 0.25}, "{1:.2f} (P={0})")
    '0.50 (P=4), 0.25 (P=8)'
    """
    return ", ".join(form.format(key, figure) for key, figure in figures.items())


@dataclass(frozen=True, slots=True)
class PaperTexts:
    """The texts of one paper in ``papers.toml``; those of its claims have places for what is computed."""

    name: str

    def claim(self, key: str, judgement: ClaimJudgement | bool, /, **figures: object) -> Claim:
        """Return a claim with its texts filled; what the catalogue leaves out of it are ``ours``, ``rule`` or ``why``.

        A judgement of True or False is that on a rule that is met or not; where no rule is told, it is ``within``.
        """
        claims, rules = _catalogue()[self.name]["claims"], _catalogue()["rules"]
        own = dict(claims[key])
        texts = {"published": "-", "ours": "{ours}", "rule": "{rule}", "why": "{why}"}
        texts |= claims.get(own.pop("like", None), {}) | own
        figures = {**rules, "rule": rules["within"], **figures}
        filled = {part: text.format(**figures) for part, text in texts.items()}
        return Claim(**filled, judgement=judge_condition(judgement) if isinstance(judgement, bool) else judgement)

    def figure(
        self,
        key: str,
        published: float,
        ours: float,
        ratio_of: Iterable[tuple[float, float]] | None = None,
        /,
        **figures: object,
    ) -> Claim:
        """Return a claim of one figure, judged by `judge_within`.

        ``ratio_of`` marks a ratio, judged by `judge_ratio` of these times, of which there may be none.
        """
        figures = {"published": published, "ours": ours, **figures}
        if ratio_of is None:
            return self.claim(key, judge_within(ours, published), **figures)
        rule = _catalogue()["rules"]["within_ratio"]
        return self.claim(key, judge_ratio(ours, published, ratio_of), rule=rule, **figures)

    @property
    def figures(self) -> Any:
        """Published figures, and the settings that they are compared in."""
        return _catalogue()[self.name]["figures"]

    def table(self, key: str, rows: Iterable[tuple[str, ...]]) -> Table:
        """Return a table with a title and columns of the catalogue."""
        texts = _catalogue()[self.name]["tables"][key]
        return Table(texts["title"], tuple(texts["columns"]), tuple(rows))

    def line(self, key: str, **figures: object) -> str:
        """Return a line of a part's set-up or of what it assumes, filled."""
        return str(_catalogue()[self.name]["lines"][key]).format(**figures)

    def paper(self, *parts: Part) -> Paper:
        """Return the paper, whose claims that are not testable follow those of ``parts``."""
        entry = _catalogue()[self.name]
        untested = tuple(
            Claim(**{"published": "-", "ours": "-", **texts}, judgement="not testable")
            for texts in entry.get("not_testable", ())
        )
        last = [PaperPart(untested)] if untested else []
        lines = {key: tuple(entry[key]) for key in ("setup", "assumed")}
        about = {key: entry[key] for key in ("title", "source", "claimed")}
        return Paper(**{"name": self.name, "parts": (*parts, *last), **about, **lines})


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
    """Rebuild papers by name; after Ctrl-C the finished ones are kept.

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
            spec={"papers": list(names), "quick": effort.quick, "codec_as": effort.codec_as},
            inputs={paper.name: {"source": paper.source} for paper in papers},
            measured=["values, errors and bytes: reducers ran on real arrays", "losses: models were trained"],
            assumed=["times: scripts replayed on simulated clusters"],
        ),
        notes=() if complete else (INTERRUPTED_NOTE,),
    )
