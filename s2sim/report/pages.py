"""Rebuilt papers as a self-contained page: claims with judgements, figures, and the numbers behind them."""

from __future__ import annotations

from html import escape

from s2sim.claims.paper import Claim, PapersResult, Rebuilt
from s2sim.report.figures.charts import chart_figure
from s2sim.report.figures.style import svg_text
from s2sim.report.html import page, paragraphs, table_html
from s2sim.report.study_tables import numbers_grid, papers_lines, setup_lines

_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:64em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0;font-size:13.5px}"
    "th,td{padding:3px 10px;border-bottom:1px solid #e4e4e4;text-align:left;vertical-align:top}"
    "td{font-variant-numeric:tabular-nums}caption{font-weight:bold;padding:4px 0}"
    ".why{color:#555;font-size:12.5px}.j{font-weight:bold;white-space:nowrap}"
    ".reproduced{color:#00734f}.not-reproduced{color:#b03a00}.not-testable{color:#666}"
    "svg{max-width:100%;height:auto}figure{margin:1em 0}h2{margin-top:2em}"
)


def papers_page(result: PapersResult) -> str:
    """Return the page, escaped, with figures as SVG."""
    first = result.papers[0] if len(result.papers) == 1 else None
    title = "Published claims, rebuilt" if first is None else f"{first.name}: claims, rebuilt"
    body = "".join(map(_section, result.papers))
    return page(title, _STYLE, f"{paragraphs(map(escape, papers_lines(result)))}{body}")


def _section(paper: Rebuilt) -> str:
    pictures = "".join(f"<figure>{svg_text(chart_figure(picture))}</figure>" for picture in paper.pictures)
    tables = "".join(table_html(numbers_grid(table)) for table in paper.tables)
    items = "".join(
        f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" if label else f"<dd>{escape(text)}</dd>"
        for label, text in setup_lines(paper)
    )
    return (
        f'<section id="{escape(paper.name)}"><h2>{escape(paper.name)}</h2>'
        f"<p><strong>{escape(paper.title)}</strong><br>{escape(paper.source)}</p>"
        f"<table><thead><tr><th>claim</th><th>published</th><th>ours</th><th>judgement</th></tr></thead>"
        f"<tbody>{''.join(map(_claim, paper.claims))}</tbody></table>"
        f"{pictures}{tables}<dl>{items}</dl></section>"
    )


def _claim(claim: Claim) -> str:
    look = claim.judgement.replace(" ", "-")
    return (
        f'<tr><td>{escape(claim.text)}<div class="why">{escape(claim.source)}</div></td>'
        f"<td>{escape(claim.published)}</td><td>{escape(claim.ours)}</td>"
        f'<td><span class="j {look}">{escape(claim.judgement)}</span>'
        f'<div class="why">{escape(claim.why)} <em>{escape(claim.rule)}</em></div></td></tr>'
    )
