"""Whole pages of results: tables and charts of any, and for papers pictures by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.report.html import page, render, run_report, screen_report, table_report
from s2sim.report.screens import screen_of
from s2sim.tables import Table

if TYPE_CHECKING:
    from s2sim.claims.paper import Chart, HeatMap, PapersResult


def result_page(result: Any, command: str | None = None) -> str:
    """Return the page of a result of any command, or of a table."""
    if isinstance(result, Table):
        return page(table_report(result, command))
    if result.answers == "run":
        return page(run_report(result, command))
    if result.answers == "paper":
        return papers_page(result)
    return page(screen_report(result, screen_of(result), command))


def papers_page(result: PapersResult) -> str:
    """Return the page of rebuilt papers: claims with judgements, figures, and the numbers behind them."""
    from s2sim.report.study_tables import numbers_grid, papers_lines, setup_lines

    first = result.papers[0] if len(result.papers) == 1 else None
    title = "Published claims, rebuilt" if first is None else f"{first.name}: claims, rebuilt"
    values: dict[str, Any] = {"lines": papers_lines(result), "papers": result.papers}
    return render("papers.html", title, drawn=_drawn, numbers=numbers_grid, setup=setup_lines, **values)


def _drawn(picture: Chart | HeatMap) -> str:
    from s2sim.report.figures.charts import chart_figure
    from s2sim.report.figures.style import svg_text

    return svg_text(chart_figure(picture))
