"""``s2sim schema``: the JSON schema of what ``--json`` writes."""

from __future__ import annotations

from typing import Annotated

import typer

from s2sim.cli.options import examples

EXAMPLES = examples("s2sim schema", "s2sim schema collective", "s2sim schema regimes")


def schema_command(
    result: Annotated[
        str,
        typer.Argument(
            metavar="RESULT",
            help="What wrote it: run (codec compare too), collective, against (collective --against), flows, "
            "validate, paper, or regimes of codec regimes.",
        ),
    ] = "run",
) -> None:
    """Print the JSON schema (draft 2020-12) of a result's JSON.

    Results say which version they are of, as schema_version. Keys are added under the same version; another one tells
    that a key went or means something else.
    """
    from s2sim.cli.output import STDOUT, write_json
    from s2sim.study.schema.results import schema_of

    write_json(schema_of(result), STDOUT)
