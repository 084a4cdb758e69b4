"""``s2sim collective``: time one collective on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from s2sim.cli.options import (
    Experiment,
    JsonOption,
    QuietOption,
    TimelineOption,
    check_targets,
    examples,
    option,
    options_from,
    takes_tables,
)
from s2sim.cli.output import STDOUT
from s2sim.errors import OptionError
from s2sim.experiment.cluster_spec import parse_workers, size_parser
from s2sim.traffic.spec import CollectiveSpec

NCCL_TESTS = "nccl-tests"
_EXAMPLE = "s2sim collective all_reduce --topology fat-tree --workers 64 --size 100MiB"
EXAMPLES = examples(
    _EXAMPLE,
    "s2sim collective all_reduce --topology single-switch --workers 1024 --size 100MiB --algorithm ring --json -",
    "s2sim collective all_reduce --topology dgx-h100 --workers 16 --size 1MiB --library nccl",
    "s2sim collective all_reduce --topology dgx-h100 --workers 16 --size 64MiB --library nccl --terms",
    "s2sim collective all_reduce --topology dgx-h100 --workers 64 --size 1GiB --groups tp=4,pp=2,dp=rest",
    "s2sim collective all_gather --topology leaf-spine --workers 32 --size 1GiB --placement round-robin",
    "s2sim collective all_to_all --topology fat-tree --workers 32 --size 64MiB --timeline all_to_all.json",
    "s2sim collective reduce_scatter --topology ring --workers 4 --size 4KiB --algorithm ring --show",
    "s2sim collective all_reduce --topology leaf-spine --workers 16 --size 1MiB --cross-check",
    "s2sim collective all_reduce --topology fat-tree --workers 32 --size 8MiB --fault fail-link:link=leaf0.up1,at=1ms "
    "--fault background:load=0.2",
    "s2sim collective all_reduce --topology dgx-h100 --workers 16 --library nccl --format nccl-tests "
    "--from 8B --to 1GiB",
    "s2sim collective --topology dgx-h100 --library nccl --against measured.log",
)


@takes_tables(hidden=("parquet", "latex"))
@options_from(CollectiveSpec, needed=("kind", "topology", "workers"))
def collective_command(
    experiment: Experiment[CollectiveSpec],
    size: Annotated[
        str | None,
        option(
            "SIZE",
            "Size with its unit, for example 100MiB, as nccl-tests counts it: a rank's buffer, for an "
            "all-gather the gathered one. Required but for a barrier and a row of sizes.",
            False,
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        option(
            "FILE",
            "Instead of --size: a size for each rank, one a line, where contributions are unequal.",
            "equal ones",
        ),
    ] = None,
    first: Annotated[
        str | None, option("SIZE", "First size of a table, with its unit, for example 8B.", False, flag="--from")
    ] = None,
    last: Annotated[str | None, option("SIZE", "Last size of a table, for example 1GiB.", False, flag="--to")] = None,
    factor: Annotated[int | None, option("N", "Ratio of one size of a table to the next.", "2")] = None,
    show: Annotated[bool, typer.Option("--show", help="List the schedule, message by message; for few ranks.")] = False,
    terms: Annotated[
        bool,
        typer.Option(
            "--terms", help="Show what the time is the sum of: launches, hops, bytes of links; also in --json."
        ),
    ] = False,
    png: Annotated[
        str | None, option("FILE.png", "Draw the messages over time (.png, .svg or .pdf); for few ranks.", "no picture")
    ] = None,
    goal: Annotated[
        str | None, option("FILE|-", "Write the schedule as GOAL text, which LogGOPSim and ATLAHS run.", "no file")
    ] = None,
    timeline: TimelineOption = None,
    form: Annotated[
        str | None,
        option(
            "NAME",
            "nccl-tests: print the table that nccl-tests prints, for --size or for sizes --from ... --to.",
            "what the time is made of",
            flag="--format",
        ),
    ] = None,
    against: Annotated[
        str | None,
        option(
            "LOG",
            "Simulate the sizes of a log of nccl-tests or rccl-tests as NCCL_DEBUG=INFO says that they ran, and "
            "tell the difference term by term. KIND and --workers may be left out where the log says them.",
            "no log",
        ),
    ] = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Time one collective on a cluster, with nothing else on it, and show what it waits for.

    algbw and busbw are those of nccl-tests.
    """
    check_targets(json=json, goal=goal, timeline=timeline, png=png)
    if STDOUT in (json, goal) and show:
        raise OptionError("standard output takes one thing: give a file for the other, or leave --show out")
    if goal == STDOUT and terms and json is None:
        raise OptionError("standard output takes one thing: give a file for --goal, or leave --terms out")
    table = _table_sizes(form, size, first, last, factor)
    values = experiment.values
    of_one = {"show": show, "terms": terms, "png": png, "goal": goal, "timeline": timeline, "sizes": sizes}
    of_one["cross_check"] = values["cross_check"]
    if form is not None:
        _refuse_views_of_one("--format", **of_one, json=json)
    if values["groups"] is not None:
        of_groups = {"show": show, "png": png, "goal": goal, "timeline": timeline, "format": form, "against": against}
        _refuse_views_of_one("--groups", **of_groups)
    if against is not None:
        _refuse_views_of_one("--against", **of_one, size=size, format=form)

    from s2sim.cli import collective_output as output

    log = None if against is None else output.tables_of_log(against, values["kind"], values["workers"])
    if log is not None:

        def of_log() -> dict[str, Any]:
            return {"kind": log.kind, "workers": log.workers, "size_bytes": log.largest_bytes}

        output.show_against(experiment.saved_or(_EXAMPLE, of_log, ("--topology",)), log, json, quiet=quiet)
        return

    def of_options() -> dict[str, Any]:
        # Errors of these are reported before those of sizes.
        kind, workers = values["kind"].replace("-", "_"), parse_workers(values["workers"])
        return {
            "kind": kind,
            "workers": workers,
            "size_bytes": table.bytes[-1] if table.bytes else _size_bytes(kind, size, sizes),
        }

    spec = experiment.saved_or(_EXAMPLE, of_options)
    if table.bytes:
        output.show_table(spec, table.bytes, table.factor, quiet=quiet)
    else:
        output.show_collective(
            spec, show=show, terms=terms, png=png, goal=goal, timeline=timeline, json=json, quiet=quiet
        )


