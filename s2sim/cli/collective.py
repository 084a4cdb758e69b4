"""``s2sim collective``: time one collective on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from s2sim.cli import options as cli
from s2sim.cli.output import STDOUT, note, printable, show_line, show_result, watching, write_tables, write_text
from s2sim.errors import OptionError
from s2sim.experiment.cluster_spec import parse_workers, size_parser
from s2sim.traffic.spec import CollectiveSpec

_EXAMPLE = "s2sim collective all_reduce --topology fat-tree --workers 64 --size 100MiB"
EXAMPLES = cli.examples(
    _EXAMPLE,
    "s2sim collective all_reduce --topology single-switch --workers 1024 --size 100MiB --algorithm ring --json -",
    "s2sim collective all_reduce --topology dgx-h100 --workers 16 --size 1MiB --library nccl",
    "s2sim collective all_reduce --topology dgx-h100 --workers 16 --size 64MiB --library nccl --terms",
    "s2sim collective all_reduce --topology dgx-h100 --workers 64 --size 1GiB --groups tp=4,pp=2,dp=rest",
    "s2sim collective all_gather --topology leaf-spine --workers 32 --size 1GiB --placement round-robin",
    "s2sim collective all_to_all --topology fat-tree --workers 32 --size 64MiB --timeline all_to_all.json",
    "s2sim collective reduce_scatter --topology ring --workers 4 --size 4KiB --algorithm ring --show",
    "s2sim collective all_reduce --topology leaf-spine --workers 16 --size 1MiB --cross-check",
    "s2sim collective all_reduce --topology fat-tree --workers 32 --size 8MiB --fault fail-link:link=leaf0.up1,at=1ms "
    "--fault background:load=0.2",
)
TABLE_EXAMPLES = cli.examples(
    "s2sim collective table all_reduce --topology dgx-h100 --workers 16 --library nccl --from 8B --to 1GiB",
    "s2sim collective table all_gather --topology fat-tree --workers 16 --from 1MiB --to 64MiB --factor 4",
    "s2sim collective table all_reduce --topology dgx-h100 --workers 16 --library nccl --from 1KiB --to 1GiB "
    "--tuner nccl_tuner.conf",
)
LOG_EXAMPLES = cli.examples(
    "s2sim collective log measured.log --topology dgx-h100 --library nccl",
    "s2sim collective log measured.log all_reduce --topology dgx-h100 --workers 2 --json -",
)

_RARE = ("execution", "packet_bytes", "buffer_bytes", "seed")


@cli.takes_tables(hidden=("parquet", "latex"))
@cli.options_from(CollectiveSpec, needed=("kind", "topology", "workers"), hidden=_RARE)
def collective_command(
    experiment: cli.Experiment[CollectiveSpec],
    size: str | None = cli.option(
        "SIZE",
        "Size with its unit, for example 100MiB, as nccl-tests counts it: a rank's buffer, for an "
        "all-gather the gathered one. Required but for a barrier.",
        False,
    ),
    sizes: str | None = cli.option(
        "FILE", "Instead of --size: a size for each rank, one a line, where contributions are unequal.", "equal ones"
    ),
    show: bool = cli.switch("--show", "List the schedule, message by message; for few ranks."),
    terms: bool = cli.switch(
        "--terms", "Show what the time is the sum of: launches, hops, bytes of links; also in --json."
    ),
    png: str | None = cli.option(
        "FILE.png", "Draw the messages over time (.png, .svg or .pdf); for few ranks.", "no picture"
    ),
    goal: str | None = cli.option(
        "FILE|-", "Write the schedule as GOAL text, which LogGOPSim and ATLAHS run.", "no file"
    ),
    timeline: str | None = cli.TIMELINE,
    json: str | None = cli.JSON,
    force: bool = cli.FORCE,
    quiet: bool = cli.QUIET,
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

    from s2sim.cli import collective_output as output
    from s2sim.experiment.costs import make_gate
    from s2sim.traffic.collective_run import collective_cost

    def of_options() -> dict[str, Any]:
        # Errors of these are reported before those of sizes.
        kind, workers = values["kind"].replace("-", "_"), parse_workers(values["workers"])
        return {"kind": kind, "workers": workers, "size_bytes": _size_bytes(kind, size, sizes)}

    spec = experiment.saved_or(_EXAMPLE, of_options)
    make_gate(note, force=force)(collective_cost(spec))
    output.show_collective(spec, show=show, terms=terms, png=png, goal=goal, timeline=timeline, json=json, quiet=quiet)


def _size_bytes(kind: str, size: str | None, sizes: str | None) -> int | tuple[int, ...]:
    from s2sim.collectives.schedules.demand import read_sizes

    if size is not None and sizes is not None:
        raise OptionError("--size and --sizes cannot be given together: leave one out")
    if sizes is not None:
        return tuple(read_sizes(Path(sizes)))
    if size is None and kind != "barrier":
        raise OptionError("--size must be given, for example --size 100MiB")
    return 0 if size is None else size_parser("--size")(size)


@cli.takes_tables(hidden=("parquet", "latex"))
@cli.options_from(CollectiveSpec, leave_out=("groups", "cross_check"), hidden=_RARE)
def table_command(
    experiment: cli.Experiment[CollectiveSpec],
    first: str | None = cli.option("SIZE", "First size, with its unit, for example 8B.", False, flag="--from"),
    last: str | None = cli.option("SIZE", "Last size, for example 1GiB.", False, flag="--to"),
    factor: int = cli.option("N", "Ratio of one size to the next.", default=2),
    size: str | None = cli.option("SIZE", "This size alone, instead of --from and --to.", False),
    tuner: str | None = cli.option(
        "FILE", "Write what NCCL's example tuner plug-in reads: the fastest choice at each size.", "no file"
    ),
    quiet: bool = cli.QUIET,
) -> None:
    """Print the simulated times of many sizes as nccl-tests prints measured ones.

    Sizes are those of nccl-tests: a rank's buffer, for an all-gather the gathered one.
    """
    cli.check_targets(tuner=tuner)
    from s2sim.traffic.size_sweep import simulated_table, size_table, sweep_sizes, time_sizes

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
            from s2sim.traffic.tuner_file import write_tuner

            made = write_tuner(spec, sizes, progress)
            write_text(made.text, tuner)
            swept.notes.append(f"{tuner}: {made.summary}")
    if write_tables(lambda: size_table(spec, swept)):
        # What reads tables of nccl-tests needs their lines whole.
        write_text("".join(f"{printable(line)}\n" for line in simulated_table(spec, swept, factor)), STDOUT)


@cli.takes_tables(hidden=("parquet", "latex"))
@cli.options_from(CollectiveSpec, leave_out=("kind", "workers", "groups", "cross_check"), hidden=_RARE)
def log_command(
    experiment: cli.Experiment[CollectiveSpec],
    log: str = cli.argument(
        "LOG", "What nccl-tests or rccl-tests printed, best with NCCL_DEBUG=INFO, or their JSON or CSV.", default=...
    ),
    kind: str | None = cli.argument("KIND", "Collective, such as all_reduce.", "what the log says"),
    workers: str | None = cli.option("N", "Number of ranks.", "as many as the log says"),
    json: str | None = cli.JSON,
    quiet: bool = cli.QUIET,
) -> None:
    """Simulate the sizes of a log as it says that they ran, and tell the difference term by term."""
    cli.check_targets(json=json)
    from s2sim.traffic.measured_files import read_measured
    from s2sim.validation.compare_log import choose_tables, compare_log

    ranks = None if workers is None else parse_workers(workers)
    found = choose_tables(read_measured(Path(log)), log, kind and kind.replace("-", "_"), ranks)
    spec = experiment.spec(kind=found.kind, workers=found.workers, size_bytes=found.largest_bytes)
    with watching(quiet=quiet) as progress:
        result = compare_log(spec, found, progress)
    show_result(result, json, show=show_line, quiet=quiet)
