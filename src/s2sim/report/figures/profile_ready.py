"""When gradients are ready in backward: bytes over time, and which tensors are most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.report.figures.axes import GREY, SMALL_SIZE, TEXT_SIZE, plain
from s2sim.report.figures.colours import LOOKS
from s2sim.report.figures.figure_file import one_look
from s2sim.report.figures.head import headed
from s2sim.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

_HEIGHT = 3.2
# Tensors with at least this share of all bytes have their name beside the curve.
_NAMED_SHARE = 0.08


def profile_figure(described: Mapping[str, Any]) -> Figure:
    """Return the bytes of gradients that are ready over the time of backward, of what `describe` says of a profile."""
    whole, backward_s = described["gradient_bytes"], described["backward_s"]
    times = [0.0, *(tensor["ready_s"] for tensor in described["tensors"])]
    ready = [0, *(tensor["ready_bytes"] for tensor in described["tensors"])]
    parameters = f"{format_count(described['parameters'])} parameters, {len(described['tensors'])} tensors"
    about = f"{described['gpu']}, {described['batch']} x {described['sample']}"
    with one_look():
        figure, below = headed(
            f"When gradients of {described['model']} are ready in backward ({described['kind']})",
            f"{parameters}, {format_bytes(whole)} in float32; {about}; {described['source']}",
            _HEIGHT,
        )
        axes = below.subplots()
        plain(axes)
        axes.step(times, ready, where="post", color=LOOKS["owner-reduce"].colour, linewidth=1.4)
        axes.plot([0, backward_s], [0, whole], color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        for tensor in described["tensors"]:
            if tensor["bytes"] >= _NAMED_SHARE * whole:
                late = tensor["ready_s"] > backward_s / 2
                axes.annotate(
                    f"{tensor['name']}, {format_bytes(tensor['bytes'])} ",
                    (tensor["ready_s"], tensor["ready_bytes"] - tensor["bytes"] / 2),
                    xytext=(-4 if late else 4, 0),
                    textcoords="offset points",
                    ha="right" if late else "left",
                    va="center",
                    fontsize=SMALL_SIZE,
                    color=GREY,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
                )
        axes.set(xlim=(0, backward_s * 1.02 or 1.0), ylim=(0, whole * 1.04))
        axes.xaxis.set_major_formatter(lambda value, _: format_seconds(value))
        axes.yaxis.set_major_formatter(lambda value, _: format_bytes(value) if value else "0")
        axes.set_xlabel("since backward began (dotted: bytes in proportion to time)", fontsize=TEXT_SIZE)
        axes.set_title("gradients ready", fontsize=TEXT_SIZE, loc="left")
        return figure
