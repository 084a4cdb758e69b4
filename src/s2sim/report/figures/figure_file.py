"""Pictures as files: which there are, in one look, and the same bytes for the same picture."""

from __future__ import annotations

import re
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.report.figures.axes import DOTS_PER_INCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def check_picture(target: str) -> None:
    """Refuse a file that no picture can be written to, before anything long is computed for it."""
    from importlib.util import find_spec

    if Path(target).suffix.lower() not in FORMATS:
        raise S2SimError(f"a picture {target} was asked for: its name must end in {', '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise S2SimError("drawing needs matplotlib: pip install 's2sim[plot]'")


@contextmanager
def one_look() -> Iterator[None]:
    """Draw and write a figure in here, so that it depends on no settings of the user."""
    from matplotlib import rc_context

    # Random names of an SVG's parts would make every file another one; letters as shapes would be most of it.
    with rc_context(
        {"svg.hashsalt": "s2sim", "svg.fonttype": "none", "font.family": "DejaVu Sans", "text.parse_math": False}
    ):
        yield


def figure_bytes(figure: Figure, file_format: str) -> bytes:
    """Return the file of a drawn figure, ``"png"``, ``"svg"`` or ``"pdf"``."""
    # So would dates.
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format, {})
    buffer = BytesIO()
    with one_look():
        figure.savefig(buffer, format=file_format, dpi=DOTS_PER_INCH, metadata=dates)
    return _compact(buffer.getvalue()) if file_format == "svg" else buffer.getvalue()


def _compact(svg: bytes) -> bytes:
    """Return an SVG without indentation, which is much of it, and with what stands in where its font is missing."""
    svg = re.sub(rb"\n\s+", b"\n", svg)
    return svg.replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, Arial, sans-serif")
