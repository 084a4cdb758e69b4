"""Predicted against measured times of every curve: a picture a source, and one page with all of them."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log2, log10
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.report.figures.axes import GREY, SMALL_SIZE
from s2sim.report.figures.figure_file import figure_bytes, one_look
from s2sim.report.tables.html import lines_html
from s2sim.report.tables.validate import signed_text
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from s2sim.report.tables.screens import Screen
    from s2sim.study.validate.result import CurveErrors, ValidationResult

# Inches.
_WIDTH, _HEIGHT = 3.3, 2.3
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.62, 0.12, 0.45, 0.35
_COLUMNS = 3
_MEASURED, _PREDICTED = "#222222", "#d1495b"
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1.5em 0;font-size:13px}th,td{padding:1px 9px;border-bottom:1px solid #eee}"
    "svg{max-width:100%;height:auto}pre{white-space:pre-wrap;font:inherit}"
)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def check_page() -> None:
    """Refuse to draw where nothing can, before anything long is computed."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise S2SimError("drawing needs matplotlib: pip install 's2sim[plot]'")


def curves_page(result: ValidationResult, screen: Screen) -> str:
    """Return one page that loads nothing: the screen's lines and tables, and a picture for each source."""
    sources: dict[str, list[CurveErrors]] = {}
    for curve in result.curves:
        if curve.predicted:
            sources.setdefault(curve.source, []).append(curve)
    pictures = "".join(
        f"<h2>{escape(name)}</h2>{_links(curves)}{draw_curves(curves)}" for name, curves in sources.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Predicted against measured</title>'
        f"<style>{_STYLE}</style></head><body><h1>Predicted against measured</h1>"
        f"{lines_html(*screen)}<p>Dots are measured, lines predicted; below a name stands the bias "
        "at large and at small sizes.</p>"
        f"{pictures}</body></html>\n"
    )


def _links(curves: Sequence[CurveErrors]) -> str:
    urls = dict.fromkeys(curve.source_url for curve in curves if curve.source_url)
    texts = [
        f'<a href="{escape(url)}">{escape(url)}</a>' if url.startswith("https://") else escape(url) for url in urls
    ]
    return f"<p>{', '.join(texts)}</p>" if texts else ""


def draw_curves(curves: Sequence[CurveErrors]) -> str:
    """Return an SVG with a panel for each curve: time over size, both logarithmic."""
    from matplotlib.figure import Figure

    rows, columns = ceil(len(curves) / _COLUMNS), min(_COLUMNS, len(curves))
    width, height = columns * _WIDTH, rows * _HEIGHT
    with one_look():
        figure = Figure(figsize=(width, height), facecolor="white")
        for place, curve in enumerate(curves):
            row, column = divmod(place, _COLUMNS)
            corner = (column * _WIDTH + _LEFT) / width, 1 - ((row + 1) * _HEIGHT - _BOTTOM) / height
            extent = (_WIDTH - _LEFT - _RIGHT) / width, (_HEIGHT - _TOP - _BOTTOM) / height
            _panel(figure.add_axes((*corner, *extent)), curve)
    svg = figure_bytes(figure, "svg").decode()
    return svg[svg.index("<svg") :]


def _panel(axes: Axes, curve: CurveErrors) -> None:
    sizes = [log2(point.size_bytes) for point in curve.points]
    predicted = [(size, log10(p.predicted_s)) for size, p in zip(sizes, curve.points, strict=True) if p.predicted_s > 0]
    measured = [log10(point.measured_s) for point in curve.points]
    axes.plot(sizes, measured, "o", color=_MEASURED, markersize=2.5)
    axes.plot([size for size, _ in predicted], [time for _, time in predicted], color=_PREDICTED, linewidth=1.2)
    # Logarithms by hand: axes of decades take ten times as long to draw.
    times = [*measured, *(time for _, time in predicted)]
    decades = range(floor(min(times)), ceil(max(times)) + 1)
    axes.set_yticks(list(decades), [format_seconds(10.0**decade) for decade in decades])
    first, last = round(min(sizes)), round(max(sizes))
    powers = [power for power in range(0, last + 1, 5) if power >= first] or [first]
    axes.set_xticks(powers, [f"{2 ** (power % 10)} {_UNITS[power // 10]}" for power in powers])
    axes.tick_params(labelsize=SMALL_SIZE, color=GREY, length=2)
    axes.grid(visible=True, color="#e4e4e4", linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    mark = "" if curve.counts else " (apart)"
    bias = f"{signed_text(curve.signed_log_error_large)} / {signed_text(curve.signed_log_error_small)}"
    axes.set_title(f"{curve.id}{mark}\n{bias}", fontsize=SMALL_SIZE, loc="left")
