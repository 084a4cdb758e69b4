"""``s2sim collective``: time one collective on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from s2sim.cli.options import TOPOLOGY_HELP, JsonOption, SetOption, examples, parse_workers

if TYPE_CHECKING:
    from s2sim.collectives.schedule import Kind

EXAMPLES = examples(
    "s2sim collective all_reduce --topology fat-tree --workers 64 --size 100MiB",
    "s2sim collective all_reduce --topology single-switch --workers 1024 --size 100MiB --algorithm ring --json -",
    "s2sim collective all_gather --topology leaf-spine --workers 32 --size 1GiB --placement round-robin",
)


def collective_command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="all_reduce or all_gather.")],
    topology: Annotated[str, typer.Option(help=TOPOLOGY_HELP)],
    workers: Annotated[str, typer.Option(metavar="N", help="Number of workers (ranks, GPUs).")],
    size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Size with its unit, for example 100MiB, as nccl-tests counts it: a rank's buffer, for an "
            "all-gather the gathered one.",
        ),
    ],
    algorithm: Annotated[
        str,
        typer.Option(
            help="Option string such as ring or double-binary-tree:chunks=8 "
            "(see [bold]s2sim list collectives[/bold]), or auto for the fastest."
        ),
    ] = "auto",
    placement: Annotated[str, typer.Option(help="Ranks to GPUs: linear or round-robin.")] = "linear",
    overrides: SetOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of ECMP's hash, a whole number.")] = 0,
    json: JsonOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer in one line.")] = False,
) -> None:
    """Time one collective on a cluster, with nothing else on it, and show what it waits for.

    algbw and busbw are those of nccl-tests.
    """
    from s2sim.cli.output import STDOUT, check_target, show_grids, show_lines, write_json
    from s2sim.units import parse_size_bytes

    count, size_bytes = parse_workers(workers), parse_size_bytes(size)
    check_target("--json", json)

    from s2sim.study.collective import run_collective

    result = run_collective(
        cast("Kind", kind.replace("-", "_")),
        topology,
        workers=count,
        size_bytes=size_bytes,
        algorithm=algorithm,
        placement=placement,
        overrides=tuple(overrides or ()),
        seed=seed,
    )
    if json is not None:
        write_json(result.to_json(), json)
    if json == STDOUT:
        return

    from s2sim.report import text
    from s2sim.report.rows import links_grid

    if quiet:
        show_lines([text.collective_summary(result)])
        return
    show_lines([result.headline, *text.collective_lines(result)])
    if result.bottlenecks:
        show_grids([links_grid(result.bottlenecks)])
