"""``s2sim dev testbed``: a network on this machine whose rates one sets."""

from __future__ import annotations

import math
import re
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sim.cli.options import JSON, QUIET, SILENT, argument, check_targets, examples, group, option, switch
from s2sim.cli.output import (
    STDOUT,
    json_alone,
    show_grids,
    show_line,
    show_lines,
    show_result,
    watching,
    working,
    write_figure,
    write_text,
)
from s2sim.errors import OptionError
from s2sim.experiment.cluster_spec import parse_worker_list, parse_workers
from s2sim.units import PS_PER_S, format_number_of, format_rate, parse_option, parse_rate_Bps, parse_time_ps

if TYPE_CHECKING:
    from s2sim.testbed.layout import NetworkLayout

_UP = (
    "s2sim dev testbed up --workers 8 --rate 1Gbps",
    "s2sim dev testbed up --nodes 2x4 --rate 1Gbps --uplink 500Mbps --name two-nodes",
)
_DOWN = ("s2sim dev testbed down", "s2sim dev testbed down two-nodes", "s2sim dev testbed down --all")
_LIST = ("s2sim dev testbed list", "s2sim dev testbed list --json -")
_SHOW = ("s2sim dev testbed show", "s2sim dev testbed show two-nodes --json -")
_RUN_EXAMPLE = "s2sim dev testbed run --workers 2,4 --rate 200Mbps,1Gbps --sizes 1KiB-4MiB --out mine"
_RUN = examples(
    "s2sim dev testbed run NAME --out mine",
    _RUN_EXAMPLE,
    "s2sim dev testbed run --nodes 2x4 --rate 1Gbps --uplink 500Mbps --collective all_reduce --out mine",
    "s2sim dev testbed run --workers 4 --rate 100Mbps,1Gbps --what reducers --reducer dense --reducer union --out mine",
    "s2sim dev testbed run --workers 2 --rate 200Mbps --what iterations --compute 50ms --out mine --json -",
)
_COMPARE = examples(
    "s2sim dev testbed compare",
    "s2sim dev testbed compare --calibrate-on w8-1000mbps --json -",
    "s2sim dev testbed compare my-testbeds --png times.png",
)
_TOPOLOGY = examples(
    "s2sim dev testbed topology w8-1000mbps --out testbed.toml",
    "s2sim collective all_reduce --topology testbed.toml --workers 8 --size 1MiB",
)
_DEFAULT_NAME = "testbed"
_NODES = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})")

app = group(
    help="Make a network on this machine whose rates one sets: a namespace a worker, links with token buckets. "
    "Needs root.",
    epilog=examples(_UP[0], _UP[1], _LIST[0], _DOWN[0], _RUN_EXAMPLE),
)

NAME = argument("NAME", "Name of a testbed.", "the only one")


@app.command("compare", epilog=_COMPARE, short_help="Predict what was measured.")
def compare_command(
    folder: str | None = argument("DIR", "Folder with what s2sim dev testbed run measured.", "what is shipped"),
    calibrate_on: str | None = option(
        "SETTING", "The setting whose collectives tell the constants; all others are predicted.", "the first"
    ),
    png: str | None = option(
        "FILE.png", "Draw predicted and measured times of collectives; .svg and .pdf work too.", "no file"
    ),
    json: str | None = JSON,
    quiet: bool = QUIET,
) -> None:
    """Predict what was measured on testbeds, with constants that one setting alone tells.

    Collectives are simulated on the cluster that each setting is. Of reducers the exchange is simulated; codecs, which
    are NumPy on shared processors here, take what the calibrated setting measured, scaled.
    """
    check_targets(json=json, png=png)
    from s2sim.report.testbed_tables import comparison_screen
    from s2sim.testbed.measured import read_measured, resolve_testbeds_folder
    from s2sim.validation.testbed import compare_testbeds

    measured = read_measured(resolve_testbeds_folder(folder))
    with watching(quiet=quiet) as progress:
        result = compare_testbeds(measured, calibrate_on, progress)
    if png is not None:
        from s2sim.report.figures.testbed import times_figure

        write_figure(times_figure(result), png)
    show_result(result, json, comparison_screen(result), show_line, quiet=quiet)


