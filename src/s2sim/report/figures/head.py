"""The head of a picture: what it shows, of which cluster, gradients and library."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from s2sim.report.figures.axes import GREY, SMALL_SIZE, TITLE_SIZE, WIDTH, blank_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure, SubFigure

    from s2sim.study.measuring.result import Result

# Inches: a line of the title and of what stands below it, a letter of that, air around.
_TITLE_LINE, _LINE, _LETTER, _AIR = 0.2, 0.145, 0.058, 0.07


def about(result: Result) -> str:
    """Return of which cluster, gradients, library and GPU a result is."""
    spec = result.spec
    scaled = spec.model or spec.scale_to
    whose = "toy gradients" if result.gradients.toy else "gradients"
    gradients = f"{whose} of {spec.trace}" + ("" if scaled is None else f" scaled to {scaled}")
    parts = [gradients, f"library {result.library}", f"GPU {result.gpu}"]
    if spec.compute is not None:
        parts.append(f"compute {spec.compute}")
    profile = spec.profile or (spec.model if spec.discipline is not None else None)
    if profile is not None:
        batch = "" if spec.batch is None else f", batch {spec.batch}"
        parts.append(f"compute of {profile}{batch}")
    if spec.steps > 1:
        parts.append("first step")
    if spec.faults:
        parts.append(f"with {', '.join(spec.faults)}")
    several = f"at {max(row.workers for row in result.results)} workers, " if len(spec.workers) > 1 else ""
    return f"{several}{result.cluster}; {', '.join(parts)}"


def head_lines(subtitle: str, width: float) -> list[str]:
    """Return a subtitle as lines that fit into so many inches."""
    return wrap(subtitle, int((width - 2 * _AIR) / _LETTER), break_on_hyphens=False)


def head_height(lines: Sequence[str]) -> float:
    """Return the inches that a title and these lines below it take."""
    return _AIR + _TITLE_LINE + _LINE * len(lines) + _AIR


def write_head(figure: Figure, title: str, lines: Sequence[str]) -> None:
    """Write a title and lines below it at the top of a figure."""
    width, height = figure.get_size_inches()
    left, top = _AIR / width, height - _AIR
    figure.text(left, top / height, title, fontsize=TITLE_SIZE, va="top")
    for number, line in enumerate(lines):
        y = (top - _TITLE_LINE - number * _LINE) / height
        figure.text(left, y, line, fontsize=SMALL_SIZE, color=GREY, va="top")


def headed(title: str, subtitle: str, height: float, width: float = WIDTH) -> tuple[Figure, SubFigure]:
    """Return a figure with a head, and the part below it, so many inches high, for axes that are laid out."""
    lines = head_lines(subtitle, width)
    above = head_height(lines)
    figure = blank_figure(above + height, width)
    parts = figure.subfigures(2, 1, height_ratios=(above, height), squeeze=False)
    write_head(figure, title, lines)
    return figure, parts[1, 0]
