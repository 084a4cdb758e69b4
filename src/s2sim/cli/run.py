"""``s2sim run``: compare reducers on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from s2sim.cli.iteration_options import (
    ITERATION_EXAMPLES,
    AccumulateOption,
    BatchOption,
    ComputeCvOption,
    ComputeTimesOption,
    DisciplineOption,
    GroupsOption,
    HostLoopOption,
    IterationsOption,
    ProfileOption,
    StreamsOption,
    TimelineRankOption,
)
from s2sim.cli.options import (
    DtypeOption,
    FaultOption,
    GpuOption,
    JsonOption,
    LibraryOption,
    MaxErrorOption,
    PlacementOption,
    PngOption,
    QuietOption,
    ReducerOption,
    RootSeedOption,
    SetOption,
    SpecTopologyOption,
    TimelineOption,
    TraceOption,
    examples,
    parse_worker_list,
)
from s2sim.cli.spec_option import SpecOption, given_options, spec_of
from s2sim.errors import OptionError, nearest

if TYPE_CHECKING:
    from s2sim.study.break_even.rate_curve import RateCurves
    from s2sim.study.measuring.streams import Streams
    from s2sim.study.measuring.timeline import Timeline

EXAMPLE = "s2sim run --topology fat-tree --workers 64"
EXAMPLES = examples(
    EXAMPLE,
    "s2sim run --topology fat-tree --workers 8,16,32 --reducer union --reducer s2:rows=3,cells=2 --compute 120ms",
    *ITERATION_EXAMPLES,
    "s2sim run --topology leaf-spine --workers 32 --set nic.rate=25Gbps --max-error 0.1 --json result.json",
    "s2sim run --topology single-switch --workers 16 --trace synthetic:density=0.01,overlap=0.5,tail=2.5 --json -",
    "s2sim run --topology fat-tree --workers 64 --library nccl:or=owners --show lowering",
    "s2sim run --topology fat-tree --workers 16 --reducer union --library nccl --timeline timeline.json --png run.png",
    "s2sim run --topology leaf-spine --workers 16 --reducer union --reducer fp16 --plot break-even --png rates.svg",
    "s2sim run --topology fat-tree --workers 128 --trace ncf --reducer union --scale-to 350M",
    "s2sim run --topology fat-tree --workers 16 --fault slow-rank:rank=3,factor=2 --fault jitter:latency=5us",
    "s2sim run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 12 --reducer topk --reducer s2:cells=2",
    "s2sim run --topology fat-tree --workers 16 --reducer all",
    "s2sim run --spec result.json",
)

_SHOWN = ("collectives", "lowering")


def run_command(
    context: typer.Context,
    topology: SpecTopologyOption = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]",
            help="Number of workers (ranks, GPUs), or several separated by commas for a scaling table; more than the "
            "trace has ranks are extrapolated. Required without --spec.",
            show_default=False,
        ),
    ] = None,
    reducer: ReducerOption = None,
    trace: TraceOption = "lstm-lm",
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
            help="Scale the trace's statistics to the layers of a known model (see s2sim list models) or "
            "of a TOML file.",
            show_default="the trace's own layers",
        ),
    ] = None,
    overrides: SetOption = None,
    placement: PlacementOption = "linear",
    collective: Annotated[
        str,
        typer.Option(
            metavar="ALGORITHM",
            help="Algorithm of the collectives (see s2sim list collectives), or auto for the fastest.",
        ),
    ] = "auto",
    dtype: DtypeOption = None,
    library: LibraryOption = None,
    gpu: GpuOption = None,
    compute: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Forward and backward time of an iteration with its unit, for example 120ms; added without overlap.",
            show_default="communication phase only",
        ),
    ] = None,
    profile: ProfileOption = None,
    discipline: DisciplineOption = None,
    batch: BatchOption = None,
    accumulate: AccumulateOption = 1,
    streams: StreamsOption = 1,
    host_loop: HostLoopOption = None,
    compute_cv: ComputeCvOption = 0.0,
    compute_times: ComputeTimesOption = None,
    iterations: IterationsOption = None,
    groups: GroupsOption = None,
    max_error: MaxErrorOption = None,
    faults: FaultOption = None,
    steps: Annotated[
        int,
        typer.Option(
            metavar="K",
            help="Follow every reducer over the first K steps of the trace, lossy ones with error feedback: residual "
            "norms by step, error, time and bytes.",
        ),
    ] = 1,
    seed: RootSeedOption = 0,
    spec: SpecOption = None,
    timeline: TimelineOption = None,
    timeline_rank: TimelineRankOption = None,
    png: PngOption = None,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="What --png draws: bars, where the time goes; scaling, time and efficiency "
            "against workers; break-even, speed-up against the rate; error, against bytes "
            "and time.",
            show_default="bars; scaling for several numbers of workers",
        ),
    ] = None,
    json: JsonOption = None,
    show: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="Show more: collectives lists every collective as it ran, and each bottleneck; "
            "lowering what the library executes for what is asked, and what that costs; repeatable.",
            show_default="nothing more",
        ),
    ] = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="Show encode and decode, bounds, rounds, the ideal library, break-even of every reducer, and notes.",
        ),
    ] = False,
    no_break_even: Annotated[
        bool, typer.Option("--no-break-even", help="Do not look for the rates at which reducers break even with dense.")
    ] = False,
    per_layer: Annotated[bool, typer.Option("--per-layer", help="Show the error of every layer.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Compare gradient reducers on a cluster: time, bytes, error, and a verdict with break-even rates.

    Every reducer runs once on real gradients; what it sends is then replayed over the simulated cluster.
    """
    from s2sim.cli.output import STDOUT, write_figure, write_json
    from s2sim.cli.progress import watching
    from s2sim.cli.run_pictures import BREAK_EVEN, check_plot, choose_plot, figure_of
    from s2sim.cli.targets import check_targets

    shown = _check_shown(show or [], details=details, per_layer=per_layer, silent=quiet or json == STDOUT)
    check_targets(json=json, timeline=timeline, png=png)
    check_plot(plot, png)
    if timeline_rank is not None and timeline is None:
        raise OptionError("--timeline-rank says whose streams --timeline shows: add --timeline FILE.json")

    from s2sim.study.compare.run import run
    from s2sim.study.spec import DEFAULT_REDUCERS, RunSpec

    def make() -> RunSpec:
        return RunSpec(
            topology or "",
            parse_worker_list(workers or ""),
            reducers=tuple(reducer or DEFAULT_REDUCERS),
            trace=trace,
            overrides=tuple(overrides or ()),
            placement=placement,
            collective=collective,
            dtype=dtype,
            library=library,
            gpu=gpu,
            compute=compute,
            max_error=max_error,
            seed=seed,
            scale_to=scale_to,
            model=model,
            faults=tuple(faults or ()),
            steps=steps,
            profile=profile,
            discipline=discipline,
            batch=batch,
            accumulate=accumulate,
            streams=streams,
            host_loop=host_loop,
            compute_cv=compute_cv,
            compute_times=compute_times,
            iterations=iterations,
            groups=groups,
        )

    asked = spec_of(context, RunSpec, spec, ("--topology", "--workers"), EXAMPLE, make)
    drawn = None if png is None else choose_plot(plot, asked)
    timelines: dict[str, Timeline | Streams] = {}
    curves: dict[int, RateCurves] = {}
    with watching(quiet=quiet) as progress:
        result = run(
            spec=asked,
            progress=progress,
            timelines=None if timeline is None else timelines,
            timeline_rank=timeline_rank,
            break_even=not no_break_even,
            thorough=details or json is not None or "lowering" in shown or drawn == BREAK_EVEN,
            curves=curves if drawn == BREAK_EVEN else None,
        )
    if timeline is not None:
        from s2sim.report.perfetto import to_perfetto

        write_json(to_perfetto(timelines, result.cluster), timeline)
    if json is not None:
        write_json(result.to_json(), json)
    if png is not None and drawn is not None:
        write_figure(figure_of(drawn, result, curves), png)
    if json != STDOUT:
        from s2sim.cli.run_output import defaults_line, show_result

        defaults = None if spec is not None else defaults_line(result, given_options(context))
        show_result(result, defaults, shown, quiet=quiet, details=details, per_layer=per_layer, saved=json)
    if result.interrupted:
        raise typer.Exit(130)


def _check_shown(show: list[str], *, details: bool, per_layer: bool, silent: bool) -> frozenset[str]:
    for what in show:
        if what not in _SHOWN:
            raise OptionError(f"--show {what} is unknown{nearest(what, _SHOWN)}")
    if silent and (show or details or per_layer):
        option = "--show" if show else "--details" if details else "--per-layer"
        raise OptionError(f"{option} changes nothing with --quiet or --json -: leave one of them out")
    return frozenset(show)
