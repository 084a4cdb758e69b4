"""``s2sim run``: compare reducers on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s2sim.cli.options import (
    TOPOLOGY_HELP,
    FaultOption,
    JsonOption,
    PngOption,
    SetOption,
    TimelineOption,
    examples,
    parse_worker_list,
)
from s2sim.errors import OptionError, nearest

if TYPE_CHECKING:
    from s2sim.study.measuring.result import Result
    from s2sim.study.measuring.timeline import Timeline
    from s2sim.study.spec import RunSpec

EXAMPLES = examples(
    "s2sim run --topology fat-tree --workers 64",
    "s2sim run --topology fat-tree --workers 8,16,32 --reducer union --reducer s2:rows=3,cells=2 --compute 120ms",
    "s2sim run --topology leaf-spine --workers 32 --set nic.rate=25Gbps --max-error 0.1 --json result.json",
    "s2sim run --topology single-switch --workers 16 --trace synthetic:density=0.01,overlap=0.5,tail=2.5 --json -",
    "s2sim run --topology fat-tree --workers 64 --library nccl:or=owners --show lowering",
    "s2sim run --topology fat-tree --workers 16 --reducer union --library nccl --timeline timeline.json --png run.png",
    "s2sim run --topology fat-tree --workers 128 --trace ncf --reducer union --scale-to 350M",
    "s2sim run --topology fat-tree --workers 16 --fault slow-rank:rank=3,factor=2 --fault jitter:latency=5us",
    "s2sim run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 12 --reducer topk --reducer s2:cells=2",
    "s2sim run --spec result.json",
)

_SHOWN = ("collectives", "lowering")


def run_command(
    topology: Annotated[
        str | None, typer.Option(help=f"{TOPOLOGY_HELP} Required without --spec.", show_default=False)
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]",
            help="Number of workers (ranks, GPUs), or several separated by commas for a scaling table; more than the "
            "trace has ranks are extrapolated. Required without --spec.",
            show_default=False,
        ),
    ] = None,
    reducer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="A reducer to compare with dense, for example topk:density=0.01,ef=true; repeatable "
            "(see [bold]s2sim list reducers[/bold]).",
            show_default="a dozen that cover the field",
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            help="Gradients: name of a shipped trace, path of one, or synthetic:density=0.01,overlap=0.5,tail=2.5.",
            show_default="lstm-lm",
        ),
    ] = None,
    scale_to: Annotated[
        str | None,
        typer.Option(
            metavar="PARAMETERS",
            help="Scale the trace's layers to so many parameters, for example 350M, by the trace's own statistics.",
            show_default="as recorded",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Scale the trace's statistics to the layers of a known model (see [bold]s2sim list models[/bold]) or "
            "of a TOML file.",
            show_default="the trace's own layers",
        ),
    ] = None,
    overrides: SetOption = None,
    placement: Annotated[
        str | None, typer.Option(help="Ranks to GPUs: linear or round-robin.", show_default="linear")
    ] = None,
    collective: Annotated[
        str | None,
        typer.Option(
            metavar="ALGORITHM",
            help="Algorithm of the collectives (see [bold]s2sim list collectives[/bold]), or auto for the fastest.",
            show_default="auto",
        ),
    ] = None,
    library: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="Communication library that executes the collectives (see [bold]s2sim list libraries[/bold]), for "
            "example nccl:or=owners.",
            show_default="ideal: everything as asked",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="GPU that encodes and decodes (see [bold]s2sim list hardware[/bold]).", show_default="a100"),
    ] = None,
    compute: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Forward and backward time of an iteration with its unit, for example 120ms; added without overlap.",
            show_default="communication phase only",
        ),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            help="Largest relative L2 error (a ratio, without unit) with which a lossy reducer may win.",
            show_default="below 1",
        ),
    ] = None,
    faults: FaultOption = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Follow every reducer over the first K steps of the trace, lossy ones with error feedback: residual "
            "norms by step, error, time and bytes.",
            show_default="the first step alone",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Root of all randomness, a whole number from 0.", show_default="0")
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Run a saved spec, or the spec of a saved result, again.", show_default="no file"
        ),
    ] = None,
    timeline: TimelineOption = None,
    png: PngOption = None,
    json: JsonOption = None,
    show: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="Show more: [bold]collectives[/bold] lists every collective as it ran, and each bottleneck; "
            "[bold]lowering[/bold] what the library executes for what is asked, and what that costs; repeatable.",
            show_default="nothing more",
        ),
    ] = None,
    per_layer: Annotated[bool, typer.Option("--per-layer", help="Show the error of every layer.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the verdict, and no progress bar.")] = False,
) -> None:
    """Compare gradient reducers on a cluster: time, bytes, error, and a verdict with break-even rates.

    Every reducer runs once on real gradients; what it sends is then replayed over the simulated cluster.
    """
    from s2sim.cli.output import STDOUT, check_picture_target, check_target, write_figure, write_json
    from s2sim.cli.progress import make_progress

    given: dict[str, Any] = {
        "--topology": topology,
        "--workers": workers,
        "--reducer": tuple(reducer) if reducer else None,
        "--trace": trace,
        "--scale-to": scale_to,
        "--model": model,
        "--set": tuple(overrides) if overrides else None,
        "--placement": placement,
        "--collective": collective,
        "--library": library,
        "--gpu": gpu,
        "--compute": compute,
        "--max-error": max_error,
        "--fault": tuple(faults) if faults else None,
        "--steps": steps,
        "--seed": seed,
    }
    given = {option: value for option, value in given.items() if value is not None}
    shown = _check_shown(show or [], per_layer=per_layer, silent=quiet or json == STDOUT)
    check_target("--json", json)
    check_target("--timeline", timeline, stdout=False)
    if png is not None:
        check_picture_target(png)
    asked = _make_spec(spec, given)

    from s2sim.study.compare.run import run
    from s2sim.study.progress import INTERRUPTED_NOTE

    progress = make_progress(quiet=quiet)
    try:
        timelines: dict[str, Timeline] = {}
        result = run(spec=asked, progress=progress, timelines=None if timeline is None else timelines)
    finally:
        progress.stop()
    if timeline is not None:
        from s2sim.report.perfetto import to_perfetto

        write_json(to_perfetto(timelines, result.headline), timeline)
    if json is not None:
        write_json(result.to_json(), json)
    if png is not None:
        from s2sim.report.figures.breakdown import breakdown_figure

        largest = max(row.workers for row in result.rows)
        write_figure(breakdown_figure([row for row in result.rows if row.workers == largest]), png)
    if json != STDOUT:
        _print(result, given, shown, quiet=quiet, per_layer=per_layer, rerun=spec is not None, saved=json)
    if INTERRUPTED_NOTE in result.notes:
        raise typer.Exit(130)


def _check_shown(show: list[str], *, per_layer: bool, silent: bool) -> frozenset[str]:
    for what in show:
        if what not in _SHOWN:
            raise OptionError(f"--show {what} is unknown{nearest(what, _SHOWN)}")
    if silent and (show or per_layer):
        option = "--show" if show else "--per-layer"
        raise OptionError(f"{option} changes nothing with --quiet or --json -: leave one of them out")
    return frozenset(show)


_FIELDS = {"--reducer": "reducers", "--set": "overrides", "--fault": "faults"}


def _make_spec(path: str | None, given: dict[str, Any]) -> RunSpec:
    """Return the spec that a file holds, or that the options make up."""
    from s2sim.study.spec import RunSpec

    if path is not None:
        if given:
            raise OptionError(
                f"--spec {path} holds the whole experiment, so {', '.join(given)} cannot be given with it: "
                "leave them out or edit the file"
            )
        return RunSpec.load(Path(path))
    missing = [option for option in ("--topology", "--workers") if option not in given]
    if missing:
        raise OptionError(
            f"{' and '.join(missing)} must be given, for example s2sim run --topology fat-tree --workers 64"
        )
    values = {_FIELDS.get(option, option[2:].replace("-", "_")): value for option, value in given.items()}
    return RunSpec(**{**values, "workers": parse_worker_list(values["workers"])})


def _defaults_line(result: Result, given: dict[str, Any]) -> str | None:
    """Return which choices nobody made, or None."""
    chosen = {
        "--reducer": f"reducers {', '.join(result.spec.reducers)}",
        "--trace": f"gradients of {result.spec.trace}",
        "--gpu": f"GPU {result.spec.gpu}",
    }
    parts = [text for option, text in chosen.items() if option not in given]
    return f"By default: {'; '.join(parts)}." if parts else None


def _print(
    result: Result,
    given: dict[str, Any],
    shown: frozenset[str],
    *,
    quiet: bool,
    per_layer: bool,
    rerun: bool,
    saved: str | None,
) -> None:
    from s2sim.cli.output import show_grids, show_lines, show_paragraph
    from s2sim.report.tables import rows
    from s2sim.report.tables.text import bottleneck_lines

    if quiet:
        show_lines([result.verdict.text])
        return
    show_lines([result.headline])
    defaults = None if rerun else _defaults_line(result, given)
    if defaults:
        show_paragraph(defaults)
    show_grids(rows.comparison_grids(result))
    show_grids(rows.mechanics_grids(result))
    show_lines(["", *(f"Note: {note}." for note in result.notes)])
    if "collectives" in shown:
        show_grids(rows.collectives_grids(result))
        show_lines(["", *bottleneck_lines(result)])
    if "lowering" in shown:
        _print_lowering(result)
    if result.spec.steps > 1:
        show_grids(rows.residual_grids(result))
        show_grids(rows.steps_grids(result))
    if per_layer:
        show_grids(rows.layers_grids(result))
    if len(result.spec.workers) > 1:
        show_grids([rows.scaling_grid(result)])
    show_lines([""])
    show_paragraph(result.verdict.text)
    if saved is not None:
        show_lines(["", f"Saved to {saved}; again with: s2sim run --spec {saved}"])


def _print_lowering(result: Result) -> None:
    from s2sim.cli.output import show_grids, show_lines
    from s2sim.collectives.libraries.tables import IDEAL, LIBRARIES
    from s2sim.report.tables import rows
    from s2sim.report.tables.text import lowering_lines

    if result.spec.library == IDEAL.name:
        others = ", ".join(name for name in LIBRARIES if name != IDEAL.name)
        show_lines(["", f"Lowering: {IDEAL.name} executes everything as asked; --library {others} would differ."])
        return
    show_grids(rows.lowering_grids(result))
    show_lines(["", *lowering_lines(result)])
