"""``s2sim run``: compare reducers on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from s2sim.cli import DETAILS, INTERRUPTED, LOWERING, PARETO, VIEWS
from s2sim.cli import options as cli
from s2sim.cli.output import STDOUT, TABLES, note, own_command, watching, write_figure, write_json, write_tables
from s2sim.errors import OptionError, suggest_nearest
from s2sim.experiment.spec import COMPARED, RunSpec

if TYPE_CHECKING:
    from s2sim.experiment.rate_curve import RateCurves
    from s2sim.experiment.rows import Result
    from s2sim.experiment.timeline import Streams, Timeline

EXAMPLE = "s2sim run --topology fat-tree --workers 64"
EXAMPLES = cli.examples(
    EXAMPLE,
    "s2sim run --topology fat-tree --workers 8,16,32 --reducer union --reducer s2:rows=3,cells=2 --compute 120ms",
    "s2sim run --topology dgx-a100 --workers 64 --profile gpt2 --discipline ddp --reducer fp16 --reducer powersgd",
    "s2sim run --topology dgx-h100 --workers 64 --profile gpt2 --groups tp=8,dp=rest --accumulate 8 --reducer fp16",
    "s2sim run --topology leaf-spine --workers 8,16,32 --profile resnet-50 --batch 64 --reducer fp16",
    "s2sim run --topology fat-tree,leaf-spine,dgx-h100 --workers 16",
    "s2sim run --topology leaf-spine --workers 32 --set nic.rate=25Gbps --max-error 0.1 --json result.json",
    "s2sim run --topology single-switch --workers 16 --trace synthetic:density=0.01,overlap=0.5,tail=2.5 --json -",
    "s2sim run --topology fat-tree --workers 64 --library nccl:or=owners --show lowering",
    "s2sim run --topology fat-tree --workers 8 --trace lstm-lm --show pareto --png pareto.png",
    "s2sim run --topology fat-tree --workers 16 --reducer union --library nccl --timeline timeline.json --png run.png",
    "s2sim run --topology leaf-spine --workers 16 --reducer union --reducer fp16 --plot break-even --png rates.svg",
    "s2sim run --topology fat-tree --workers 128 --trace ncf --reducer union --scale-to 350M",
    "s2sim run --topology fat-tree --workers 16 --fault slow-rank:rank=3,factor=2 --fault jitter:latency=5us",
    "s2sim run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 12 --reducer topk --reducer s2:cells=2",
    "s2sim run --topology fat-tree --workers 16 --reducer all",
    "s2sim run --spec result.json",
)

_RARE = ("host_loop", "compute_cv", "compute_times", "iterations", "streams", "placement", "seed")


@cli.takes_tables(hidden=("parquet", "latex"))
@cli.options_from(RunSpec, needed=("topology", "workers"), hidden=_RARE)
def run_command(
    experiment: cli.Experiment[RunSpec],
    timeline: str | None = cli.TIMELINE,
    timeline_rank: int | None = cli.option(
        "RANK",
        "Whose compute, codec and network --timeline shows, with arrows from buckets to collectives.",
        "the slowest",
        hidden=True,
    ),
    png: str | None = cli.PNG,
    plot: str | None = cli.option(
        "WHAT",
        "What --png draws: bars, where the time goes; scaling, time and efficiency against workers; break-even, "
        "speed-up against the rate; error, against bytes and time.",
        "bars; scaling for several numbers of workers; error with --show pareto",
        hidden=True,
    ),
    json: str | None = cli.JSON,
    show: list[str] | None = cli.option(
        "WHAT",
        "Show more, several separated by commas: details (encode and decode, bounds, rounds, notes); layers (the "
        "error of each); collectives (each as it ran, and bottlenecks); lowering (what the library executes for what "
        "is requested); pareto (error against bytes and time, of many compressors unless --reducer names some).",
        "nothing more",
    ),
    no_break_even: bool = cli.switch(
        "--no-break-even", "Do not look for the rates at which reducers break even with dense.", hidden=True
    ),
    force: bool = cli.FORCE,
    quiet: bool = cli.QUIET,
) -> None:
    """Compare gradient compressors (reducers) on a cluster: time, bytes, error, a verdict with break-even rates.

    Every reducer runs once on real gradients; what it sends is then replayed over the simulated cluster, alone or in
    DDP buckets that overlap with backward. Options that are rarely used are in docs/usage.md.
    """
    shown = _parse_shown(show or [], silent=quiet or json == STDOUT)
    cli.check_targets(json=json, timeline=timeline, png=png)
    from s2sim.cli.pictures import BREAK_EVEN, ERROR, check_plot, choose_plot, figure_of

    check_plot(plot, png)
    if timeline_rank is not None and timeline is None:
        raise OptionError("--timeline-rank says whose streams --timeline shows: add --timeline FILE.json")

    from s2sim.experiment.costs import make_gate
    from s2sim.experiment.run import run

    many = PARETO in shown and not experiment.values["reducers"]
    spec = experiment.saved_or(EXAMPLE, lambda: {"reducers": COMPARED} if many else {})
    if len(spec.topologies) > 1:
        _run_topologies(spec, json, quiet=quiet, force=force, show=shown, png=png, timeline=timeline)
        return
    drawn = None if png is None else choose_plot(plot or (ERROR if PARETO in shown else None), spec)
    paged = TABLES.get({}).get("html") is not None
    # Of communication alone a timeline would be of single messages.
    timed = timeline is not None or (paged and spec.profile is not None)
    timelines: dict[str, Timeline | Streams] = {}
    curves: dict[int, RateCurves] = {}
    with watching(quiet=quiet) as progress:
        result = run(
            spec=spec,
            progress=progress,
            timelines=timelines if timed else None,
            timeline_rank=timeline_rank,
            break_even=not no_break_even,
            thorough=bool(shown & {DETAILS, LOWERING}) or json is not None or paged or drawn == BREAK_EVEN,
            curves=curves if paged or drawn == BREAK_EVEN else None,
            gate=make_gate(note, force=force),
        )
    if timeline is not None:
        from s2sim.report.perfetto import to_perfetto

        write_json(to_perfetto(timelines, result.cluster), timeline)
    if json is not None:
        write_json(_with_fronts(result) if PARETO in shown else result.to_json(), json)
    if png is not None and drawn is not None:
        write_figure(figure_of(drawn, result, curves), png)

    def make_page() -> str:
        from s2sim.report.html import page, run_report

        return page(run_report(result, own_command(), curves, timelines))

    if write_tables(result.table, make_page) and json != STDOUT:
        from s2sim.cli.run_output import defaults_line, show_result

        defaults = None if experiment.path is not None else defaults_line(result, experiment.given)
        show_result(result, defaults, shown, quiet=quiet, saved=json)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _run_topologies(spec: RunSpec, json: str | None, *, quiet: bool, force: bool, **of_one: object) -> None:
    """Ask the same on several topologies."""
    for name, value in of_one.items():
        if value:
            raise OptionError(f"--{name} is of one topology: leave it out, or name one of {spec.topology}")
    from s2sim.cli.output import show_result
    from s2sim.experiment.costs import make_gate
    from s2sim.experiment.topologies import run_topologies

    with watching(quiet=quiet) as progress:
        complete, gate = json is not None, make_gate(note, force=force)
        result = run_topologies(spec=spec, progress=progress, break_even=complete, thorough=complete, gate=gate)
    show_result(result, json, quiet=quiet)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _parse_shown(show: list[str], *, silent: bool) -> frozenset[str]:
    shown = [what.strip() for texts in show for what in texts.split(",")]
    for what in shown:
        if what not in VIEWS:
            raise OptionError(f"--show {what} is unknown{suggest_nearest(what, VIEWS)}")
        if silent and what != PARETO:
            raise OptionError(f"--show {what} changes nothing with --quiet or --json -: leave one of them out")
    return frozenset(shown)


def _with_fronts(result: Result) -> dict[str, Any]:
    """Return the JSON of a result, with whether each row is on the Pareto front in bytes and in time."""
    from s2sim.experiment.judgement import pareto_fronts
    from s2sim.report.format import group_by_workers

    fronts = {count: pareto_fronts(rows) for count, rows in group_by_workers(result.results).items()}
    value = result.to_json()
    for row in value["results"]:
        row["best_by_bytes"], row["best_by_time"] = (row["reducer"] in front for front in fronts[row["workers"]])
    return value
