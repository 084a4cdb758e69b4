"""``s2sim flows``: replay any traffic on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

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
    examples,
    parse_size,
    parse_workers,
)
from s2sim.cli.spec_option import SpecOption, spec_of

_EXAMPLE = "s2sim flows transfers.csv --topology fat-tree"
EXAMPLES = examples(
    _EXAMPLE,
    "s2sim flows transfers.csv --topology leaf-spine --workers 32 --placement round-robin --json -",
    "s2sim flows transfers.csv --topology fat-tree --network packet --packet-bytes 16KiB --cross-check",
    "s2sim flows transfers.csv --topology single-switch --set nic.rate=25Gbps --out finished.csv",
    "s2sim flows transfers.csv --topology fat-tree --fault slow-link:link=node0.nic0.out,factor=0.5",
)


def flows_command(
    context: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE.csv",
            help="Transfers, one a line under the header start_s,src,dst,bytes: seconds, ranks, and bytes. Required "
            "without --spec.",
            show_default=False,
        ),
    ] = None,
    topology: SpecTopologyOption = None,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N", help="Number of workers (ranks, GPUs).", show_default="as many as the file names"),
    ] = None,
    placement: PlacementOption = "linear",
    overrides: SetOption = None,
    seed: SeedOption = 0,
    network: NetworkOption = "fluid",
    packet_bytes: PacketBytesOption = None,
    buffer: BufferOption = None,
    cross_check: CrossCheckOption = False,
    faults: FaultOption = None,
    spec: SpecOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write the transfers again with finish_s and slowdown beside them.",
            show_default="no file",
        ),
    ] = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Replay transfers on a cluster, and say when each arrives and what it waited for.

    The latency of a transfer's path passes first, then its bytes share links with all others, max-min fairly. With
    --network packet they go as packets instead, which wait for each other at every link.
    """
    from s2sim.cli.output import STDOUT, show_grids, show_lines, write_json, write_text
    from s2sim.cli.progress import watching
    from s2sim.cli.targets import check_targets

    check_targets(json=json, out=out)

    from s2sim.study.flows.run import flows_result
    from s2sim.study.flows.transfers import FlowsSpec

    def make() -> FlowsSpec:
        return FlowsSpec.of(
            topology,
            file=file,
            workers=None if workers is None else parse_workers(workers),
            placement=placement,
            overrides=overrides or (),
            seed=seed,
            network=network,
            packet_bytes=parse_size("--packet-bytes", packet_bytes),
            buffer_bytes=parse_size("--buffer", buffer),
            cross_check=cross_check,
            faults=faults or (),
        )

    asked = spec_of(context, FlowsSpec, spec, ("FILE.csv", "--topology"), _EXAMPLE, make)
    with watching(quiet=quiet) as progress:
        result = flows_result(asked, progress=progress)
    if out is not None:
        write_text(result.to_csv(), out)
    if json is not None:
        write_json(result.to_json(), json)
    if json == STDOUT:
        return

    from s2sim.report.tables.flows import flows_lines
    from s2sim.report.tables.screens import flows_screen

    if quiet:
        show_lines(flows_lines(result)[-1:])
        return
    screen = flows_screen(result)
    show_lines(screen.before)
    show_grids(screen.grids)
