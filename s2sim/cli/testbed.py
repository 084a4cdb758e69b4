"""``s2sim dev testbed``: a network on this machine whose rates one sets."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sim import units
from s2sim.cli import output
from s2sim.cli.options import check_targets, command, group
from s2sim.errors import OptionError
from s2sim.experiment.cluster_spec import parse_worker_list, parse_workers
from s2sim.report.format import aligned, workers_text

if TYPE_CHECKING:
    from s2sim.testbed.layout import NetworkLayout

app = group("dev testbed")


@command(app, "dev testbed compare")
def compare_command(
    *,
    folder: str | None = None,
    calibrate_on: str | None = None,
    png: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Predict what was measured on testbeds, with constants that one setting alone tells.

    Collectives are simulated on the cluster that each setting is. Of reducers the exchange is simulated; codecs, which
    are NumPy on shared processors here, take what the calibrated setting measured, scaled.
    """
    check_targets(json=json, png=png)
    from s2sim.report.log_comparison import comparison_screen
    from s2sim.testbed.measured import read_measured, resolve_testbeds_folder
    from s2sim.validation.testbed import compare_testbeds

    place = resolve_testbeds_folder(folder)
    with output.watching(quiet=quiet) as progress:
        result = compare_testbeds(read_measured(place), calibrate_on, progress, place)
    if png is not None:
        from s2sim.report.figures.charts import times_figure

        output.write_figure(times_figure(result), png)
    output.show_result(result, json, comparison_screen(result), output.show_line, quiet=quiet)


@command(app, "dev testbed topology")
def topology_command(*, setting: str, folder: str | None = None, out: str | None = None) -> None:
    """Write the cluster that a setting, or a testbed that is up, is to the simulator as a topology file."""
    from s2sim.testbed import measured, network, series
    from s2sim.validation.testbed import setting_named
    from s2sim.validation.testbed_fit import setting_toml

    check_targets(out=out)
    if folder is None and setting in network.list_testbed_names():
        (layout,) = series.choose_layouts(setting, workers=(), rate=None, nodes=None, uplink=None)
        found = series.current_setting(layout, "")
    else:
        found = setting_named(measured.read_measured(measured.resolve_testbeds_folder(folder)), setting)
    output.write_text(setting_toml(found), out or output.STDOUT)


@command(app, "dev testbed up")
def up_command(
    *,
    workers: str | None = None,
    rate: str | None = None,
    nodes: str | None = None,
    uplink: str | None = None,
    name: str = "testbed",
    quiet: bool = False,
) -> None:
    """Make a testbed: a network namespace for each worker, and links between them that keep their rates.

    It stays until s2sim dev testbed down; nothing of it shows in the machine's own network.
    """
    from s2sim.testbed.network import build_testbed

    layout = _layout(workers, rate, nodes, uplink, name)
    with output.working("making namespaces and links", quiet=quiet):
        build_testbed(layout)
    if not quiet:
        example = f"A command of worker 0: ip netns exec {layout.namespace(0)} COMMAND"
        output.show_lines([_text(layout.name, layout), example])


@command(app, "dev testbed down")
def down_command(*, name: str | None = None, everything: bool = False, quiet: bool = False) -> None:
    """Remove a testbed, whole or half made, and end the processes that run in it."""
    from s2sim.testbed.network import list_testbed_names, remove_testbed

    if everything and name is not None:
        raise OptionError(f"--all and {name}: give one of them")
    for each in list_testbed_names() if everything else (_named(name),):
        ended = remove_testbed(each)
        if not quiet:
            processes = "1 process in it was" if ended == 1 else f"{ended} processes in it were"
            output.show_lines([f"{each} is removed{f', and {processes} ended' if ended else ''}"])


@command(app, "dev testbed list")
def list_command(*, json: str | None = None) -> None:
    """List the testbeds of this machine, those too that were left half made."""
    from s2sim.testbed.network import find_testbed, list_testbed_names

    check_targets(json=json)
    testbeds = {name: find_testbed(name) for name in list_testbed_names()}
    if not output.json_alone({"testbeds": [_to_json(name, layout) for name, layout in testbeds.items()]}, json):
        output.show_lines([_text(name, layout) for name, layout in testbeds.items()] or ["no testbed"])


@command(app, "dev testbed show")
def show_command(*, name: str | None = None, json: str | None = None) -> None:
    """Show a testbed: its rates, and the namespace, address and node of every worker."""
    from s2sim.testbed.layout import address
    from s2sim.testbed.network import find_testbed, processes_in

    check_targets(json=json)
    chosen = _named(name)
    layout = find_testbed(chosen)
    running = processes_in(chosen)
    if output.json_alone({**_to_json(chosen, layout), "processes": running}, json):
        return
    output.show_lines([_text(chosen, layout), f"processes: {', '.join(map(str, running)) or 'none'}"])
    if layout is not None:
        rows = [
            (f"worker {worker}", f"node {layout.node_of(worker)}", address(worker), layout.namespace(worker))
            for worker in range(layout.workers)
        ]
        output.show_lines(["", *aligned(rows, indent="  ")])


