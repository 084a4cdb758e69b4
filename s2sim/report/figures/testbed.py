"""Figures of times of collectives on testbeds, measured and predicted; and of compute profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from s2sim.report.figures import style
from s2sim.report.figures.labels import figure_with_head, write_legend
from s2sim.report.testbed_tables import rate_text
from s2sim.units import format_bytes, format_count, format_seconds
from s2sim.validation.testbed import ComparedTime, PredictionComparison

_HEIGHT = 3.2
# Share of all bytes from which tensors have their name next to the curve.
_NAMED_SHARE = 0.08


def profile_figure(described: Mapping[str, Any]) -> Figure:
    """Return the bytes of gradients that are ready over the time of backward, from the description of a profile."""
    whole, backward_s = described["gradient_bytes"], described["backward_s"]
    times = [0.0, *(tensor["ready_s"] for tensor in described["tensors"])]
    ready = [0, *(tensor["ready_bytes"] for tensor in described["tensors"])]
    parameters = f"{format_count(described['parameters'])} parameters, {len(described['tensors'])} tensors"
    about = f"{described['gpu']}, {described['batch']} x {described['sample']}"
    with style.figure_style():
        figure, below = figure_with_head(
            f"When gradients of {described['model']} are ready in backward ({described['kind']})",
            f"{parameters}, {format_bytes(whole)} in float32; {about}; {described['source']}",
            _HEIGHT,
        )
        axes = below.subplots()
        style.style_axes(axes)
        axes.step(times, ready, where="post", color=style.FAMILY_STYLES["owner-reduce"].colour, linewidth=1.4)
        axes.plot([0, backward_s], [0, whole], color=style.GREY, linewidth=0.8, linestyle=":", zorder=1)
        for tensor in described["tensors"]:
            if tensor["bytes"] >= _NAMED_SHARE * whole:
                late = tensor["ready_s"] > backward_s / 2
                text = f"{tensor['name']}, {format_bytes(tensor['bytes'])} "
                point = (tensor["ready_s"], tensor["ready_bytes"] - tensor["bytes"] / 2)
                look = {"ha": "right" if late else "left", "va": "center", "color": style.GREY, "bbox": style.WHITE_BOX}
                style.label_point(axes, text, point, (-4 if late else 4, 0), **look)
        axes.set(xlim=(0, backward_s * 1.02 or 1.0), ylim=(0, whole * 1.04))
        axes.xaxis.set_major_formatter(lambda value, _: format_seconds(value))
        axes.yaxis.set_major_formatter(lambda value, _: format_bytes(value) if value else "0")
        style.label_axes(axes, "since backward began (dotted: bytes in proportion to time)")
        axes.set_title("gradients ready", fontsize=style.TEXT_SIZE, loc="left")
        return figure


# Inches: the height of a panel, and of title and legend.
_PANEL, _AROUND = 2.1, 0.9


def times_figure(result: PredictionComparison) -> Figure:
    """Return a panel per number of workers and collective: dots are measured, lines predicted, by rate."""
    points = [point for point in result.points if point.kind == "collectives"]
    kinds = list(dict.fromkeys(point.what for point in points))
    workers = sorted({point.workers for point in points})
    rates = sorted({point.rate_Bps for point in points})
    with style.figure_style():
        title = (
            f"Time of collectives: measured (dots, 10 to 90 %) and predicted (lines); told by {result.calibrated_on}"
        )
        figure, panels = figure_of_panels(title, max(len(workers), 1), max(len(kinds), 1))
        for row, count in zip(panels, workers, strict=False):
            for axes, kind in zip(row, kinds, strict=False):
                _draw_times(axes, [p for p in points if (p.workers, p.what) == (count, kind)], rates)
                axes.set_title(f"{kind}, {count} workers", fontsize=style.SMALL_SIZE)
        share_legend(figure, list(panels.flat), [rate_text(rate_Bps) for rate_Bps in rates])
    return figure


def figure_of_panels(title: str, rows: int, columns: int) -> tuple[Figure, NDArray[Any]]:
    """Return a figure with a title, and its axes, of shape (rows, columns)."""
    figure = Figure((style.WIDTH, _PANEL * rows + _AROUND), layout="constrained")
    figure.suptitle(title, fontsize=style.TEXT_SIZE)
    return figure, figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)


def _draw_times(axes: Axes, points: Sequence[ComparedTime], rates: Sequence[float]) -> None:
    for number, rate_Bps in enumerate(rates):
        own = sorted((point for point in points if point.rate_Bps == rate_Bps), key=lambda point: point.payload_bytes)
        if not own:
            continue
        sizes = [point.payload_bytes for point in own]
        colour = f"C{number % 10}"
        axes.plot(sizes, [p.predicted_s for p in own], color=colour, linewidth=1, label=rate_text(rate_Bps))
        spread = [[p.measured_s - p.low_s for p in own], [p.high_s - p.measured_s for p in own]]
        axes.errorbar(sizes, [p.measured_s for p in own], spread, fmt="o", color=colour, markersize=2.5, elinewidth=0.7)
    set_log_scales(axes)
    axes.xaxis.set_major_formatter(lambda size, _: format_bytes(size))
    axes.yaxis.set_major_formatter(lambda seconds, _: format_seconds(seconds))


def set_log_scales(axes: Axes) -> None:
    """Make both axes logarithmic."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.tick_params(labelsize=style.SMALL_SIZE)


def share_legend(figure: Figure, panels: Sequence[Axes], names: Sequence[str]) -> None:
    """Write one legend for the lines of all panels, in the order of their names."""
    lines = {line.get_label(): line for axes in panels for line in axes.lines}
    write_legend(figure, [lines[name] for name in names if name in lines])
