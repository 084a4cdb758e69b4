"""``s2sim run``, ``advise`` and ``train``: reducers on a cluster, what to change there, and training with them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from s2sim.cli import DETAILS, INTERRUPTED, LOWERING, PARETO, VIEWS, output
from s2sim.cli import options as cli
from s2sim.errors import OptionError, S2SimError, check_known
from s2sim.experiment.spec import COMPARED, RunSpec
from s2sim.files import user_path
from s2sim.report.format import group_by_workers
from s2sim.training.spec import TrainSpec

if TYPE_CHECKING:
    from s2sim.experiment.rate_curve import RateCurves
    from s2sim.experiment.rows import Result
    from s2sim.experiment.timeline import Streams, Timeline


@cli.takes_tables
@cli.options_from(RunSpec, needed=("topology", "workers"))
def run_command(
    experiment: cli.Experiment[RunSpec],
    *,
    timeline: str | None = None,
    timeline_rank: int | None = None,
    png: str | None = None,
    plot: str | None = None,
    json: str | None = None,
    show: list[str] | None = None,
    no_break_even: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Compare gradient compressors (reducers) on a cluster: time, bytes, error, a verdict with break-even rates.

    Every reducer runs once on real gradients; what it sends is then replayed over the simulated cluster, alone or in
    DDP buckets that overlap with backward. Options that are rarely used are in docs/usage.md.
    """
    shown = _parse_shown(show or [], silent=quiet or json == output.STDOUT)
    cli.check_targets(json=json, timeline=timeline, png=png)
    from s2sim.cli.run_output import BREAK_EVEN, ERROR, check_plot, choose_plot, figure_of

    check_plot(plot, png)
    if timeline_rank is not None and timeline is None:
        raise OptionError("--timeline-rank says whose streams --timeline shows: add --timeline FILE.json")

    from s2sim.experiment.costs import make_gate
    from s2sim.experiment.run import run

    many = PARETO in shown and not experiment.values["reducers"]
    spec = experiment.saved_or(cli.example_of("run"), lambda: {"reducers": COMPARED} if many else {})
    if len(spec.topologies) > 1:
        _run_topologies(spec, json, quiet=quiet, force=force, show=shown, png=png, timeline=timeline)
        return
    drawn = None if png is None else choose_plot(plot or (ERROR if PARETO in shown else None), spec)
    paged = output.TABLES.get({}).get("html") is not None
    # Of communication alone a timeline would be of single messages.
    timed = timeline is not None or (paged and spec.profile is not None)
    timelines: dict[str, Timeline | Streams] = {}
    curves: dict[int, RateCurves] = {}
    with output.watching(quiet=quiet) as progress:
        result = run(
            spec=spec,
            progress=progress,
            timelines=timelines if timed else None,
            timeline_rank=timeline_rank,
            break_even=not no_break_even,
            thorough=bool(shown & {DETAILS, LOWERING}) or json is not None or paged or drawn == BREAK_EVEN,
            curves=curves if paged or drawn == BREAK_EVEN else None,
            gate=make_gate(output.note, force=force),
        )
    if timeline is not None:
        from s2sim.report.perfetto import to_perfetto

        output.write_json(to_perfetto(timelines, result.cluster), timeline)
    if json is not None:
        output.write_json(_with_fronts(result) if PARETO in shown else result.to_json(), json)
    if png is not None and drawn is not None:
        output.write_figure(figure_of(drawn, result, curves), png)

    def make_page() -> str:
        from s2sim.report.screens import page, run_report

        return page(run_report(result, output.own_command(), curves, timelines))

    if output.write_tables(result.table, make_page) and json != output.STDOUT:
        from s2sim.cli.run_output import defaults_line, show_run

        defaults = None if experiment.path is not None else defaults_line(result, experiment.given)
        show_run(result, defaults, shown, quiet=quiet, saved=json)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _run_topologies(spec: RunSpec, json: str | None, *, quiet: bool, force: bool, **of_one: object) -> None:
    for name, value in of_one.items():
        if value:
            raise OptionError(f"--{name} is of one topology: leave it out, or name one of {spec.topology}")
    from s2sim.experiment.costs import make_gate
    from s2sim.experiment.topologies import run_topologies

    with output.watching(quiet=quiet) as progress:
        complete, gate = json is not None, make_gate(output.note, force=force)
        result = run_topologies(spec=spec, progress=progress, break_even=complete, thorough=complete, gate=gate)
    output.show_result(result, json, quiet=quiet)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _parse_shown(show: list[str], *, silent: bool) -> frozenset[str]:
    shown = [what.strip() for texts in show for what in texts.split(",")]
    for what in shown:
        check_known(what, VIEWS, f"--show {what} is unknown")
        if silent and what != PARETO:
            raise OptionError(f"--show {what} changes nothing with --quiet or --json -: leave one of them out")
    return frozenset(shown)


