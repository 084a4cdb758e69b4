"""``s2sim new``: packages that add to s2sim, to start from."""

from __future__ import annotations

import re
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template

from s2sim.cli.options import argument, examples, group
from s2sim.cli.output import show_lines
from s2sim.errors import OptionError

EXAMPLES = examples("s2sim new reducer my-signs")

app = group(help="Write a package that adds to s2sim.", epilog=EXAMPLES)

_TEMPLATES = Path(__file__).with_name("new_reducer")
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


@app.command("reducer", epilog=EXAMPLES, short_help="Write a package with a reducer.")
def reducer_command(
    name: str = argument(
        "NAME", "Name of the reducer and of the folder, of small letters, digits, dashes.", default=...
    ),
) -> None:
    """Write a package with a reducer: its code with its GPU work, its entry point, and a test with the conformance kit.

    It works as it is, and sends signs and magnitudes; change what it encodes, and what that costs.
    """
    from s2sim.reducers.registry import reducer_names

    module = name.replace("-", "_")
    if _NAME.fullmatch(name) is None or iskeyword(module):
        raise OptionError(f"{name!r} is no name of a reducer: take small letters, digits and dashes, as in my-signs")
    folder = Path(name)
    if name in reducer_names():
        raise OptionError(f"there is a reducer {name}: take another name")
    if folder.exists() or find_spec(module) is not None:
        raise OptionError(f"there is a {'folder' if folder.exists() else 'Python module'} {name}: take another name")
    words = {"name": name, "module": module, "cls": f"{module.title().replace('_', '')}Reducer"}
    folder.mkdir()
    for template, file in (
        ("pyproject.toml", "pyproject.toml"),
        ("reducer.py", f"{module}.py"),
        ("test_reducer.py", f"test_{module}.py"),
    ):
        text = Template((_TEMPLATES / f"{template}.txt").read_text("utf-8")).substitute(words)
        (folder / file).write_text(text, "utf-8")
    show_lines(
        [
            f"{name}/ has {module}.py, its test and pyproject.toml. Next:",
            f"  pip install -e ./{name} && pytest {name}",
            f"  s2sim run --topology fat-tree --workers 16 --reducer {name}:ef=true",
        ]
    )
