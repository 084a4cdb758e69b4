"""``s2sim testbed``: a network on this machine whose rates one sets."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s2sim.cli import testbed_run
from s2sim.cli.options import JsonOption, examples, help_without_command, parse_workers
from s2sim.errors import OptionError

if TYPE_CHECKING:
    from s2sim.testbed.network.layout import Layout

_UP = (
    "s2sim testbed up --workers 8 --rate 1Gbps",
    "s2sim testbed up --nodes 2x4 --rate 1Gbps --uplink 500Mbps --name two-nodes",
)
_DOWN = ("s2sim testbed down", "s2sim testbed down two-nodes", "s2sim testbed down --all")
_LIST = ("s2sim testbed list", "s2sim testbed list --json -")
_SHOW = ("s2sim testbed show", "s2sim testbed show two-nodes --json -")
_DEFAULT_NAME = "testbed"
_NODES = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})")

app = typer.Typer(
    help="Make a network on this machine whose rates one sets: a namespace a worker, links with token buckets. "
    "Needs root.",
    rich_markup_mode=None,
    epilog=examples(_UP[0], _UP[1], _LIST[0], _DOWN[0], testbed_run.EXAMPLE),
)
app.command("run", epilog=testbed_run.EXAMPLES, short_help="Measure on a testbed.")(testbed_run.run_command)

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Name of a testbed.", show_default="the only one")
]


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    help_without_command(context)


@app.command("up", epilog=examples(*_UP), short_help="Make a testbed.")
def up_command(
    workers: Annotated[
        str | None, typer.Option(metavar="N", help="Number of workers. Required without --nodes.", show_default=False)
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Rate of every worker's interface each way, for example 1Gbps.",
            show_default="as fast as the machine",
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="NxM",
            help="N nodes of M workers, each node with a switch and an uplink that its workers share.",
            show_default="all workers on one switch",
        ),
    ] = None,
    uplink: Annotated[
        str | None,
        typer.Option(
            metavar="RATE", help="Rate of every node's uplink each way, with --nodes.", show_default="that of --rate"
        ),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="What to call it.")] = _DEFAULT_NAME,
    quiet: QuietOption = False,
) -> None:
    """Make a testbed: a network namespace for each worker, and links between them that keep their rates.

    It stays until s2sim testbed down; nothing of it shows in the machine's own network.
    """
    from s2sim.cli.output import show_lines, working
    from s2sim.testbed.network.build import build

    layout = _layout(workers, rate, nodes, uplink, name)
    with working("making namespaces and links", quiet=quiet):
        build(layout)
    if not quiet:
        show_lines([_summary(layout), f"A command of worker 0: ip netns exec {layout.namespace(0)} COMMAND"])


@app.command("down", epilog=examples(*_DOWN), short_help="Remove a testbed.")
def down_command(
    name: NameArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all testbeds.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Remove a testbed, whole or half made, and end the processes that run in it."""
    from s2sim.cli.output import show_lines
    from s2sim.testbed.network.existing import names, remove

    if everything and name is not None:
        raise OptionError(f"--all and {name}: give one of them")
    for each in names() if everything else (_named(name),):
        ended = remove(each)
        if not quiet:
            processes = "1 process in it was" if ended == 1 else f"{ended} processes in it were"
            show_lines([f"{each} is removed{f', and {processes} ended' if ended else ''}"])


@app.command("list", epilog=examples(*_LIST), short_help="List testbeds.")
def list_command(json: JsonOption = None) -> None:
    """List the testbeds of this machine, those too that were left half made."""
    from s2sim.cli.output import STDOUT, show_lines, write_json
    from s2sim.cli.targets import check_targets
    from s2sim.testbed.network.existing import find, names

    check_targets(json=json)
    testbeds = {name: find(name) for name in names()}
    if json is not None:
        write_json({"testbeds": [_to_json(name, layout) for name, layout in testbeds.items()]}, json)
    if json != STDOUT:
        show_lines([_text(name, layout) for name, layout in testbeds.items()] or ["no testbed"])