def _with_fronts(result: "Result") -> dict[str, Any]:
    """Return the JSON of a result, with whether each row is on the Pareto front in bytes and in time."""
    from s2sim.experiment.judgement import pareto_fronts

    fronts = {count: pareto_fronts(rows) for count, rows in group_by_workers(result.results).items()}
    value = result.to_json()
    for row in value["results"]:
        row["best_by_bytes"], row["best_by_time"] = (row["reducer"] in front for front in fronts[row["workers"]])
    return value


@cli.takes_tables
@cli.options_from(RunSpec, needed=("topology", "workers"))
def advise_command(
    experiment: cli.Experiment[RunSpec],
    *,
    question: str = "best",
    changes: str | None = None,
    faster: str | None = None,
    efficiency: str | None = None,
    most_workers: int | None = None,
    json: str | None = None,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Ask what to change on a cluster or in a training job: the question of s2sim run turned round.

    best: the quickest reducer, density and size of buckets below --max-error. cheapest: the cheapest of --changes that
    make it --faster. largest: the most workers at an --efficiency. frontier: what none of --changes betters in time,
    error and price together. flips: what would change the answer. Answers come with the runs that they rest on.
    """
    from s2sim.advice.advise import MOST_WORKERS, QUESTIONS_TAKE, advise
    from s2sim.experiment.costs import make_gate

    spec = experiment.saved_or(cli.example_of("advise"))
    given = {"changes": changes, "faster": faster, "efficiency": efficiency, "most_workers": most_workers}
    for name, value in given.items():
        if value is not None and name not in QUESTIONS_TAKE.get(question, given):
            raise OptionError(f"advise {question} takes no --{name.replace('_', '-')}: leave it out")
    with output.watching(quiet=quiet) as progress:
        result = advise(
            question,
            spec=spec,
            changes=changes,
            faster=_share("faster", faster),
            efficiency=_share("efficiency", efficiency),
            most_workers=most_workers or MOST_WORKERS,
            progress=progress,
            gate=make_gate(output.note, force=force),
        )
    output.show_result(result, json, quiet=quiet)


def _share(name: str, text: str | None) -> float | None:
    """Return a share from 0 to 1 of a text such as 20% or 0.2."""
    if text is None:
        return None
    try:
        return float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise OptionError(f"--{name} {text}: write a share such as 20%") from None


@cli.takes_tables
@cli.options_from(TrainSpec, topology="fat-tree")
def train_command(
    experiment: cli.Experiment[TrainSpec],
    *,
    out: str | None = None,
    resume: bool = False,
    png: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Train a real model with real gradients through reducers; loss against iterations and simulated time.

    All ranks' mini-batches are trained in this process, with every reducer's feedback and state from step to step; what
    a step sends is replayed on the cluster. Ctrl-C keeps what is done. Needs the extra torch.
    """
    cli.check_targets(json=json, png=png)
    spec = experiment.spec()

    from s2sim.training.run import train

    with output.watching(quiet=quiet) as progress:
        result = train(spec, progress, out=None if out is None else user_path(out, S2SimError), resume=resume)
    if png is not None:
        from s2sim.report.figures.charts import draw_training

        output.write_bytes(draw_training(result, Path(png).suffix[1:].lower()), png)
    output.show_result(result, json, quiet=quiet)
