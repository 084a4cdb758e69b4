"""Makes the documents' pictures from what the commands really give: ``python docs/make_pictures.py``.

It needs matplotlib, the extra ``plot``, and what comes with it.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from rich.color import blend_rgb
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME as THEME
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
SHOWN = ("run", "--topology", "fat-tree", "--workers", "64")
# Commands in these documents that write a picture.
DRAWN = (IMAGES.parent / "s2.md", IMAGES.parent / "iterations.md")
# As wide as a terminal is; on a web page so many letters are as large as its text.
COLUMNS = 80
# Pixels of a letter's cell, at twice the size at which the picture is seen, and around the text. A letter of DejaVu
# Sans Mono is 0.602 of its size wide: this size fills the cell, so that columns stay columns.
CELL_WIDTH, CELL_HEIGHT, MARGIN, DOTS_PER_INCH = 20, 42, 40, 240
PALETTE = 48
POINTS = CELL_WIDTH / 0.602 * 72 / DOTS_PER_INCH


def main() -> None:
    """Run the commands; write what the first prints and what the others draw."""
    draw_screen(f"$ s2sim {' '.join(SHOWN)}\n\n{s2sim(*SHOWN)}", IMAGES / "run.png")
    for line in (line for document in DRAWN for line in document.read_text(encoding="utf-8").splitlines()):
        if line.startswith("$ s2sim ") and "--png" in line:
            *command, name = shlex.split(line.removeprefix("$ s2sim "))
            s2sim(*command, str(IMAGES / name))


def s2sim(*arguments: str) -> str:
    """Return what a command prints on a terminal, colours included."""
    return subprocess.run(
        [sys.executable, "-m", "s2sim", *arguments],
        env=os.environ | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def draw_screen(printed: str, target: Path) -> None:
    """Draw a terminal that shows a text."""
    console = Console(width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    lines = console.render_lines(Text.from_ansi(printed.rstrip("\n")), pad=False)
    width, height = (COLUMNS * CELL_WIDTH + 2 * MARGIN, len(lines) * CELL_HEIGHT + 2 * MARGIN)
    figure = Figure(
        figsize=(width / DOTS_PER_INCH, height / DOTS_PER_INCH), dpi=DOTS_PER_INCH, facecolor=THEME.background_color.hex
    )
    FigureCanvasAgg(figure)
    for row, segments in enumerate(lines):
        column = 0
        for segment in segments:
            colour, weight = look(segment.style or Style.null())
            figure.text(
                (MARGIN + column * CELL_WIDTH) / width,
                1 - (MARGIN + (row + 0.72) * CELL_HEIGHT) / height,
                segment.text,
                family="DejaVu Sans Mono",
                fontsize=POINTS,
                color=colour,
                weight=weight,
                parse_math=False,
            )
            column += segment.cell_length
    buffer = io.BytesIO()
    figure.savefig(buffer)
    # A terminal has few colours: a palette makes the file a quarter as large.
    Image.open(buffer).quantize(PALETTE).save(target, optimize=True)


def look(style: Style) -> tuple[str, str]:
    """Return colour and weight of a style."""
    colour = THEME.foreground_color if style.color is None else style.color.get_truecolor(THEME)
    if style.dim:
        colour = blend_rgb(colour, THEME.background_color, 0.4)
    return colour.hex, "bold" if style.bold else "normal"


if __name__ == "__main__":
    main()
