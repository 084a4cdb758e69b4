"""Makes the documents' pictures from what the commands really give: ``python docs/make_pictures.py``."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
SHOWN = ("run", "--topology", "fat-tree", "--workers", "64")
DRAWN = {
    "compare.png": ("codec", "compare", "--trace", "lstm-lm", "--workers", "8,64"),
    "regimes.png": ("codec", "regimes"),
}
COLUMNS = 132


def main() -> None:
    """Run the commands; write what the first prints and what the others draw."""
    printed = s2sim(*SHOWN)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(printed))
    console.save_svg(str(IMAGES / "run.svg"), title=f"s2sim {' '.join(SHOWN)}")
    for name, command in DRAWN.items():
        s2sim(*command, "--png", str(IMAGES / name))


def s2sim(*arguments: str) -> str:
    """Return what a command prints."""
    return subprocess.run(
        [sys.executable, "-m", "s2sim", *arguments],
        env=os.environ | {"COLUMNS": str(COLUMNS)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


if __name__ == "__main__":
    main()