@command(app, "dev testbed run")
def run_command(
    *,
    out: str,
    name: str | None = None,
    workers: str | None = None,
    rate: str | None = None,
    nodes: str | None = None,
    uplink: str | None = None,
    what: str = "collectives,reducers",
    collective: list[str] | None = None,
    sizes: str = "1KiB-4MiB",
    reducer: list[str] | None = None,
    trace: str = "ncf",
    compute: str = "50ms",
    model: str | None = None,
    module: str | None = None,
    batch: int | None = None,
    text: list[str] | None = None,
    bucket: str = "25MiB",
    repeats: int = 30,
    budget: str = "2s",
    seed: int = 0,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Measure collectives, reducers and training between real processes on a network of set rates.

    All ranks begin at one instant, and a time ends when the last is done. Training is that of DistributedDataParallel:
    it is recorded once for each number of workers, as --recorded takes it, codecs of its hooks are measured, and its
    iterations timed without a hook, with reducers, and with PyTorch's own hooks. Rows stay when it is interrupted;
    called again, it goes on with what is missing. Needs root, iproute2 and the extra torch.
    """
    from s2sim.report.log_comparison import measured_grids, measured_lines
    from s2sim.testbed import series
    from s2sim.testbed.measure import Repetitions
    from s2sim.testbed.measured import read_measured
    from s2sim.testbed.training import Training
    from s2sim.validation.calibrate_codecs import calibrate_hooks

    check_targets(json=json)
    limit_bytes = units.parse_option("--bucket", units.parse_size_bytes, bucket)
    trained = Training(model, module, batch, limit_bytes, seed, tuple(text or ())) if model or module else None
    if trained is None and (batch is not None or text):
        raise OptionError("--batch and --text are of --what training, with --module FILE.py:FUNCTION or --model NAME")
    asked = series.RequestedMeasurements(
        series.parse_kinds(what),
        tuple(collective or series.COLLECTIVES_BY_DEFAULT),
        series.parse_sizes(sizes),
        tuple(reducer or series.REDUCERS),
        trace,
        units.parse_option("--compute", units.parse_time_ps, compute) / units.PS_PER_S,
        trained,
        tuple(reducer or series.HOOKS),
        Repetitions(repeats, units.parse_option("--budget", units.parse_time_ps, budget) / units.PS_PER_S),
        seed,
    )
    counts = () if workers is None else parse_worker_list(workers)
    layouts = series.choose_layouts(name, workers=counts, rate=rate, nodes=nodes, uplink=uplink)
    folder, rows = Path(out), 0
    with output.watching(quiet=quiet) as progress:

        def advance() -> None:
            nonlocal rows
            rows += 1
            progress.advance()

        try:
            existing, start, line = name is not None, progress.start, output.own_command()
            series.measure_series(folder, layouts, asked, command=line, existing=existing, start=start, advance=advance)
            if trained is not None:
                calibrate_hooks(folder, trained.name, progress, anew=rows > 0)
        except KeyboardInterrupt:
            progress.stop()
            if json != output.STDOUT:
                goes_on = "the same command goes on with those that are missing"
                output.show_lines([f"{units.format_number_of(rows, 'new row')} in {out}; {goes_on}."])
            raise
    measured = read_measured(folder).only({layout.name for layout in layouts}, asked.kinds)
    if output.json_alone(asdict(measured), json):
        return
    if not quiet:
        output.show_grids(measured_grids(measured))
        output.show_lines(["", *measured_lines(measured)])
    output.show_lines([f"{units.format_number_of(rows, 'new row')} in {out}."])


def _layout(workers: str | None, rate: str | None, nodes: str | None, uplink: str | None, name: str) -> "NetworkLayout":
    from s2sim.testbed.layout import NetworkLayout
    from s2sim.testbed.series import parse_nodes

    count = None if workers is None else parse_workers(workers)
    rate_Bps = math.inf if rate is None else units.parse_option("--rate", units.parse_rate_Bps, rate)
    if nodes is None:
        if uplink is not None:
            raise OptionError(f"--uplink {uplink} changes nothing without --nodes: one switch joins all workers")
        if count is None:
            raise OptionError("say how many workers there are, for example --workers 8 or --nodes 2x4")
        return NetworkLayout(name, count, count, rate_Bps)
    total, number = parse_nodes(nodes)
    if count is not None and total != count:
        raise OptionError(f"--nodes {nodes} makes {total} workers, and --workers says {count}: leave that out")
    if number in (1, total):
        raise OptionError(f"--nodes {nodes} has no uplink that workers share: write --workers {total} instead")
    uplink_Bps = rate_Bps if uplink is None else units.parse_option("--uplink", units.parse_rate_Bps, uplink)
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


def _text(name: str, layout: "NetworkLayout | None") -> str:
    if layout is None:
        return f"{name}: half made; remove it with s2sim dev testbed down {name}"

    def of(rate_Bps: float) -> str:
        return f"{units.format_rate(rate_Bps)} each way" if math.isfinite(rate_Bps) else "as fast as the machine"

    text = f"{layout.name}: {workers_text(layout.workers)}"
    if not layout.joined:
        return f"{text} on one switch, {of(layout.rate_Bps)}"
    each = layout.workers // layout.nodes
    return f"{text}, {layout.nodes} nodes of {each}; workers {of(layout.rate_Bps)}, uplinks {of(layout.uplink_Bps)}"


def _to_json(name: str, layout: "NetworkLayout | None") -> dict[str, Any]:
    return {"name": name, "whole": layout is not None, **({} if layout is None else asdict(layout))}
