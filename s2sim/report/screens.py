"""The screen and the page of each kind of result; HTML by the templates in ``page/``, which escape."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import s2sim
from s2sim.claims.paper import Chart, HeatMap, PapersResult
from s2sim.experiment.json_form import ResultForm
from s2sim.experiment.rate_curve import RateCurves
from s2sim.experiment.rows import Result
from s2sim.experiment.timeline import Streams, Timeline
from s2sim.report import study_tables
from s2sim.report.answer import about_lines, details_grids, lines_text, result_table, result_text, verdict_lines
from s2sim.report.format import workers_text
from s2sim.report.grid import Grid, Screen, table_grid
from s2sim.report.log_comparison import calibrate_screen, log_comparison_screen
from s2sim.report.traffic_tables import collective_screen, flows_screen
from s2sim.report.validation_tables import iterations_screen, validate_screen
from s2sim.tables import Table

_MADE_BY = (f"s2sim {s2sim.__version__}.",)


@dataclass(frozen=True)
class Report:
    """What a page shows, in this order: the answer, what it rests on, charts, and how it was made."""

    title: str
    answer: Sequence[str]
    grids: Sequence[Grid]
    about: Sequence[str] = ()
    details: Sequence[Grid] = ()
    notes: Sequence[str] = ()
    charts: Sequence[Mapping[str, Any]] = ()
    provenance: Sequence[str] = ()
    command: str | None = None
    script: Sequence[str] = ()  # Lines of code
    aligned: bool = False  # Whether the answer is aligned as in a terminal


@lru_cache(maxsize=1)
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader

    made = Environment(loader=PackageLoader("s2sim.report", "page"), autoescape=True)
    # A title is hyphenated for terminals only.
    made.filters["title"] = lambda text: text.replace("-\n", "").replace("\n", " ")
    return made


def render(template: str, title: str, report: Report | None = None, **values: Any) -> str:
    """Return a template of ``page/``, filled in."""
    from markupsafe import Markup

    # Inside a script element only its own end would end it.
    data = Markup(json.dumps(report.charts if report else [], allow_nan=False).replace("<", "\\u003c"))  # noqa: S704
    return str(_templates().get_template(template).render(title=title, report=report, data=data, **values))


def page(report: Report, template: str = "page.html") -> str:
    """Return a self-contained page, or by ``fragment.html`` the answer, tables and details for a notebook."""
    return render(template, report.title, report)


def run_report(
    result: Result,
    command: str | None = None,
    curves: Mapping[int, RateCurves] | None = None,
    timelines: Mapping[str, Timeline | Streams] | None = None,
) -> Report:
    """Return the first screen of `s2sim run` with its details, and its charts."""
    from s2sim.report.page_charts import run_charts

    grid, below = result_table(result)
    return Report(
        f"{result.spec.topology}, {' and '.join(workers_text(count) for count in result.spec.workers)}: which gradient "
        "compressor pays",
        verdict_lines(result),
        [grid],
        [*below, *about_lines(result), *(f"Note: {note}." for note in result.caveats)],
        details_grids(result),
        result.notes,
        run_charts(result, curves or {}, timelines or {}),
        provenance=provenance_lines(result.provenance),
        command=command,
    )


def provenance_lines(provenance: Mapping[str, Any]) -> list[str]:
    """Return what made a result, and what of it was measured."""
    question = f"; SHA-256 of the question {provenance['spec_sha256']}" if "spec_sha256" in provenance else ""
    known = [name for name in ("measured", "assumed") if provenance.get(name)]
    origins = [f"{name.capitalize()}: {'; '.join(provenance[name])}." for name in known]
    return [f"s2sim {provenance.get('s2sim', s2sim.__version__)}{question}.", *origins]


def report_of(result: Any, command: str | None = None) -> Report:
    """Return the screen of a result of any command, or of a table, with its charts."""
    from s2sim.report import page_charts

    if isinstance(result, Table):
        return table_report(result, page_charts.table_charts(result), command)
    if result.answers == "run":
        return run_report(result, command)
    charts_of: dict[str, Callable[[Any], list[dict[str, Any]]]] = {
        "advise": page_charts.advice_charts,
        "collective": page_charts.collective_charts,
        "train": page_charts.train_charts,
        "validate": page_charts.curve_charts,
    }
    screen = screen_of(result)
    return Report(
        f"s2sim {result.answers}: {next(iter(filter(None, map(str.strip, screen.brief or screen.before))), '')}",
        screen.before,
        screen.grids,
        screen.after,
        script=screen.script,
        charts=charts_of[result.answers](result) if result.answers in charts_of else [],
        provenance=_MADE_BY,
        command=command,
        aligned=True,
    )


def table_report(table: Table, charts: Sequence[Mapping[str, Any]], command: str | None) -> Report:
    """Return a table with its charts."""
    title = command or "s2sim results"
    return Report(title, [], [table_grid(table)], charts=charts, provenance=_MADE_BY, command=command)


_SCREENS: dict[str, Callable[[Any], Screen]] = {
    "advise": study_tables.advice_screen,
    "against": log_comparison_screen,
    "calibrate": calibrate_screen,
    "collective": collective_screen,
    "flows": flows_screen,
    "iterations": iterations_screen,
    "paper": study_tables.papers_screen,
    "regimes": study_tables.regimes_screen,
    "topologies": study_tables.topologies_screen,
    "train": study_tables.train_screen,
    "validate": validate_screen,
}


def screen_of(result: ResultForm) -> Screen:
    """Return the lines and tables of a result."""
    return _SCREENS[result.answers](result)


def screen_text(result: Any) -> str:
    """Return the screen of a result as plain text."""
    if result.answers == "run":
        return result_text(result)
    screen = screen_of(result)
    return "\n".join([lines_text(screen.before, screen.grids, screen.after), *screen.script])


def screen_line(result: Any) -> str:
    """Return the answer in a line, that for the most workers of a run, and the cluster that another one is of."""
    if result.answers == "run":
        of_most = f"{workers_text(result.verdict.workers)}: " if len(result.verdicts) > 1 else ""
        return f"{of_most}{result.verdict.lines[0]}"
    sentences = [line.partition(". ")[0] for line in screen_of(result).brief if line]
    return "; ".join(dict.fromkeys(filter(None, [*sentences[:1], getattr(result, "cluster", "")])))


def screen_html(result: ResultForm) -> str:
    """Return the screen of a result, of a run with its details folded, as a fragment of HTML."""
    return page(report_of(result), "fragment.html")


def screen_page(result: Any, command: str | None = None) -> str:
    """Return the page of a result of any command, or of a table."""
    is_paper = not isinstance(result, Table) and result.answers == "paper"
    return papers_page(result) if is_paper else page(report_of(result, command))


def papers_page(result: PapersResult) -> str:
    """Return the page of rebuilt papers: claims with judgements, figures, and the numbers behind them."""
    first = result.papers[0] if len(result.papers) == 1 else None
    title = "Published claims, rebuilt" if first is None else f"{first.name}: claims, rebuilt"
    functions: dict[str, Any] = {"numbers": study_tables.numbers_grid, "setup": study_tables.setup_lines}
    lines = study_tables.papers_lines(result)
    return render("papers.html", title, lines=lines, papers=result.papers, drawn=_drawn, **functions)


def _drawn(picture: Chart | HeatMap) -> str:
    from s2sim.report.figures.charts import chart_figure
    from s2sim.report.figures.style import svg_text

    return svg_text(chart_figure(picture))
