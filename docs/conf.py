"""The site that Sphinx makes of these documents: ``pip install '.[docs]' && sphinx-build -W docs site``.

The reference of the command line is what ``--help`` prints, that of Python the docstrings.
"""

import os
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import s2sim

project = "s2sim"
author = "the s2sim maintainers"
release = version = s2sim.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["*.py"]
html_theme = "furo"
html_title = "s2sim"
myst_heading_anchors = 4
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_numpy_docstring, napoleon_google_docstring = True, False
suppress_warnings = [
    # Links to files of the repository that are no documents, such as measured/curves/; tests/test_text_files.py follows
    # every link.
    "myst.xref_missing"
]
COMMANDS = Path(__file__).parent / "reference" / "commands.md"


def write_commands(_app: Sphinx) -> None:
    """Write the help of every command to a page, at the width of a terminal."""
    os.environ.update(COLUMNS="80", NO_COLOR="1")
    from typer.main import get_command

    from s2sim.cli.main import app

    parts = ["# Command line\n", "What `--help` prints, a section for each command.\n"]

    def add(command: Any, name: str) -> None:
        context = command.make_context(name, [], resilient_parsing=True)
        parts.append(f"## {name}\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
        for child, below in sorted(getattr(command, "commands", {}).items()):
            if not below.hidden:
                add(below, f"{name} {child}")

    add(get_command(app), "s2sim")
    COMMANDS.write_text("\n".join(parts), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Make what is generated before documents are read."""
    app.connect("builder-inited", write_commands)