@app.command("show", epilog=examples(*_SHOW), short_help="Show a testbed.")
def show_command(name: NameArgument = None, json: JsonOption = None) -> None:
    """Show a testbed: its rates, and the namespace, address and node of every worker."""
    from s2sim.cli.output import STDOUT, show_lines, write_json
    from s2sim.cli.targets import check_targets
    from s2sim.report.tables.text import aligned
    from s2sim.testbed.network.existing import find, processes_in
    from s2sim.testbed.network.layout import address

    check_targets(json=json)
    chosen = _named(name)
    layout = find(chosen)
    running = processes_in(chosen)
    if json is not None:
        write_json({**_to_json(chosen, layout), "processes": running}, json)
    if json == STDOUT:
        return
    show_lines([_text(chosen, layout), f"processes: {', '.join(map(str, running)) or 'none'}"])
    if layout is not None:
        rows = [
            (f"worker {worker}", f"node {layout.node_of(worker)}", address(worker), layout.namespace(worker))
            for worker in range(layout.workers)
        ]
        show_lines(["", *aligned(rows, indent="  ")])


def _layout(workers: str | None, rate: str | None, nodes: str | None, uplink: str | None, name: str) -> Layout:
    from s2sim.testbed.network.layout import Layout
    from s2sim.units import parse_option, parse_rate_Bps

    count = None if workers is None else parse_workers(workers)
    rate_Bps = math.inf if rate is None else parse_option("--rate", parse_rate_Bps, rate)
    if nodes is None:
        if uplink is not None:
            raise OptionError(f"--uplink {uplink} changes nothing without --nodes: one switch joins all workers")
        if count is None:
            raise OptionError("say how many workers there are, for example --workers 8 or --nodes 2x4")
        return Layout(name, count, count, rate_Bps)
    match = _NODES.fullmatch(nodes)
    if match is None:
        raise OptionError(f"--nodes {nodes!r}: write nodes and workers of each, for example --nodes 2x4")
    number, each = int(match[1]), int(match[2])
    if count is not None and number * each != count:
        raise OptionError(f"--nodes {nodes} makes {number * each} workers, and --workers says {count}: leave that out")
    if number == 1 or each == 1:
        raise OptionError(f"--nodes {nodes} has no uplink that workers share: write --workers {number * each} instead")
    uplink_Bps = rate_Bps if uplink is None else parse_option("--uplink", parse_rate_Bps, uplink)
    return Layout(name, number * each, number, rate_Bps, uplink_Bps)


def _named(name: str | None) -> str:
    """Return the name of a testbed, by default of the only one."""
    from s2sim.testbed.network.existing import names

    if name is not None:
        return name
    known = names()
    if not known:
        raise OptionError("there is no testbed: make one with s2sim testbed up --workers 8 --rate 1Gbps")
    if len(known) > 1:
        raise OptionError(f"there are several testbeds: name one of {', '.join(known)}")
    return known[0]


def _text(name: str, layout: Layout | None) -> str:
    return f"{name}: half made; remove it with s2sim testbed down {name}" if layout is None else _summary(layout)


def _summary(layout: Layout) -> str:
    from s2sim.report.tables.texts import workers_text
    from s2sim.units import format_rate

    def of(rate_Bps: float) -> str:
        return f"{format_rate(rate_Bps)} each way" if math.isfinite(rate_Bps) else "as fast as the machine"

    text = f"{layout.name}: {workers_text(layout.workers)}"
    if not layout.joined:
        return f"{text} on one switch, {of(layout.rate_Bps)}"
    each = layout.workers // layout.nodes
    return f"{text}, {layout.nodes} nodes of {each}; workers {of(layout.rate_Bps)}, uplinks {of(layout.uplink_Bps)}"


def _to_json(name: str, layout: Layout | None) -> dict[str, Any]:
    from dataclasses import asdict

    return {"name": name, "whole": layout is not None, **({} if layout is None else asdict(layout))}