@app.command("topology", epilog=_TOPOLOGY, short_help="Write a testbed's topology.")
def topology_command(
    setting: str = argument("SETTING", "Name of a setting that was measured.", default=...),
    folder: str | None = option("DIR", "Folder with what s2sim dev testbed run measured.", "what is shipped"),
    out: str | None = option("FILE.toml", "Where to write it.", "the screen"),
) -> None:
    """Write the cluster that a setting is to the simulator as a topology file."""
    from s2sim.testbed.measured import read_measured, resolve_testbeds_folder
    from s2sim.validation.testbed import setting_named
    from s2sim.validation.testbed_fit import setting_toml

    check_targets(out=out)
    measured = read_measured(resolve_testbeds_folder(folder))
    text = setting_toml(setting_named(measured, setting))
    if out is None:
        show_lines(text.rstrip().splitlines())
    else:
        write_text(text, out)


@app.command("up", epilog=examples(*_UP), short_help="Make a testbed.")
def up_command(
    workers: str | None = option("N", "Number of workers. Required without --nodes.", False),
    rate: str | None = option(
        "RATE", "Rate of every worker's interface each way, for example 1Gbps.", "as fast as the machine"
    ),
    nodes: str | None = option(
        "NxM",
        "N nodes of M workers, each node with a switch and an uplink that its workers share.",
        "all workers on one switch",
    ),
    uplink: str | None = option("RATE", "Rate of every node's uplink each way, with --nodes.", "that of --rate"),
    name: str = option("NAME", "What to call it.", default=_DEFAULT_NAME),
    quiet: bool = SILENT,
) -> None:
    """Make a testbed: a network namespace for each worker, and links between them that keep their rates.

    It stays until s2sim dev testbed down; nothing of it shows in the machine's own network.
    """
    from s2sim.testbed.network import build_testbed

    layout = _layout(workers, rate, nodes, uplink, name)
    with working("making namespaces and links", quiet=quiet):
        build_testbed(layout)
    if not quiet:
        show_lines([_summary(layout), f"A command of worker 0: ip netns exec {layout.namespace(0)} COMMAND"])


@app.command("down", epilog=examples(*_DOWN), short_help="Remove a testbed.")
def down_command(
    name: str | None = NAME, everything: bool = switch("--all", "Remove all testbeds."), quiet: bool = SILENT
) -> None:
    """Remove a testbed, whole or half made, and end the processes that run in it."""
    from s2sim.testbed.network import list_testbed_names, remove_testbed

    if everything and name is not None:
        raise OptionError(f"--all and {name}: give one of them")
    for each in list_testbed_names() if everything else (_named(name),):
        ended = remove_testbed(each)
        if not quiet:
            processes = "1 process in it was" if ended == 1 else f"{ended} processes in it were"
            show_lines([f"{each} is removed{f', and {processes} ended' if ended else ''}"])


@app.command("list", epilog=examples(*_LIST), short_help="List testbeds.")
def list_command(json: str | None = JSON) -> None:
    """List the testbeds of this machine, those too that were left half made."""
    from s2sim.testbed.network import find_testbed, list_testbed_names

    check_targets(json=json)
    testbeds = {name: find_testbed(name) for name in list_testbed_names()}
    if not json_alone({"testbeds": [_to_json(name, layout) for name, layout in testbeds.items()]}, json):
        show_lines([_text(name, layout) for name, layout in testbeds.items()] or ["no testbed"])