def _size_bytes(kind: str, size: str | None, sizes: str | None) -> int | tuple[int, ...]:
    from s2sim.collectives.schedules.demand import read_sizes

    if size is not None and sizes is not None:
        raise OptionError("--size and --sizes cannot be given together: leave one out")
    if sizes is not None:
        return tuple(read_sizes(Path(sizes)))
    if size is None and kind != "barrier":
        raise OptionError("--size must be given, for example --size 100MiB")
    return 0 if size is None else size_parser("--size")(size)


class _Sizes(NamedTuple):
    """The sizes of a table, if one is requested."""

    bytes: list[int]
    factor: int


def _table_sizes(form: str | None, size: str | None, first: str | None, last: str | None, factor: int | None) -> _Sizes:
    given = [name for name, value in (("--from", first), ("--to", last), ("--factor", factor)) if value is not None]
    if form is None:
        if given:
            raise OptionError(f"{given[0]} is for a table: give --format {NCCL_TESTS} too")
        return _Sizes([], 0)
    if form != NCCL_TESTS:
        raise OptionError(f"--format {form} is not known: write --format {NCCL_TESTS}")
    from s2sim.traffic.size_sweep import sweep_sizes

    ratio = 2 if factor is None else factor
    one, low, high = (
        None if text is None else size_parser(option)(text)
        for option, text in (("--size", size), ("--from", first), ("--to", last))
    )
    if one is not None and given:
        raise OptionError(f"--size and {given[0]} cannot be given together: leave one out")
    if one is not None:
        return _Sizes([one], ratio)
    if low is None or high is None:
        raise OptionError(f"--format {NCCL_TESTS} needs sizes: give --from 8B --to 1GiB, or --size 1MiB")
    return _Sizes(sweep_sizes(low, high, ratio), ratio)


def _refuse_views_of_one(option: str, **given: object) -> None:
    """Raise `OptionError` for options that show one collective, if ``option`` requests many."""
    for name, value in given.items():
        if value:
            raise OptionError(
                f"{option} is of many collectives, and --{name.replace('_', '-')} of one: leave either out"
            )
