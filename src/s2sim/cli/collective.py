"""``s2sim collective``: time one collective on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from s2sim.cli.collective_rows import (
    AgainstOption,
    FactorOption,
    FormatOption,
    FromOption,
    ToOption,
    refuse_views_of_one,
    show_against,
    show_table,
    table_sizes,
    tables_of_log,
)
from s2sim.cli.options import (
    BufferOption,
    CrossCheckOption,
    FaultOption,
    JsonOption,
    NetworkOption,
    PacketBytesOption,
    PlacementOption,
    QuietOption,
    SeedOption,
    SetOption,
    SpecTopologyOption,
    SpecWorkersOption,
    TimelineOption,
    examples,
    parse_size,
    parse_workers,
)
from s2sim.cli.spec_option import SpecOption, spec_of
from s2sim.errors import OptionError

# Known here so that --help need not import what runs them; tests hold the two together.
_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv", "barrier")

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


def collective_command(
    context: typer.Context,
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help=f"{', '.join(_KINDS)}. Required without --spec.", show_default=False),
    ] = None,
    topology: SpecTopologyOption = None,
    workers: SpecWorkersOption = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size with its unit, for example 100MiB, as nccl-tests counts it: a rank's buffer, for an "
            "all-gather the gathered one. Required but for a barrier and a row of sizes.",
            show_default=False,
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Instead of --size: a size for each rank, one a line, where contributions are unequal.",
            show_default="equal ones",
        ),
    ] = None,
    first: FromOption = None,
    last: ToOption = None,
    factor: FactorOption = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="Option string such as ring or double-binary-tree:chunks=8 "
            "(see s2sim list collectives), or auto for the fastest."
        ),
    ] = "auto",
    placement: PlacementOption = "linear",
    root: Annotated[
        int, typer.Option(min=0, help="Rank that a broadcast comes from or a reduce goes to, from 0 on.")
    ] = 0,
    library: Annotated[
        str | None,
        typer.Option(
            metavar="LIBRARY",
            help="Add what a library's launches, hops and protocols take: nccl, or nccl:launch=node where one process "
            "drives all GPUs of a node. Needs a topology that says nic.transport.",
            show_default="the wire alone",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="tp=N,pp=N,dp=rest",
            help="Let every data-parallel group do it at once: tp ranks share a layer, dp replicas hold the same, pp "
            "stages follow each other, and ranks are numbered in that order (or order=tp-pp-dp).",
            show_default="one group of all workers",
        ),
    ] = None,
    execution: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="clocked: all ranks wait for whole rounds; by-message: each for its own messages alone, with the time "
            "of clocked rounds beside it; auto: by message where faults make ranks or messages unequal.",
        ),
    ] = "auto",
    overrides: SetOption = None,
    seed: SeedOption = 0,
    network: NetworkOption = "fluid",
    packet_bytes: PacketBytesOption = None,
    buffer: BufferOption = None,
    cross_check: CrossCheckOption = False,
    faults: FaultOption = None,
    spec: SpecOption = None,
    show: Annotated[bool, typer.Option("--show", help="List the schedule, message by message; for few ranks.")] = False,
    terms: Annotated[
        bool,
        typer.Option(
            "--terms", help="Show what the time is the sum of: launches, hops, bytes of links; also in --json."
        ),
    ] = False,
    png: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.png",
            help="Draw the messages over time (.png, .svg or .pdf); for few ranks.",
            show_default="no picture",
        ),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-",
            help="Write the schedule as GOAL text, which LogGOPSim and ATLAHS run.",
            show_default="no file",
        ),
    ] = None,
    timeline: TimelineOption = None,
    form: FormatOption = None,
    against: AgainstOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Time one collective on a cluster, with nothing else on it, and show what it waits for.

    algbw and busbw are those of nccl-tests.
    """
    from s2sim.cli.collective_output import show_planned
    from s2sim.cli.output import STDOUT
    from s2sim.cli.targets import check_targets

    check_targets(json=json, goal=goal, timeline=timeline, png=png)
    if STDOUT in (json, goal) and show:
        raise OptionError("standard output takes one thing: give a file for the other, or leave --show out")
    if goal == STDOUT and terms and json is None:
        raise OptionError("standard output takes one thing: give a file for --goal, or leave --terms out")
    table = table_sizes(form, size, first, last, factor)
    of_one = {
        "show": show,
        "terms": terms,
        "png": png,
        "goal": goal,
        "timeline": timeline,
        "sizes": sizes,
        "cross_check": cross_check,
    }
    if form is not None:
        refuse_views_of_one("--format", **of_one, json=json)
    if groups is not None:
        of_groups = {"show": show, "png": png, "goal": goal, "timeline": timeline, "format": form, "against": against}
        refuse_views_of_one("--groups", **of_groups)
    if against is not None:
        refuse_views_of_one("--against", **of_one, size=size, format=form)
    log = None if against is None else tables_of_log(against, kind, workers)

    from s2sim.study.collective.plan import plan_collective
    from s2sim.study.collective.spec import CollectiveSpec

    def make() -> CollectiveSpec:
        asked = log.kind if log else (kind or "").replace("-", "_")
        return CollectiveSpec.of(
            topology,
            kind=asked,
            workers=log.workers if log else parse_workers(workers or ""),
            size_bytes=log.largest_bytes
            if log
            else table.bytes[-1]
            if table.bytes
            else _size_bytes(asked, size, sizes),
            algorithm=algorithm,
            placement=placement,
            overrides=overrides or (),
            seed=seed,
            root=root,
            library=library,
            groups=groups,
            execution=execution,
            network=network,
            packet_bytes=parse_size("--packet-bytes", packet_bytes),
            buffer_bytes=parse_size("--buffer", buffer),
            cross_check=cross_check,
            faults=faults or (),
        )

    needed = ("--topology",) if log else ("KIND", "--topology", "--workers")
    asked = spec_of(context, CollectiveSpec, spec, needed, _EXAMPLE, make)
    if log:
        show_against(asked, log, json, quiet=quiet)
    elif table.bytes:
        show_table(asked, table, quiet=quiet)
    else:
        planned = plan_collective(asked)
        show_planned(planned, show=show, terms=terms, png=png, goal=goal, timeline=timeline, json=json, quiet=quiet)


def _size_bytes(kind: str, size: str | None, sizes: str | None) -> int | list[int]:
    """Return the size of all ranks, or a size for each."""
    from s2sim.study.collective.sizes import read_sizes

    if size is not None and sizes is not None:
        raise OptionError("--size and --sizes cannot be given together: leave one out")
    if sizes is not None:
        return read_sizes(Path(sizes))
    if size is None and kind != "barrier":
        raise OptionError("--size must be given, for example --size 100MiB")
    return parse_size("--size", size) or 0