@app.command("show", epilog=examples(*_SHOW), short_help="Show a testbed.")
def show_command(name: str | None = NAME, json: str | None = JSON) -> None:
    """Show a testbed: its rates, and the namespace, address and node of every worker."""
    from s2sim.report.format import aligned
    from s2sim.testbed.layout import address
    from s2sim.testbed.network import find_testbed, processes_in

    check_targets(json=json)
    chosen = _named(name)
    layout = find_testbed(chosen)
    running = processes_in(chosen)
    if json_alone({**_to_json(chosen, layout), "processes": running}, json):
        return
    show_lines([_text(chosen, layout), f"processes: {', '.join(map(str, running)) or 'none'}"])
    if layout is not None:
        rows = [
            (f"worker {worker}", f"node {layout.node_of(worker)}", address(worker), layout.namespace(worker))
            for worker in range(layout.workers)
        ]
        show_lines(["", *aligned(rows, indent="  ")])


@app.command("run", epilog=_RUN, short_help="Measure on a testbed.")
def run_command(
    out: str = option("FOLDER", "Where rows are added; what it has already is not measured again.", default=...),
    name: str | None = argument("NAME", "A testbed that is up (see s2sim dev testbed list).", "made and removed"),
    workers: str | None = option("N,...", "Make a testbed for each number of workers.", "none is made"),
    rate: str | None = option(
        "RATE,...", "Of every worker's interface, each way; one testbed for each.", "as fast as the machine"
    ),
    nodes: str | None = option("NxM", "Instead of --workers: N nodes of M workers.", "one switch"),
    uplink: str | None = option(
        "RATE,...", "Of every node's uplink, each way; one testbed for each.", "that of --rate"
    ),
    what: str = option(
        "KIND,...", "collectives, reducers and iterations, or some of them.", default="collectives,reducers"
    ),
    collective: list[str] | None = option(
        "NAME",
        "all_reduce, all_gather, reduce_scatter, all_to_all or broadcast; repeatable.",
        "all_reduce, all_gather and all_to_all",
    ),
    sizes: str = option(
        "SIZE-SIZE|SIZE,...",
        "Buffers of collectives, as nccl-tests count them: from one to another in steps of four, or a list.",
        default="1KiB-4MiB",
    ),
    reducer: list[str] | None = option(
        "NAME[:KEY=VALUE,...]",
        "For reducers and iterations, repeatable (see s2sim list reducers).",
        "dense and seven others",
    ),
    trace: str = option("NAME|DIR", "What they reduce (see s2sim list traces).", default="ncf"),
    compute: str = option("TIME", "For iterations: how long every worker computes first.", default="50ms"),
    repeats: int = option("N", "Most repetitions of a row, after two.", default=30, minimum=3),
    budget: str = option("TIME", "Repetitions of a row end after so long, once there are three.", default="2s"),
    seed: int = option("N", "Seed of what reducers draw.", default=0, minimum=0),
    json: str | None = JSON,
    quiet: bool = QUIET,
) -> None:
    """Measure collectives, reducers and iterations between real processes on a network of set rates.

    All ranks begin at one instant, and a time ends when the last is done. Rows stay when it is interrupted; called
    again, it goes on with what is missing. Needs root, iproute2 and the extra torch.
    """
    from s2sim.report.testbed_tables import measured_grids, measured_lines
    from s2sim.testbed.measure import MeasurementPlan, Repetitions, measure_series
    from s2sim.testbed.measured import read_measured
    from s2sim.testbed.settings import (
        COLLECTIVES_BY_DEFAULT,
        REDUCERS,
        RequestedMeasurements,
        choose_layouts,
        parse_kinds,
        parse_sizes,
    )

    check_targets(json=json)
    wanted = RequestedMeasurements(
        parse_kinds(what),
        tuple(collective or COLLECTIVES_BY_DEFAULT),
        parse_sizes(sizes),
        tuple(reducer or REDUCERS),
        trace,
        parse_option("--compute", parse_time_ps, compute) / PS_PER_S,
    )
    effort = Repetitions(repeats, parse_option("--budget", parse_time_ps, budget) / PS_PER_S)
    counts = () if workers is None else parse_worker_list(workers)
    layouts = choose_layouts(name, workers=counts, rate=rate, nodes=nodes, uplink=uplink)
    folder, rows = Path(out), 0
    with watching(quiet=quiet) as progress:

        def advance() -> None:
            nonlocal rows
            rows += 1
            progress.advance()

        try:
            measure_series(
                folder,
                layouts,
                MeasurementPlan(wanted.tasks, effort, seed),
                command=shlex.join(["s2sim", *sys.argv[1:]]),
                existing=name is not None,
                start=progress.start,
                advance=advance,
            )
        except KeyboardInterrupt:
            progress.stop()
            if json != STDOUT:
                goes_on = "the same command goes on with those that are missing"
                show_lines([f"{format_number_of(rows, 'new row')} in {out}; {goes_on}."])
            raise
    measured = read_measured(folder).only({layout.name for layout in layouts}, wanted.kinds)
    if json_alone(asdict(measured), json):
        return
    if not quiet:
        show_grids(measured_grids(measured))
        show_lines(["", *measured_lines(measured)])
    show_lines([f"{format_number_of(rows, 'new row')} in {out}."])


