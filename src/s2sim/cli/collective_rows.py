"""``s2sim collective`` over many sizes: in the form of nccl-tests, or beside what a log of it measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from s2sim.cli.options import parse_size
from s2sim.cli.output import show_lines
from s2sim.cli.progress import watching
from s2sim.errors import OptionError

if TYPE_CHECKING:
    from s2sim.study.collective.spec import CollectiveSpec

NCCL_TESTS = "nccl-tests"

FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="nccl-tests: print the table that nccl-tests prints, for --size or for sizes --from ... --to.",
        show_default="what the time is made of",
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="SIZE", help="First size of a table, with its unit, for example 8B.", show_default=False
    ),
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="SIZE", help="Last size of a table, for example 1GiB.", show_default=False)
]
FactorOption = Annotated[
    int | None, typer.Option(metavar="N", help="Ratio of one size of a table to the next.", show_default="2")
]


class Sizes(NamedTuple):
    """Which sizes a table has."""

    bytes: list[int]
    factor: int


def table_sizes(form: str | None, size: str | None, first: str | None, last: str | None, factor: int | None) -> Sizes:
    """Return the sizes of a table in the form ``form``; none where none is asked for.

    `OptionError` for options that do not go together.
    """
    given = [name for name, value in (("--from", first), ("--to", last), ("--factor", factor)) if value is not None]
    if form is None:
        if given:
            raise OptionError(f"{given[0]} is for a table: give --format {NCCL_TESTS} too")
        return Sizes([], 0)
    if form != NCCL_TESTS:
        raise OptionError(f"--format {form} is not known: write --format {NCCL_TESTS}")
    from s2sim.study.collective.many_sizes import sizes_between

    ratio = 2 if factor is None else factor
    one, low, high = (
        parse_size(option, text) for option, text in (("--size", size), ("--from", first), ("--to", last))
    )
    if one is not None and given:
        raise OptionError(f"--size and {given[0]} cannot be given together: leave one out")
    if one is not None:
        return Sizes([one], ratio)
    if low is None or high is None:
        raise OptionError(f"--format {NCCL_TESTS} needs sizes: give --from 8B --to 1GiB, or --size 1MiB")
    return Sizes(sizes_between(low, high, ratio), ratio)


def refuse_views_of_one(option: str, **given: object) -> None:
    """Refuse what shows one collective where ``option`` asks for many; names are those of options."""
    for name, value in given.items():
        if value:
            raise OptionError(
                f"{option} is of many collectives, and --{name.replace('_', '-')} of one: leave either out"
            )


def show_table(spec: CollectiveSpec, sizes: Sizes, *, quiet: bool) -> None:
    """Print what nccl-tests would."""
    from s2sim.study.collective.many_sizes import simulated_table

    with watching(quiet=quiet) as progress:
        lines = simulated_table(spec, sizes.bytes, sizes.factor, progress)
    show_lines(lines)
