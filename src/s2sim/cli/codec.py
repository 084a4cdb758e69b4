"""``s2sim codec``: what compressors cost and lose, beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from s2sim.cli import regimes
from s2sim.cli.options import (
    DtypeOption,
    GpuOption,
    JsonOption,
    LibraryOption,
    MaxErrorOption,
    PngOption,
    QuietOption,
    ReducerOption,
    RootSeedOption,
    SetOption,
    TopologyOption,
    TraceOption,
    examples,
    help_without_command,
    parse_worker_list,
)

if TYPE_CHECKING:
    from s2sim.study.measuring.result import Result

_EXAMPLES = examples(
    "s2sim codec compare --trace lstm-lm --workers 1,8,64",
    "s2sim codec compare --trace ncf --workers 16 --set nic.rate=25Gbps --png compare.png",
    "s2sim codec compare --trace synthetic:density=0.01 --workers 16 --reducer union --reducer s2:cells=4 --json -",
)

app = typer.Typer(
    help="Compare compressors: error against bytes and time, and where which of them wins.",
    rich_markup_mode=None,
    epilog=examples(
        "s2sim codec compare --trace ncf --workers 8",
        "s2sim codec regimes --workers 8 --density 0.01 --overlap 1 --rate 10Gbps,100Gbps --latency 50us",
    ),
)


@app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    help_without_command(context)


@app.command("compare", epilog=_EXAMPLES, short_help="Tabulate error against bytes and time.")
def compare_command(
    trace: TraceOption = "lstm-lm",
    workers: Annotated[
        str,
        typer.Option(metavar="N[,N...]", help="Numbers of workers; more than the trace has ranks are extrapolated."),
    ] = "1,8,64",
    topology: TopologyOption = "fat-tree",
    reducer: ReducerOption = None,
    overrides: SetOption = None,
    dtype: DtypeOption = None,
    library: LibraryOption = None,
    gpu: GpuOption = None,
    max_error: MaxErrorOption = None,
    seed: RootSeedOption = 0,
    png: PngOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Tabulate and plot error against bytes and against simulated time, of many sizes of every compressor.

    A star marks what nothing else beats: no other has a smaller error for as few bytes, or as little time.
    """
    from s2sim.cli.output import STDOUT, write_figure, write_json
    from s2sim.cli.progress import watching
    from s2sim.cli.run_pictures import ERROR, figure_of
    from s2sim.cli.targets import check_targets
    from s2sim.study.compare.run import run
    from s2sim.study.spec import COMPARED, RunSpec

    check_targets(json=json, png=png)
    spec = RunSpec(
        topology=topology,
        workers=parse_worker_list(workers),
        reducers=tuple(reducer) if reducer else COMPARED,
        trace=trace,
        overrides=tuple(overrides or ()),
        dtype=dtype,
        library=library,
        gpu=gpu,
        max_error=max_error,
        seed=seed,
    )
    with watching(quiet=quiet) as progress:
        result = run(spec=spec, progress=progress, break_even=False)
    if json is not None:
        write_json(_to_json(result), json)
    if png is not None:
        write_figure(figure_of(ERROR, result, {}), png)
    if json != STDOUT:
        _print(result, quiet=quiet)
    if result.interrupted:
        raise typer.Exit(130)


app.command("regimes", epilog=regimes.EXAMPLES, short_help="Map which compressor wins where.")(regimes.regimes_command)


def _to_json(result: Result) -> dict[str, Any]:
    """Return the result of a run, each row with whether nothing beats it."""
    from s2sim.cli.run_pictures import rows_by_workers
    from s2sim.study.compare.pareto_front import fronts

    value = result.to_json()
    found = {count: fronts(rows) for count, rows in rows_by_workers(result).items()}
    for row in value["results"]:
        by_bytes, by_time = found[row["workers"]]
        row["best_by_bytes"], row["best_by_time"] = row["reducer"] in by_bytes, row["reducer"] in by_time
    return value


def _print(result: Result, *, quiet: bool) -> None:
    from s2sim.cli.output import show_grids, show_lines, show_paragraph
    from s2sim.cli.run_pictures import rows_by_workers
    from s2sim.report.tables.codecs import compare_grid
    from s2sim.report.tables.screen import about_lines, verdict_lines
    from s2sim.study.compare.pareto_front import fronts

    for line in verdict_lines(result):
        show_paragraph(line)
    if quiet:
        return
    show_lines([""])
    for line in about_lines(result):
        show_paragraph(line)
    show_grids([compare_grid(rows, *fronts(rows)) for rows in rows_by_workers(result).values()])
    show_lines([""])
    for note in result.notes:
        show_paragraph(f"Note: {note}.")
