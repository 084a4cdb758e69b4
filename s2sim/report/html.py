"""A result as a fragment of HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from s2sim.report.answer import about_lines, result_table, verdict_lines
from s2sim.report.iteration_tables import iteration_grids
from s2sim.report.run_tables import comparison_grids

if TYPE_CHECKING:
    from s2sim.experiment.rows import Result
    from s2sim.report.grid import Column, Grid, Screen


def _cell(tag: str, text: str, column: Column) -> str:
    align = "right" if column.numeric else "left"
    # A title is hyphenated for terminals only.
    lines = escape(text).replace("-\n", "").replace("\n", "<br>")
    return f'<{tag} style="text-align: {align}">{lines}</{tag}>'


def table_html(grid: Grid) -> str:
    """Return a table as HTML, escaped."""
    head = "".join(_cell("th", column.title, column) for column in grid.columns)
    styles = {**dict.fromkeys(grid.faint, "color: gray"), **dict.fromkeys(grid.strong, "font-weight: bold")}
    body = "".join(
        f'<tr style="{styles.get(place, "")}">'
        + "".join(_cell("td", text, column) for text, column in zip(row, grid.columns, strict=True))
        + "</tr>"
        for place, row in enumerate(grid.rows)
    )
    caption = f'<caption style="text-align: left">{escape(grid.title)}</caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def result_html(result: Result) -> str:
    """Return the first screen of `s2sim run` with its details folded, self-contained and escaped."""
    grid, below = result_table(result)
    verdict = paragraphs(f"<strong>{escape(line)}</strong>" for line in verdict_lines(result))
    about = paragraphs(map(escape, [*below, *about_lines(result)]))
    caveats = paragraphs(f"Note: {escape(note)}." for note in result.caveats)
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    details = [*iteration_grids(result), *comparison_grids(result)]
    return (
        f"<div>{verdict}{table_html(grid)}{about}{caveats}<details><summary>Details</summary>"
        f"{''.join(map(table_html, details))}<ul>{notes}</ul></details></div>"
    )


def lines_html(screen: Screen) -> str:
    """Return the lines and tables of a screen, escaped; the lines before are aligned as in a terminal."""
    head = escape("\n".join(screen.before))
    tables, notes = "".join(map(table_html, screen.grids)), paragraphs(map(escape, filter(None, screen.after)))
    return f"<div><pre>{head}</pre>{tables}{notes}</div>"


def page(title: str, style: str, body: str) -> str:
    """Return a self-contained page with a heading; ``style`` is CSS, ``body`` HTML."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{style}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def paragraphs(texts: Iterable[str]) -> str:
    """Return texts, which are HTML, as paragraphs."""
    return "".join(f"<p>{text}</p>" for text in texts)
