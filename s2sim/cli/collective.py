"""``s2sim collective``: time one collective on a cluster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from s2sim.cli import options as cli
from s2sim.cli import output
from s2sim.cli.output import STDOUT, show_lines, watching, write_text
from s2sim.errors import OptionError
from s2sim.experiment.cluster_spec import parse_workers, size_parser
from s2sim.traffic.spec import CollectiveSpec


@cli.takes_tables
@cli.options_from(CollectiveSpec, needed=("kind", "topology", "workers"))
def collective_command(
    experiment: cli.Experiment[CollectiveSpec],
    *,
    size: str | None = None,
    sizes: str | None = None,
    show: bool = False,
    terms: bool = False,
    png: str | None = None,
    goal: str | None = None,
    timeline: str | None = None,
    json: str | None = None,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Time one collective on a cluster, with nothing else on it, and show what it waits for.

    algbw and busbw are those of nccl-tests. s2sim collective table prints the times of many sizes as nccl-tests does,
    and s2sim collective log compares them with a log that it wrote. Options that are rarely used are in docs/usage.md.
    """
    cli.check_targets(json=json, goal=goal, timeline=timeline, png=png)
    if STDOUT in (json, goal) and show:
        raise OptionError("standard output takes one thing: give a file for the other, or leave --show out")
    if goal == STDOUT and terms and json is None:
        raise OptionError("standard output takes one thing: give a file for --goal, or leave --terms out")
    values = experiment.values
    if values["groups"] is not None:
        for name, value in {"show": show, "png": png, "goal": goal, "timeline": timeline}.items():
            if value:
                raise OptionError(f"--groups is of many collectives, and --{name} of one: leave either out")

    from s2sim.cli.collective_output import listing, write_messages
    from s2sim.experiment.costs import make_gate
    from s2sim.report import traffic_tables
    from s2sim.report.grid import filled
    from s2sim.traffic import collective_run

    def of_options() -> dict[str, Any]:
        # Errors of these are reported before those of sizes.
        kind, workers = values["kind"].replace("-", "_"), parse_workers(values["workers"])
        return {"kind": kind, "workers": workers, "size_bytes": _size_bytes(kind, size, sizes)}

    spec = experiment.saved_or(cli.example_of("collective"), of_options)
    make_gate(output.note, force=force)(collective_run.collective_cost(spec))
    planned = collective_run.plan_collective(spec)
    listed = listing(planned.timed.schedule) if show else []
    made_of = collective_run.planned_terms(planned) if terms else ()
    with watching(quiet=quiet) as progress:
        result = replace(collective_run.collective_result(planned, progress), terms=made_of)
    summary = traffic_tables.collective_summary(result)
    write_messages(planned, summary, png=png, goal=goal, timeline=timeline)
    if not output.write_result(result, json) or goal == STDOUT:
        return
    if quiet:
        show_lines([summary, *listed])
        output.show_grids(filled(traffic_tables.terms_grid(result.terms, result.time_s)))
        return
    screen = traffic_tables.collective_screen(result)
    show_lines([*screen.before, *(["", *listed] if listed else [])])
    output.show_grids(screen.grids)


def _size_bytes(kind: str, size: str | None, sizes: str | None) -> int | tuple[int, ...]:
    from s2sim.collectives.schedules.demand import read_sizes

    if size is not None and sizes is not None:
        raise OptionError("--size and --sizes cannot be given together: leave one out")
    if sizes is not None:
        return tuple(read_sizes(Path(sizes)))
    if size is None and kind != "barrier":
        raise OptionError("--size must be given, for example --size 100MiB")
    return 0 if size is None else size_parser("--size")(size)


@cli.takes_tables
@cli.options_from(CollectiveSpec, leave_out=("groups", "cross_check"))
def table_command(
    experiment: cli.Experiment[CollectiveSpec],
    *,
    first: str | None = None,
    last: str | None = None,
    factor: int = 2,
    size: str | None = None,
    tuner: str | None = None,
    quiet: bool = False,
) -> None:
    """Print the simulated times of many sizes as nccl-tests prints measured ones.

    Sizes are those of nccl-tests: a rank's buffer, for an all-gather the gathered one.
    """
    cli.check_targets(tuner=tuner)
    from s2sim.traffic.size_sweep import simulated_table, size_table, sweep_sizes, time_sizes, write_tuner

    one, low, high = (
        None if text is None else size_parser(flag)(text)
        for flag, text in (("--size", size), ("--from", first), ("--to", last))
    )
    if one is not None and (low is not None or high is not None):
        raise OptionError("--size is one size, --from and --to are many: leave either out")
    if one is None and (low is None or high is None):
        raise OptionError("a table needs sizes: give --from 8B --to 1GiB, or --size 1MiB")
    sizes = [one] if one is not None else sweep_sizes(low or 0, high or 0, factor)
    spec = experiment.spec(size_bytes=sizes[-1])
    with watching(quiet=quiet) as progress:
        swept = time_sizes(spec, sizes, progress)
        if tuner is not None:
            made = write_tuner(spec, sizes, progress)
            write_text(made.text, tuner)
            swept.notes.append(f"{tuner}: {made.summary}")
    if output.write_tables(lambda: size_table(spec, swept)):
        # What reads tables of nccl-tests needs their lines whole.
        write_text("".join(f"{output.printable(line)}\n" for line in simulated_table(spec, swept, factor)), STDOUT)


@cli.takes_tables
@cli.options_from(CollectiveSpec, leave_out=("kind", "workers", "groups", "cross_check"))
def log_command(
    experiment: cli.Experiment[CollectiveSpec],
    *,
    log: str,
    kind: str | None = None,
    workers: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Simulate the sizes of a log as it says that they ran, and tell the difference term by term."""
    from s2sim.traffic.measured_files import read_measured
    from s2sim.validation.compare_log import choose_tables, compare_log

    ranks = None if workers is None else parse_workers(workers)
    found = choose_tables(read_measured(Path(log)), log, kind and kind.replace("-", "_"), ranks)
    spec = experiment.spec(kind=found.kind, workers=found.workers, size_bytes=found.largest_bytes)
    with watching(quiet=quiet) as progress:
        result = compare_log(spec, found, progress)
    output.show_result(result, json, show=output.show_line, quiet=quiet)