def _layout(workers: str | None, rate: str | None, nodes: str | None, uplink: str | None, name: str) -> NetworkLayout:
    from s2sim.testbed.layout import NetworkLayout

    count = None if workers is None else parse_workers(workers)
    rate_Bps = math.inf if rate is None else parse_option("--rate", parse_rate_Bps, rate)
    if nodes is None:
        if uplink is not None:
            raise OptionError(f"--uplink {uplink} changes nothing without --nodes: one switch joins all workers")
        if count is None:
            raise OptionError("say how many workers there are, for example --workers 8 or --nodes 2x4")
        return NetworkLayout(name, count, count, rate_Bps)
    match = _NODES.fullmatch(nodes)
    if match is None:
        raise OptionError(f"--nodes {nodes!r}: write nodes and workers of each, for example --nodes 2x4")
    number = int(match[1])
    total = number * int(match[2])
    if count is not None and total != count:
        raise OptionError(f"--nodes {nodes} makes {total} workers, and --workers says {count}: leave that out")
    if number in (1, total):
        raise OptionError(f"--nodes {nodes} has no uplink that workers share: write --workers {total} instead")
    uplink_Bps = rate_Bps if uplink is None else parse_option("--uplink", parse_rate_Bps, uplink)
    return NetworkLayout(name, total, number, rate_Bps, uplink_Bps)


def _named(name: str | None) -> str:
    """Return ``name``, or the name of the only testbed."""
    from s2sim.testbed.network import list_testbed_names

    if name is not None:
        return name
    names = list_testbed_names()
    if not names:
        raise OptionError("there is no testbed: make one with s2sim dev testbed up --workers 8 --rate 1Gbps")
    if len(names) > 1:
        raise OptionError(f"there are several testbeds: name one of {', '.join(names)}")
    return names[0]


def _text(name: str, layout: NetworkLayout | None) -> str:
    return f"{name}: half made; remove it with s2sim dev testbed down {name}" if layout is None else _summary(layout)


def _summary(layout: NetworkLayout) -> str:
    from s2sim.report.format import workers_text

    def of(rate_Bps: float) -> str:
        return f"{format_rate(rate_Bps)} each way" if math.isfinite(rate_Bps) else "as fast as the machine"

    text = f"{layout.name}: {workers_text(layout.workers)}"
    if not layout.joined:
        return f"{text} on one switch, {of(layout.rate_Bps)}"
    each = layout.workers // layout.nodes
    return f"{text}, {layout.nodes} nodes of {each}; workers {of(layout.rate_Bps)}, uplinks {of(layout.uplink_Bps)}"


def _to_json(name: str, layout: NetworkLayout | None) -> dict[str, Any]:
    return {"name": name, "whole": layout is not None, **({} if layout is None else asdict(layout))}
