"""Whole pages of results: tables and charts of any, and for curves and papers pictures by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.report.format import group_by
from s2sim.report.html import page, render, run_report, screen_report
from s2sim.report.screens import screen_of

if TYPE_CHECKING:
    from s2sim.claims.paper import Chart, HeatMap, PapersResult
    from s2sim.validation.curve_result import ValidationResult


def result_page(result: Any, command: str | None = None) -> str:
    """Return the page of a result of any command."""
    if result.answers == "run":
        return page(run_report(result, command))
    if result.answers == "paper":
        return papers_page(result)
    if result.answers == "validate":
        return curves_page(result, command)
    return page(screen_report(result, screen_of(result), command))


def curves_page(result: ValidationResult, command: str | None = None) -> str:
    """Return the page of a validation, with a figure per source."""
    from s2sim.report.figures.curves import curves_svg

    sources = group_by((curve for curve in result.curves if curve.predicted), lambda curve: curve.source)
    drawn = [
        (name, list(dict.fromkeys(curve.source_url for curve in curves if curve.source_url)), curves_svg(curves))
        for name, curves in sources.items()
    ]
    report = screen_report(result, screen_of(result), command)
    return render("curves.html", "Predicted against measured", report, sources=drawn)


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
