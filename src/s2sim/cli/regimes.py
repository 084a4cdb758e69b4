"""``s2sim codec regimes``: who wins where, over density, overlap, rate and latency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2sim.cli.options import (
    GpuOption,
    JsonOption,
    LibraryOption,
    PngOption,
    QuietOption,
    ReducerOption,
    RootSeedOption,
    SetOption,
    TopologyOption,
    examples,
    parse_workers,
)
from s2sim.errors import OptionError

if TYPE_CHECKING:
    from s2sim.study.regimes.map import RegimeMap

EXAMPLES = examples(
    "s2sim codec regimes --workers 8 --density 0.001,0.01 --overlap 0.5,1 --rate 10Gbps,100Gbps --latency 1us,50us",
    "s2sim codec regimes --workers 16 --density 0.01,0.1 --overlap 0.5 --reducer union --reducer owner-reduce "
    "--reducer fp16 --library nccl --png regimes.png",
    "s2sim codec regimes --workers 8 --density 0.01 --overlap 1 --latency 1us --tail 1.5 --max-error 0.3 --json -",
)


def regimes_command(
    workers: Annotated[str, typer.Option(metavar="N", help="Number of workers (ranks, GPUs).")] = "16",
    topology: TopologyOption = "fat-tree",
    density: Annotated[
        str, typer.Option(metavar="D[,D...]", help="Shares of the rows that one rank holds, above 0 and at most 1.")
    ] = "0.001,0.01,0.05,0.2",
    overlap: Annotated[
        str, typer.Option(metavar="O[,O...]", help="Shares of a rank's rows that all ranks hold, from 0 to 1.")
    ] = "0,0.5,1",
    rate: Annotated[
        str, typer.Option(metavar="R[,R...]", help="Rates of a network interface with their units.")
    ] = "1Gbps,10Gbps,100Gbps,400Gbps",
    latency: Annotated[
        str,
        typer.Option(
            metavar="L[,L...]",
            help="Latencies of a network interface with their units; a way between two nodes goes through two.",
        ),
    ] = "1us,10us,50us",
    reducer: ReducerOption = None,
    prefetch: Annotated[
        bool | None,
        typer.Option(
            "--prefetch/--no-prefetch",
            help="Compare union:prefetch=true too, which presumes that the batch tells the rows before forward, as for "
            "embeddings.",
            show_default="no-prefetch",
        ),
    ] = None,
    max_error: Annotated[
        float,
        typer.Option(
            help="Largest relative L2 error (a ratio, without unit) with which a reducer may win; s2 is sized for it."
        ),
    ] = 0.1,
    library: LibraryOption = None,
    gpu: GpuOption = None,
    tail: Annotated[
        str, typer.Option(help="Values of the gradients: gaussian, or the exponent of a power law, for example 1.5.")
    ] = "gaussian",
    rows: Annotated[int, typer.Option(help="Rows of the gradient, a whole number.")] = 37500,
    width: Annotated[int, typer.Option(help="Values in a row, a whole number.")] = 16,
    overrides: SetOption = None,
    seed: RootSeedOption = 0,
    png: PngOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Map which reducer wins at which density, overlap, rate and latency, and by how much over dense.

    Every reducer runs once on synthetic gradients of each density and overlap; what it sends is then replayed at every
    rate and latency of the network interfaces.
    """
    from s2sim.cli.output import STDOUT, write_json
    from s2sim.cli.progress import watching
    from s2sim.cli.targets import check_targets
    from s2sim.study.regimes.spec import DENSE, RegimeSpec, default_reducers

    if reducer and prefetch is not None:
        option = "--prefetch" if prefetch else "--no-prefetch"
        raise OptionError(
            f"{option} changes nothing beside --reducer: give --reducer union:prefetch=true, or leave one out"
        )
    check_targets(json=json, png=png)
    reducers = tuple(reducer) if reducer else default_reducers(max_error, prefetch=bool(prefetch))
    spec = RegimeSpec(
        topology=topology,
        workers=parse_workers(workers),
        densities=_numbers("--density", density),
        overlaps=_numbers("--overlap", overlap),
        rates=_texts("--rate", rate, "1Gbps,100Gbps"),
        latencies=_texts("--latency", latency, "1us,50us"),
        reducers=reducers if DENSE in reducers else (DENSE, *reducers),
        tail=tail,
        rows=rows,
        width=width,
        overrides=tuple(overrides or ()),
        library=library,
        gpu=gpu,
        max_error=max_error,
        seed=seed,
    )
    if png is not None:
        from s2sim.report.figures.regimes import check_picture_size

        check_picture_size(spec.cells)

    from s2sim.study.regimes.run import run_regimes

    with watching(quiet=quiet) as progress:
        result = run_regimes(spec, progress)
    if json is not None:
        write_json(result.to_json(), json)
    if png is not None:
        _draw(result, png)
    if json != STDOUT:
        _print(result, quiet=quiet)
    if not result.complete:
        raise typer.Exit(130)


def _texts(option: str, text: str, example: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise OptionError(
            f"{option} {text!r} has an empty place: write values between commas, as in {option} {example}"
        )
    return parts


def _numbers(option: str, text: str) -> tuple[float, ...]:
    example = "0.01,0.1" if option == "--density" else "0,0.5"
    values = []
    for part in _texts(option, text, example):
        try:
            values.append(float(part))
        except ValueError:
            raise OptionError(f"{option}: {part!r} is not a number; write for example {option} {example}") from None
    return tuple(values)


def _draw(result: RegimeMap, target: str) -> None:
    from s2sim.cli.output import write_bytes
    from s2sim.report.figures.regimes import draw_regimes

    picture = draw_regimes(result, Path(target).suffix[1:].lower())
    write_bytes(picture, target)


def _print(result: RegimeMap, *, quiet: bool) -> None:
    from s2sim.cli.output import show_grids, show_lines, show_paragraph
    from s2sim.report.tables.screens import regimes_screen

    if quiet:
        show_lines([result.summary])
        return
    screen = regimes_screen(result)
    show_lines(screen.before)
    show_grids(screen.grids)
    for line in screen.after:
        show_paragraph(line)
