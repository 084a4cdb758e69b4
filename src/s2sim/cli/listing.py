"""``s2sim list``: what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from s2sim.cli.list_entries import HARDWARE, KINDS, group_of
from s2sim.cli.options import JsonOption, examples
from s2sim.errors import OptionError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.catalogue.reducer_facts import ReducerFacts
    from s2sim.topology.files.quantity import Quantity

EXAMPLES = examples(
    "s2sim list",
    "s2sim list reducers",
    "s2sim list reducers topka2a",
    "s2sim list topologies --json -",
    "s2sim list hardware",
    "s2sim list gpus h100",
    "s2sim list libraries mpi",
)

# Kinds that are asked for together.
_GROUPS = {"hardware": HARDWARE}
_REDUCERS, _LIBRARIES = "reducers", "libraries"
# Ranks on whose gradients reducers are measured, and on half of them.
_RANKS = 8


def list_command(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(KINDS)}, or hardware for the last {len(HARDWARE)}.",
            show_default="all of them",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A reducer, a library or a part of hardware, for all that is known of it.",
            show_default="all",
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """List what there is to choose from, reducers to hardware: a line each.

    At the end of each line stands its source, or for a fault an example. Reducers alone have a table as well.
    """
    from s2sim.cli.output import STDOUT, write_json
    from s2sim.cli.targets import check_targets

    if kind is not None and kind not in (*KINDS, *_GROUPS):
        raise unknown_name("kind", kind, [*KINDS, *_GROUPS])
    if name is not None and kind not in (_REDUCERS, _LIBRARIES, *HARDWARE):
        pages = f"{_REDUCERS}, {_LIBRARIES}, {', '.join(HARDWARE)}"
        raise OptionError(f"{kind} {name}: {pages} alone have pages; s2sim list {kind} has what is known of all")
    check_targets(json=json)
    if kind == _LIBRARIES and name is not None:
        _list_library(name, json)
        return
    if kind == _REDUCERS:
        _list_reducers(name, json)
        return
    if kind is not None and name is not None:
        _list_part(kind, name, json)
        return
    found = {each: KINDS[each]() for each in _GROUPS.get(kind or "", [kind] if kind else KINDS)}
    if json is not None:
        keys = ("name", "summary", "source")
        write_json(
            {each: [dict(zip(keys, item, strict=True)) for item in items] for each, items in found.items()}, json
        )
    if json != STDOUT:
        _show_lines(found)


def _list_reducers(name: str | None, json: str | None) -> None:
    from s2sim.cli.output import STDOUT, write_json

    facts = _facts(name)
    if json is not None:
        write_json({_REDUCERS: [item.to_json() for item in facts]}, json)
    if json != STDOUT:
        _show_table(facts) if name is None else _show_page(*facts)


def _list_part(kind: str, name: str, json: str | None) -> None:
    """Show all that the hardware catalogue has of one part."""
    from s2sim.topology.files.parts import find_part, summary_of

    part = find_part(kind, name)
    _list_quantities(kind, (name, summary_of(part), part.source), list(part.quantities.items()), json)


def _list_library(name: str, json: str | None) -> None:
    """Show all that a library adds to the wire."""
    from s2sim.collectives.libraries.tables import LIBRARIES, constants_of

    quantities = constants_of(name)
    known = name, LIBRARIES[name].summary, LIBRARIES[name].source
    _list_quantities(_LIBRARIES, known, [(item.field, item) for item in quantities], json)


def _list_quantities(
    kind: str, known: tuple[str, str, str], quantities: Sequence[tuple[str, Quantity]], json: str | None
) -> None:
    """Show values with their origin; ``known`` is the name of what they belong to, what it is, and its source."""
    from s2sim.cli.output import STDOUT, show_lines, show_paragraph, write_json
    from s2sim.report.tables.text import aligned
    from s2sim.topology.files.parts import value_text

    name, summary, source = known
    values = [(field, item.value, item.kind, item.source) for field, item in quantities]
    if json is not None:
        keys = ("field", "value", "kind", "source")
        items = [dict(zip(keys, item, strict=True)) for item in values]
        write_json({kind: [{"name": name, "summary": summary, "source": source, "quantities": items}]}, json)
    if json != STDOUT:
        show_paragraph(f"{name}: {summary}")
        rows = [(field, value_text(value), what, origin) for field, value, what, origin in values]
        show_lines(["", "Field, value, kind, source:", *aligned(rows, indent="  ")])


def _show_lines(found: dict[str, list[tuple[str, str, str]]]) -> None:
    from s2sim.cli.output import show_lines
    from s2sim.report.tables.text import aligned

    for number, (kind, items) in enumerate(found.items()):
        show_lines([*([""] if number else []), f"{kind}:", *([] if items else ["  none"])])
        groups: dict[str | None, list[tuple[str, str, str]]] = {}
        for name, what, source in items:
            groups.setdefault(group_of(kind, name), []).append((name, what, f"[{source}]"))
        for group, lines in groups.items():
            show_lines([*([f"  {group}:"] if group else []), *aligned(lines, indent="    " if group else "  ")])


def _facts(name: str | None) -> tuple[ReducerFacts, ...]:
    from s2sim.study.catalogue.reducer_facts import every_reducer, facts_of
    from s2sim.testing.reducers import example_gradients

    gradients = example_gradients(_RANKS)
    return every_reducer(gradients) if name is None else (facts_of(name, gradients),)


def _show_table(facts: Sequence[ReducerFacts]) -> None:
    from s2sim.cli.output import show_entry, show_grids, show_lines, show_paragraph
    from s2sim.report.tables.reducers import LEGEND, reducers_grid, what_it_is

    show_grids([reducers_grid(facts)])
    show_lines([""])
    show_paragraph(LEGEND)
    show_lines([""])
    labels = max(len(item.name) for item in facts)
    for item in facts:
        show_entry(item.name, f"{what_it_is(item)}  [{item.source}; {item.certainty}]", labels=labels)
    show_lines([""])
    show_paragraph("More: s2sim list reducers NAME has the algorithm and all options of one.")


def _show_page(facts: ReducerFacts) -> None:
    from s2sim.cli.output import show_entry, show_lines, show_paragraph
    from s2sim.report.tables.reducers import option_text, properties_of

    show_paragraph(f"{facts.name}: {facts.summary}")
    for paragraph in facts.paragraphs:
        show_lines([""])
        show_paragraph(paragraph.replace("``", ""))
    show_lines([""])
    properties = properties_of(facts)
    labels = max(len(label) for label, _ in properties)
    for label, text in properties:
        show_entry(label, text, labels=labels)
    show_lines(["", "options:" if facts.options else "no options"])
    for option in facts.options:
        show_entry("", option_text(option).replace("``", ""))
