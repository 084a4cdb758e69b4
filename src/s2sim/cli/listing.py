"""``s2sim list``: what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from s2sim.cli.list_entries import KINDS
from s2sim.cli.options import JsonOption, examples
from s2sim.errors import unknown_name

if TYPE_CHECKING:
    Entries = list[tuple[str, str, str]]

EXAMPLES = examples("s2sim list", "s2sim list reducers", "s2sim list topologies --json -")


# Scripts may still ask by this name.
_FORMER = {"hardware": "gpus"}


def list_command(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.", show_default="all of them"),
    ] = None,
    json: JsonOption = None,
) -> None:
    """List reducers, codecs, collectives, libraries, faults, topologies, traces, models and GPUs: a line each.

    At the end of each line stands its source, or for a fault an example.
    """
    from s2sim.cli.output import STDOUT, show_lines, write_json
    from s2sim.cli.targets import check_targets
    from s2sim.report.tables.text import aligned

    kind = _FORMER.get(kind or "", kind)
    if kind is not None and kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    check_targets(json=json)
    found = {name: KINDS[name]() for name in ([kind] if kind else KINDS)}
    if json is not None:
        keys = ("name", "summary", "source")
        write_json(
            {name: [dict(zip(keys, item, strict=True)) for item in items] for name, items in found.items()}, json
        )
    if json == STDOUT:
        return
    for number, (name, items) in enumerate(found.items()):
        lines = aligned([(item, what, f"[{source}]") for item, what, source in items], indent="  ")
        show_lines([*([""] if number else []), f"{name}:", *(lines or ["  none"])])
