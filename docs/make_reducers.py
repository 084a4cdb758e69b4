"""Makes docs/reducers.md of what reducers say and of one run of each: ``python docs/make_reducers.py``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.experiment.reducer_facts import all_reducer_facts, describe_class, describe_options
from s2sim.reducers.wrappers.compose import WRAPPERS
from s2sim.report.reducer_tables import LEGEND, facts_grid, option_text, properties_of
from s2sim.testing.reducer_properties import example_gradients

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.experiment.reducer_facts import OptionDoc, ReducerFacts

PAGE = Path(__file__).parent / "reducers.md"
RANKS = 8
HEAD = """# Every reducer

Made by `python docs/make_reducers.py` of the classes' own texts and of one run of each; `s2sim list reducers` shows the
same. Options are those of each system, with their defaults; each also takes those of the
[wrappers](#options-that-any-reducer-takes).
"""


def page(facts: Sequence[ReducerFacts]) -> str:
    """Return the page."""
    grid = facts_grid(facts)
    titles = [*(column.title.replace("-\n", "") for column in grid.columns), "known by"]
    rows = [
        (f"[{name}](#{name})", *cells, item.certainty.removesuffix(" read"))
        for (name, *cells), item in zip(grid.rows, facts, strict=True)
    ]
    legend = f"{LEGEND} known by: what of the published system was read.\n"
    parts = [HEAD, table(titles, rows), legend, "## The systems\n", *map(section, facts)]
    parts += ["## Options that any reducer takes\n", *map(wrapper_section, WRAPPERS)]
    return "\n".join(parts)


def section(facts: ReducerFacts) -> str:
    """Return what there is to say of one reducer."""
    preset = f"{facts.summary[0].upper()}{facts.summary[1:]}."
    lines = [f"### {facts.name}", ""]
    for paragraph in facts.paragraphs if facts.stands_for is None else [preset]:
        lines += [marked(paragraph), ""]
    lines += [f"- *{label}*: {marked(text)}" for label, text in properties_of(facts)]
    lines += map(option_line, facts.options if facts.stands_for is None else [])
    return "\n".join([*lines, ""])


def wrapper_section(wrapper: type) -> str:
    """Return what there is to say of one wrapper."""
    options = [option for option in describe_options(wrapper) if option.name != "inner"]
    lines = [f"### {', '.join(option.name for option in options)}", ""]
    for paragraph in describe_class(wrapper):
        lines += [marked(paragraph), ""]
    return "\n".join([*lines, *map(option_line, options), ""])


def option_line(option: OptionDoc) -> str:
    """Return an option as an item of a list."""
    name, _, rest = option_text(option).partition(" ")
    return f"- `{name}` {marked(rest)}".rstrip()


def marked(text: str) -> str:
    """Return a docstring's text as Markdown."""
    return text.replace("``", "`")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join([*(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines), ""])


if __name__ == "__main__":
    PAGE.write_text(page(all_reducer_facts(example_gradients(RANKS))), encoding="utf-8")
