"""``s2sim collective`` over many sizes: in the form of nccl-tests, or beside what a log of it measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from s2sim.cli.options import parse_size, parse_workers
from s2sim.cli.output import STDOUT, show_grids, show_lines, write_json
from s2sim.cli.progress import watching
from s2sim.errors import OptionError

if TYPE_CHECKING:
    from s2sim.study.collective.against import ChosenTables
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

AgainstOption = Annotated[
    str | None,
    typer.Option(
        metavar="LOG",
        help="Simulate the sizes of a log of nccl-tests or rccl-tests as NCCL_DEBUG=INFO says that they ran, and tell "
        "the difference term by term. KIND and --workers may be left out where the log says them.",
        show_default="no log",
    ),
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


def tables_of_log(path: str, kind: str | None, workers: str | None) -> ChosenTables:
    """Return the tables of a log that are to be compared, of what is asked for or what the log says."""
    from s2sim.study.collective.against import choose_tables
    from s2sim.study.measured_logs.nccl_tests import read_nccl_tests

    ranks = None if workers is None else parse_workers(workers)
    return choose_tables(read_nccl_tests(Path(path)), path, kind and kind.replace("-", "_"), ranks)


def show_against(spec: CollectiveSpec, chosen: ChosenTables, json: str | None, *, quiet: bool) -> None:
    """Print or write simulated times beside those of a log."""
    from s2sim.report.tables.screens import against_screen
    from s2sim.study.collective.against import compare

    with watching(quiet=quiet) as progress:
        result = compare(spec, chosen, progress)
    if json is not None:
        write_json(result.to_json(), json)
    if json == STDOUT:
        return
    screen = against_screen(result)
    show_lines(screen.before)
    if not quiet:
        show_grids(screen.grids)
        show_lines(screen.after)
