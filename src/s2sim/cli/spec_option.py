"""``--spec``: a saved experiment instead of options, and which options somebody gave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from s2sim.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.study.cluster_spec import ClusterSpec

    S = TypeVar("S", bound=ClusterSpec)

SpecOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Run a saved spec, or the spec of a saved result, again.", show_default="no file"
    ),
]

# What is shown and written is no part of an experiment.
_OUTPUT = (
    "--spec",
    "--json",
    "--png",
    "--plot",
    "--timeline",
    "--timeline-rank",
    "--goal",
    "--out",
    "--show",
    "--per-layer",
    "--quiet",
)


def given_options(context: typer.Context) -> list[str]:
    """Return the options of the experiment that stand on the command line, as --option or ARGUMENT."""
    found = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            found.append(option if option.startswith("-") else str(getattr(parameter, "metavar", option)))
    return [name for name in found if name not in _OUTPUT]


def spec_of(
    context: typer.Context, cls: type[S], path: str | None, needed: Sequence[str], example: str, make: Callable[[], S]
) -> S:
    """Return the spec that the file at ``path`` holds, or that ``make`` makes of the options.

    ``needed`` names what cannot be left out, and ``example`` is a command line with it.
    """
    given = given_options(context)
    if path is not None:
        if given:
            raise OptionError(
                f"--spec {path} holds the whole experiment, so {', '.join(given)} cannot be given with it: "
                "leave them out or edit the file"
            )
        if not path:
            raise OptionError("--spec names no file: write --spec FILE")
        return cls.load(Path(path))
    missing = [name for name in needed if name not in given]
    if missing:
        raise OptionError(f"{' and '.join(missing)} must be given, for example {example}")
    return make()
