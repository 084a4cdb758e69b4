"""Makes the README's picture from what the main command really prints: ``python docs/make_picture.py``."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMAND = ["run", "--topology", "fat-tree", "--workers", "64"]
COLUMNS = 128


def main() -> None:
    """Run the command and write its output as an SVG."""
    printed = subprocess.run(
        [sys.executable, "-m", "s2sim", *COMMAND],
        env=os.environ | {"COLUMNS": str(COLUMNS)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(printed))
    console.save_svg(str(Path(__file__).parent / "images" / "run.svg"), title=f"s2sim {' '.join(COMMAND)}")


if __name__ == "__main__":
    main()
