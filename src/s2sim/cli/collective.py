"""``s2sim collective``: time one collective on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from s2sim.cli import schedule_views as views
from s2sim.cli.options import (
    TOPOLOGY_HELP,
    BufferOption,
    CrossCheckOption,
    FaultOption,
    JsonOption,
    NetworkOption,
    PacketBytesOption,
    PlacementOption,
    SeedOption,
    SetOption,
    TimelineOption,
    examples,
    parse_workers,
)
from s2sim.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.schedules.demand import Kind
    from s2sim.study.collective.run import CollectiveResult

# Known here so that --help need not import what runs them; tests hold the two together.
_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv", "barrier")

EXAMPLES = examples(
    "s2sim collective all_reduce --topology fat-tree --workers 64 --size 100MiB",
    "s2sim collective all_reduce --topology single-switch --workers 1024 --size 100MiB --algorithm ring --json -",
    "s2sim collective all_gather --topology leaf-spine --workers 32 --size 1GiB --placement round-robin",
    "s2sim collective all_to_all --topology fat-tree --workers 32 --size 64MiB --timeline all_to_all.json",
    "s2sim collective reduce_scatter --topology ring --workers 4 --size 4KiB --algorithm ring --show",
    "s2sim collective all_reduce --topology leaf-spine --workers 16 --size 1MiB --cross-check",
    "s2sim collective all_reduce --topology fat-tree --workers 32 --size 8MiB --fault fail-link:link=leaf0.up1,at=1ms "
    "--fault background:load=0.2",
)


def collective_command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"{', '.join(_KINDS)}.")],
    topology: Annotated[str, typer.Option(help=TOPOLOGY_HELP)],
    workers: Annotated[str, typer.Option(metavar="N", help="Number of workers (ranks, GPUs).")],
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size with its unit, for example 100MiB, as nccl-tests counts it: a rank's buffer, for an "
            "all-gather the gathered one. Required but for a barrier.",
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
    algorithm: Annotated[
        str,
        typer.Option(
            help="Option string such as ring or double-binary-tree:chunks=8 "
            "(see [bold]s2sim list collectives[/bold]), or auto for the fastest."
        ),
    ] = "auto",
    placement: PlacementOption = "linear",
    root: Annotated[
        int, typer.Option(min=0, help="Rank that a broadcast comes from or a reduce goes to, from 0 on.")
    ] = 0,
    overrides: SetOption = None,
    seed: SeedOption = 0,
    network: NetworkOption = "fluid",
    packet_bytes: PacketBytesOption = None,
    buffer: BufferOption = None,
    cross_check: CrossCheckOption = False,
    faults: FaultOption = None,
    show: Annotated[bool, typer.Option("--show", help="List the schedule, message by message; for few ranks.")] = False,
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
    json: JsonOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer in one line.")] = False,
) -> None:
    """Time one collective on a cluster, with nothing else on it, and show what it waits for.

    algbw and busbw are those of nccl-tests.
    """
    from s2sim.cli.output import STDOUT, check_picture_target, check_target
    from s2sim.cli.progress import make_progress
    from s2sim.report.tables.text import collective_summary
    from s2sim.units import parse_size_bytes

    asked = kind.replace("-", "_")
    _check_sizes(asked, size, sizes)
    count = parse_workers(workers)
    packet, room = (None if text is None else parse_size_bytes(text) for text in (packet_bytes, buffer))
    for option, target in (("--json", json), ("--goal", goal)):
        check_target(option, target)
    check_target("--timeline", timeline, stdout=False)
    if png is not None:
        check_picture_target(png)
    if STDOUT in (json, goal) and (json == goal or show):
        raise OptionError("standard output takes one thing: give a file for the other, or leave --show out")

    from s2sim.study.collective.both_networks import Packets, check_packets_asked
    from s2sim.study.collective.run import plan_collective, result_of
    from s2sim.study.collective.sizes import read_sizes

    packets = Packets(packet, room)
    check_packets_asked(network, packets, cross_check=cross_check)
    planned = plan_collective(
        cast("Kind", asked),
        topology,
        workers=count,
        size_bytes=parse_size_bytes("0B" if size is None else size) if sizes is None else read_sizes(Path(sizes)),
        algorithm=algorithm,
        placement=placement,
        overrides=tuple(overrides or ()),
        seed=seed,
        root=root,
        faults=tuple(faults or ()),
    )
    listed = views.listing(planned.timed.schedule) if show else []
    progress = make_progress(quiet=quiet)
    try:
        result = result_of(planned, network=network, packets=packets, cross_check=cross_check, progress=progress)
    finally:
        progress.stop()
    if png is not None:
        views.draw(planned, collective_summary(result), png)
    if goal is not None:
        views.write_goal(planned, goal)
    if timeline is not None:
        views.write_timeline(planned, collective_summary(result), timeline)
    _print(result, listed, json, quiet=quiet, silent=goal == STDOUT)


def _check_sizes(kind: str, size: str | None, sizes: str | None) -> None:
    if size is not None and sizes is not None:
        raise OptionError("--size and --sizes cannot be given together: leave one out")
    if size is None and sizes is None and kind != "barrier":
        raise OptionError("--size must be given, for example --size 100MiB")


def _print(result: CollectiveResult, listed: Sequence[str], json: str | None, *, quiet: bool, silent: bool) -> None:
    from s2sim.cli.output import STDOUT, show_grids, show_lines, write_json
    from s2sim.report.tables import text
    from s2sim.report.tables.faults import fault_lines
    from s2sim.report.tables.rows import links_grid

    if json is not None:
        write_json(result.to_json(), json)
    if json == STDOUT or silent:
        return
    if quiet:
        show_lines([text.collective_summary(result), *listed])
        return
    show_lines([result.headline, *text.collective_lines(result), *fault_lines(result.effects)])
    if listed:
        show_lines(["", *listed])
    if result.bottlenecks:
        show_grids([links_grid(result.bottlenecks)])
