"""``s2sim testbed run``: measure on a testbed what collective and run predict."""

from __future__ import annotations

import shlex
import signal
import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2sim.cli.options import JsonOption, QuietOption, examples, parse_worker_list

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = "s2sim testbed run --workers 2,4 --rate 200Mbps,1Gbps --sizes 1KiB-4MiB --out mine"
EXAMPLES = examples(
    "s2sim testbed run NAME --out mine",
    EXAMPLE,
    "s2sim testbed run --nodes 2x4 --rate 1Gbps --uplink 500Mbps --collective all_reduce --out mine",
    "s2sim testbed run --workers 4 --rate 100Mbps,1Gbps --what reducers --reducer dense --reducer union --out mine",
    "s2sim testbed run --workers 2 --rate 200Mbps --what iterations --compute 50ms --out mine --json -",
)


def run_command(
    out: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="Where rows are added; what it has already is not measured again."),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A testbed that is up (see s2sim testbed list).", show_default="made and removed"
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N,...", help="Make a testbed for each number of workers.", show_default="none is made"),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE,...",
            help="Of every worker's interface, each way; one testbed for each.",
            show_default="as fast as the machine",
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="NxM", help="Instead of --workers: N nodes of M workers.", show_default="one switch"),
    ] = None,
    uplink: Annotated[
        str | None,
        typer.Option(
            metavar="RATE,...",
            help="Of every node's uplink, each way; one testbed for each.",
            show_default="that of --rate",
        ),
    ] = None,
    what: Annotated[
        str, typer.Option(metavar="KIND,...", help="collectives, reducers and iterations, or some of them.")
    ] = "collectives,reducers",
    collective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="all_reduce, all_gather, reduce_scatter, all_to_all or broadcast; repeatable.",
            show_default="all_reduce, all_gather and all_to_all",
        ),
    ] = None,
    sizes: Annotated[
        str,
        typer.Option(
            metavar="SIZE-SIZE|SIZE,...",
            help="Buffers of collectives, as nccl-tests count them: from one to another in steps of four, or a list.",
        ),
    ] = "1KiB-4MiB",
    reducer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="For reducers and iterations, repeatable (see s2sim list reducers).",
            show_default="dense and seven others",
        ),
    ] = None,
    trace: Annotated[str, typer.Option(metavar="NAME|DIR", help="What they reduce (see s2sim list traces).")] = "ncf",
    compute: Annotated[
        str, typer.Option(metavar="TIME", help="For iterations: how long every worker computes first.")
    ] = "50ms",
    repeats: Annotated[int, typer.Option(min=3, metavar="N", help="Most repetitions of a row, after two.")] = 30,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Repetitions of a row end after so long, once there are three.")
    ] = "2s",
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of what reducers draw.")] = 0,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Measure collectives, reducers and iterations between real processes on a network of set rates.

    All ranks begin at one instant, and a time ends when the last is done. Rows stay when it is interrupted; called
    again, it goes on with what is missing. Needs root, iproute2 and the extra torch.
    """
    from s2sim.cli.output import STDOUT, show_grids, show_lines, write_json
    from s2sim.cli.progress import watching
    from s2sim.cli.targets import check_targets
    from s2sim.report.tables.testbed import measured_grids, measured_lines
    from s2sim.testbed.measured_folder import read_measured
    from s2sim.testbed.measuring.layouts import layouts_of
    from s2sim.testbed.measuring.series import measure_series
    from s2sim.testbed.measuring.wanted import plan_of
    from s2sim.words import number_of

    check_targets(json=json)
    kinds, plan = plan_of(
        what=what,
        collectives=collective or (),
        sizes=sizes,
        reducers=reducer or (),
        trace=trace,
        compute=compute,
        repeats=repeats,
        budget=budget,
        seed=seed,
    )
    counts = () if workers is None else parse_worker_list(workers)
    layouts = layouts_of(name, workers=counts, rate=rate, nodes=nodes, uplink=uplink)
    folder, rows = Path(out), 0
    with watching(quiet=quiet) as progress, _ended_like_interrupted():

        def advance() -> None:
            nonlocal rows
            rows += 1
            progress.advance()

        try:
            measure_series(
                folder,
                layouts,
                plan,
                command=shlex.join(["s2sim", *sys.argv[1:]]),
                existing=name is not None,
                start=progress.start,
                advance=advance,
            )
        except KeyboardInterrupt:
            progress.stop()
            if json != STDOUT:
                goes_on = "the same command goes on with those that are missing"
                show_lines([f"{number_of(rows, 'new row')} in {out}; {goes_on}."])
            raise
    found = read_measured(folder).only({layout.name for layout in layouts}, kinds)
    if json is not None:
        write_json(asdict(found), json)
    if json == STDOUT:
        return
    if not quiet:
        show_grids(measured_grids(found))
        show_lines(["", *measured_lines(found)])
    show_lines([f"{number_of(rows, 'new row')} in {out}."])


@contextmanager
def _ended_like_interrupted() -> Iterator[None]:
    """Let SIGTERM be an interruption, so that a testbed does not outlive the one who made it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
