"""Makes docs/reducers.md and docs/reducers/ of the classes' docstrings and of one run of each reducer.

``python docs/make_reducers.py``
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.experiment.reducer_facts import all_reducer_facts, describe_class, describe_options
from s2sim.reducers.registry import FAMILIES, OF_PRESETS, WRAPPERS
from s2sim.report.study_tables import LEGEND, facts_grid, option_text, properties_of
from s2sim.testing.reducer_properties import example_gradients

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.experiment.reducer_facts import OptionDoc, ReducerFacts

DOCS = Path(__file__).parent
RANKS = 8
HEAD = """# Every reducer

Made by `python docs/make_reducers.py` of the classes' docstrings and of one run of each; `s2sim list reducers --table`
shows the same. The page of a reducer has its algorithm, source and options with their defaults; each also takes those
of the [wrappers](reducers/wrappers.md).
"""
PRESETS, WRAPPER_PAGE = "presets", "wrappers"
TITLES = {
    **{group: title for group, (title, _) in FAMILIES.items()},
    PRESETS: OF_PRESETS,
    WRAPPER_PAGE: "Options that any reducer takes",
}


def group_of(facts: ReducerFacts) -> str:
    """Return the page of a reducer; a new system needs its group in ``FAMILIES``."""
    if facts.stands_for is not None:
        return PRESETS
    return next(group for group, (_, names) in FAMILIES.items() if facts.name in names.split())


def pages(facts: Sequence[ReducerFacts]) -> dict[str, str]:
    """Return the text of the index and of each group by its path in docs/."""
    grid = facts_grid(facts)
    titles = [*(column.title.replace("-\n", "") for column in grid.columns), "known by"]
    rows = [
        (f"[{name}](reducers/{group_of(item)}.md#{name})", *cells, item.certainty.removesuffix(" read"))
        for (name, *cells), item in zip(grid.rows, facts, strict=True)
    ]
    links = "".join(f"- [{title}](reducers/{group}.md)\n" for group, title in TITLES.items())
    legend = f"{LEGEND} known by: what of the published system was read.\n"
    texts = {group: [section(item) for item in facts if group_of(item) == group] for group in [*FAMILIES, PRESETS]}
    texts[WRAPPER_PAGE] = [wrapper_section(wrapper) for wrapper in WRAPPERS]
    made = {f"reducers/{group}.md": "\n".join([f"# {TITLES[group]}\n", *texts[group]]) for group in TITLES}
    return {"reducers.md": "\n".join([HEAD, links, table(titles, rows), legend]), **made}


def section(facts: ReducerFacts) -> str:
    """Return the section of a reducer."""
    preset = f"{facts.summary[0].upper()}{facts.summary[1:]}."
    lines = [f"## {facts.name}", ""]
    for paragraph in facts.paragraphs if facts.stands_for is None else [preset]:
        lines += [marked(paragraph), ""]
    lines += [f"- *{label}*: {marked(text)}" for label, text in properties_of(facts)]
    lines += map(option_line, facts.options if facts.stands_for is None else [])
    return "\n".join([*lines, ""])


def wrapper_section(wrapper: type) -> str:
    """Return the section of a wrapper."""
    options = [option for option in describe_options(wrapper) if option.name != "inner"]
    lines = [f"## {', '.join(option.name for option in options)}", ""]
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


def main() -> None:
    """Write all pages."""
    (DOCS / "reducers").mkdir(exist_ok=True)
    for path, text in pages(all_reducer_facts(example_gradients(RANKS))).items():
        (DOCS / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
