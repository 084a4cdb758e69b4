"""``s2sim codec``: compressors compared by error, bytes and time, and where which of them wins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2sim.cli import INTERRUPTED
from s2sim.cli.options import (
    Experiment,
    JsonOption,
    PngOption,
    QuietOption,
    check_targets,
    examples,
    group,
    options_from,
)
from s2sim.cli.output import (
    STDOUT,
    show_grids,
    show_line,
    show_lines,
    show_paragraph,
    show_screen,
    watching,
    write_bytes,
    write_figure,
    write_json,
    write_result,
)
from s2sim.errors import OptionError
from s2sim.experiment.spec import COMPARED, RunSpec
from s2sim.regimes.map import DENSE, RegimeSpec, default_reducers

if TYPE_CHECKING:
    from s2sim.experiment.rows import Result


_COMPARE = examples(
    "s2sim codec compare --trace lstm-lm --workers 1,8,64",
    "s2sim codec compare --trace ncf --workers 16 --set nic.rate=25Gbps --png compare.png",
    "s2sim codec compare --trace synthetic:density=0.01 --workers 16 --reducer union --reducer s2:cells=4 --json -",
)
_REGIMES = examples(
    "s2sim codec regimes --workers 8 --density 0.001,0.01 --overlap 0.5,1 --rate 10Gbps,100Gbps --latency 1us,50us",
    "s2sim codec regimes --workers 16 --density 0.01,0.1 --overlap 0.5 --reducer union --reducer owner-reduce "
    "--reducer fp16 --library nccl --png regimes.png",
    "s2sim codec regimes --workers 8 --density 0.01 --overlap 1 --latency 1us --tail 1.5 --max-error 0.3 --json -",
)

app = group(
    help="Compare compressors: error against bytes and time, and where which of them wins.",
    epilog=examples(
        "s2sim codec compare --trace ncf --workers 8",
        "s2sim codec regimes --workers 8 --density 0.01 --overlap 1 --rate 10Gbps,100Gbps --latency 50us",
    ),
)


@app.command("compare", epilog=_COMPARE, short_help="Tabulate error against bytes and time.")
@options_from(
    RunSpec,
    only=("trace", "workers", "topology", "reducers", "overrides", "dtype", "library", "gpu", "max_error", "seed"),
    workers="1,8,64",
    topology="fat-tree",
)
def compare_command(
    experiment: Experiment[RunSpec], png: PngOption = None, json: JsonOption = None, quiet: QuietOption = False
) -> None:
    """Tabulate and plot error against bytes and against simulated time, of many sizes of every compressor.

    A star marks what nothing else beats: no other has a smaller error for as few bytes, or as little time.
    """
    from s2sim.cli.pictures import ERROR, figure_of
    from s2sim.experiment.judgement import pareto_fronts
    from s2sim.experiment.run import run
    from s2sim.report.format import group_by_workers

    check_targets(json=json, png=png)
    spec = experiment.spec(**({} if experiment.values["reducers"] else {"reducers": COMPARED}))
    with watching(quiet=quiet) as progress:
        result = run(spec=spec, progress=progress, break_even=False)
    fronts = {count: pareto_fronts(rows) for count, rows in group_by_workers(result.results).items()}
    if json is not None:
        value = result.to_json()
        for row in value["results"]:
            by_bytes, by_time = fronts[row["workers"]]
            row["best_by_bytes"], row["best_by_time"] = row["reducer"] in by_bytes, row["reducer"] in by_time
        write_json(value, json)
    if png is not None:
        write_figure(figure_of(ERROR, result, {}), png)
    if json != STDOUT:
        _print_comparison(result, quiet=quiet)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _print_comparison(result: Result, *, quiet: bool) -> None:
    from s2sim.experiment.judgement import pareto_fronts
    from s2sim.report.answer import about_lines, verdict_lines
    from s2sim.report.format import group_by_workers
    from s2sim.report.study_tables import compare_grid

    for line in verdict_lines(result):
        show_paragraph(line)
    if quiet:
        return
    show_lines([""])
    for line in about_lines(result):
        show_paragraph(line)
    show_grids([compare_grid(rows, *pareto_fronts(rows)) for rows in group_by_workers(result.results).values()])
    show_lines([""])
    for note in result.notes:
        show_paragraph(f"Note: {note}.")


@app.command("regimes", epilog=_REGIMES, short_help="Map which compressor wins where.")
@options_from(RegimeSpec, workers="16", topology="fat-tree")
def regimes_command(
    experiment: Experiment[RegimeSpec],
    prefetch: Annotated[
        bool | None,
        typer.Option(
            "--prefetch/--no-prefetch",
            help="Compare union:prefetch=true too, which presumes that the batch tells the rows before forward, as for "
            "embeddings.",
            show_default="no-prefetch",
        ),
    ] = None,
    png: PngOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Map which reducer wins at which density, overlap, rate and latency, and by how much over dense.

    Every reducer runs once on synthetic gradients of each density and overlap; what it sends is then replayed at every
    rate and latency of the network interfaces.
    """
    named = tuple(experiment.values["reducers"] or ())
    if named and prefetch is not None:
        option = "--prefetch" if prefetch else "--no-prefetch"
        raise OptionError(
            f"{option} changes nothing beside --reducer: give --reducer union:prefetch=true, or leave one out"
        )
    check_targets(json=json, png=png)
    reducers = named or default_reducers(experiment.values["max_error"], prefetch=bool(prefetch))
    spec = experiment.spec(reducers=reducers if DENSE in reducers else (DENSE, *reducers))
    if png is not None:
        from s2sim.report.figures.regimes import check_picture_size

        check_picture_size(spec.cells)

    from s2sim.regimes.run import run_regimes

    with watching(quiet=quiet) as progress:
        result = run_regimes(spec, progress)
    if png is not None:
        from s2sim.report.figures.regimes import draw_regimes

        write_bytes(draw_regimes(result, Path(png).suffix[1:].lower()), png)
    from s2sim.report.screens import regimes_screen

    if write_result(result, json) and quiet:
        show_line(result.summary)
    elif json != STDOUT:
        screen = regimes_screen(result)
        show_lines(screen.before)
        show_screen(screen._replace(before=[]))
    if not result.complete:
        raise typer.Exit(INTERRUPTED)
