"""Regime maps from their spec to winners: recorded once per density and overlap, replayed at every rate and latency."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from s2sim import units
from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.errors import OptionError, S2SimError, warn
from s2sim.experiment.execute import mean_bytes, ring_traffic
from s2sim.experiment.notes import library_notes, warn_of_idle_library_options
from s2sim.experiment.progress import INTERRUPTED_NOTE, SILENT, ProgressWatcher
from s2sim.experiment.record import RecordedReducer, record
from s2sim.experiment.scenario import content_hash
from s2sim.experiment.scenario import reducers as scenario_reducers
from s2sim.experiment.scenario.cluster import Machines, Scenario, estimated_ranges, gpu_corners, resolve_machines
from s2sim.experiment.scenario.reducers import place_reducers, step_reader
from s2sim.experiment.spec import PREFETCH
from s2sim.gradients.synthetic import SyntheticOptions, SyntheticTrace
from s2sim.libraries.lowering import IDEAL
from s2sim.provenance import run_record
from s2sim.regimes.map import LATENCY_FIELD, RATE_FIELD, Cell, Contender, RegimeMap, RegimeSpec, Wins
from s2sim.simulation.plan import Plan, make_plan
from s2sim.simulation.run import replay
from s2sim.topology.read_file import load_shape


@dataclass(frozen=True, slots=True)
class RegimeScenario:
    """Gradients of every density with every overlap, every rate with every latency, and what reducers run with."""

    traces: tuple[SyntheticTrace, ...]
    networks: tuple[Scenario, ...]
    reducers: tuple[scenario_reducers.ReducerSpec, ...]
    machines: Machines


def resolve_regimes(spec: RegimeSpec) -> RegimeScenario:
    """Return the scenario of a map; `S2SimError` if a name or a value is not valid."""
    _parse_axis("--density", spec.densities, float)
    _parse_axis("--overlap", spec.overlaps, float)
    # A step, and one from which sizes are taken over.
    options = SyntheticOptions(tail=spec.tail, rows=spec.rows, width=spec.width, steps=2)
    traces = tuple(
        SyntheticTrace(replace(options, density=density, overlap=overlap), spec.workers, spec.seed)
        for density, overlap in product(spec.densities, spec.overlaps)
    )
    for trace in traces:
        scenario_reducers.check_ranks(spec.workers, trace)
    pairs = product(
        zip(spec.rates, _parse_axis("--rate", spec.rates, units.parse_rate_Bps), strict=True),
        zip(spec.latencies, _parse_axis("--latency", spec.latencies, units.parse_time_ps), strict=True),
    )
    networks = tuple(_cluster_with(spec, rate, latency) for rate, latency in pairs)
    shape = networks[0].shape
    reducers = scenario_reducers.with_baseline(scenario_reducers.parse_reducers(spec.reducers), "fp32")
    scenario_reducers.warn_of_later_options(reducers, what="the map")
    if other := [item for item in reducers if item.reducer.traits.estimates != "mean"]:
        raise OptionError(
            f"{other[0].option_string}: ranks end with {other[0].reducer.traits.estimates}, not the mean gradient, so "
            "that no error tells where it should win: leave it out of a map"
        )
    if fixed := [item.option_string for item in reducers if item.reducer.runs_by is not None]:
        raise OptionError(f"{fixed[0]}: in a map each collective runs by its fastest algorithm: leave collective= out")
    machines = resolve_machines(shape, spec.overrides, spec.library, spec.gpu, latency_holds_library=True)
    return RegimeScenario(traces, networks, reducers, machines)


def _parse_axis(option: str, values: Sequence[Any], parse: Callable[[Any], float]) -> list[Any]:
    """Return the parsed values of an axis; refuse one that is repeated in any spelling."""
    seen: dict[float, Any] = {}
    for value in values:
        parsed = units.parse_option(option, parse, value)
        if parsed in seen:
            raise OptionError(f"{option}: {seen[parsed]} and {value} are the same value: give it once")
        seen[parsed] = value
    return list(seen)


def _cluster_with(spec: RegimeSpec, rate: tuple[str, float], latency: tuple[str, int]) -> Scenario:
    """Return the cluster with one rate and latency of all interfaces; refuse one on which they have no effect."""
    shape = load_shape(spec.topology, spec.network(rate[0], latency[0]))
    if any((node.nic.rate_Bps, node.nic.latency_ps) != (rate[1], latency[1]) for node in shape.nodes):
        raise OptionError(
            f"{shape.name} gives some of its [[nodes]] a nic.rate or nic.latency of their own, which --rate and "
            "--latency cannot vary: leave these out of the file"
        )
    scenario = Scenario(shape, spec.overrides, seed=spec.seed)
    if int(scenario.cluster(spec.workers).node_of_rank.max()) == 0:
        raise OptionError(
            f"all {spec.workers} workers are in one node of {shape.name}, where --rate and --latency change nothing: "
            "take more workers or --set node.gpus=1"
        )
    if shape.host_cable and shape.link.rate_Bps < rate[1]:
        least = units.format_rate(shape.link.rate_Bps)
        warn(f"--rate {rate[0]} is cut to {least} by fabric.link.rate of {shape.name}", stacklevel=5)
    return scenario


def map_notes(
    spec: RegimeSpec,
    scenario: RegimeScenario,
    recorded: Sequence[RecordedReducer],
    refusals: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the notes on a map; ``refusals`` gives by text the points at which each occurred."""
    notes = [
        "the gradients are synthetic, one row-sparse layer: real ones differ in tails and in how rows repeat",
        "communication phase only; margins under 1 % are ties",
    ]
    warm = [item.option_string for item in scenario.reducers if item.reducer.traits.warm]
    if warm:
        notes.append(
            f"{', '.join(warm)}: as in every step but the first; what a step carries over is taken from another one"
        )
    if PREFETCH in spec.reducers:
        notes.append(
            f"{PREFETCH} presumes that the batch tells the rows before forward, as for embeddings, and that "
            "forward and backward are long enough to hide the exchange of supports"
        )
    elif any(item.reducer.traits.name == "union" for item in scenario.reducers):
        notes.append("union learns the rows after backward; --prefetch adds a union that knows them from the batch")
    shape = scenario.networks[0].shape
    last = {item.option_string: item for item in recorded}
    library = scenario.machines.library
    notes += library_notes(library, shape, list(last.values()))
    if library != IDEAL and library.profile == NO_OVERHEADS:
        notes.append(
            f"{library.option_string}: the latencies asked for are those of the hardware and of the library together; "
            "timing=measured adds the library's to them"
        )
    notes += [f"{text} ({'; '.join(places)})" for text, places in refusals.items()]
    return notes


def map_headline(spec: RegimeSpec, scenario: RegimeScenario) -> str:
    """Return the cluster and the gradient in one line."""
    where = scenario.networks[0]
    nodes = int(where.cluster(spec.workers).node_of_rank.max()) + 1
    size = units.format_bytes(4 * spec.rows * spec.width)
    values = "gaussian values" if spec.tail == "gaussian" else f"values with a power-law tail of exponent {spec.tail}"
    return (
        f"{where.shape.name}: {spec.workers} workers in {nodes} nodes; {scenario.machines.text}; gradient of "
        f"{spec.rows} x {spec.width} float32 ({size}), {values}"
    )


def map_provenance(spec: RegimeSpec, scenario: RegimeScenario) -> dict[str, Any]:
    """Return the run record of a map."""
    machines, varied = scenario.machines, (RATE_FIELD, LATENCY_FIELD)
    inputs = content_hash.hardware_inputs(scenario.networks[0].shape, machines.library, machines.gpu, varied)
    return run_record(
        spec={
            "networks": content_hash.sorted_hashes(
                content_hash.cluster_content(item, [spec.workers]) for item in scenario.networks
            ),
            "gradients": content_hash.sorted_hashes(map(content_hash.trace_content, scenario.traces)),
            "reducers": content_hash.reducers_content(scenario.reducers),
            "library": content_hash.library_content(scenario.machines.library),
            "gpu": content_hash.hashable_content(scenario.machines.gpu),
            "max_error": spec.max_error,
        },
        inputs={**inputs, "gradients": {"kind": "synthetic"}, "seed": spec.seed},
        named=spec.to_json(),
        measured=["bytes", "error"],
        assumed=[
            "gradients: drawn at random with the densities, overlaps and tail asked for",
            "time: simulated on the topology above at each rate and latency",
            "encode and decode: bytes over memory bandwidth and launches",
        ],
    )


# The reducers that this project asks about.
_ALWAYS_REPORTED = ("s2", "s2-exact")


def summarise_map(
    cells: Sequence[Cell], max_error: float, wins: Mapping[str, Wins], estimates: Mapping[str, tuple[str, str]]
) -> str:
    """Return how many cells each wins, over ``estimates`` too, S2's regions, and who has too large an error."""
    ties = sum(bool(cell.ties) for cell in cells)
    idle = sum(not cell.compress for cell in cells)
    most_first = sorted(wins.items(), key=lambda item: -item[1].cells)
    won = ", ".join(f"{reducer} {each.cells}" for reducer, each in most_first if each.cells)
    count = units.format_number_of(len(cells), "cell")
    sentences = [f"Of {count}, fastest with an error of at most {max_error:g}: {won}."]
    if estimates and cells:
        ranges = ", ".join(f"{reducer} {each.least} to {each.most}" for reducer, each in most_first)
        constants = ", ".join(f"{name.replace('_', ' ')} {low} to {high}" for name, (low, high) in estimates.items())
        sentences.append(f"Over what estimated constants may be ({constants}): {ranges}.")
    if ties:
        sentences.append(f"{units.format_number_of(ties, 'cell')} {'are ties' if ties > 1 else 'is a tie'} within 1 %.")
    not_there = f"Do not compress in {units.format_number_of(idle, 'cell')}: there nothing gains 1 % over dense."
    sentences.append(not_there if idle else "Some reducer always pays.")
    reducers = dict.fromkeys(each.reducer for cell in cells for each in cell.reducers)
    reported = [reducer for reducer in reducers if reducer.partition(":")[0] in _ALWAYS_REPORTED]
    sentences += [_winning_regions(reducer, cells) for reducer in reported]
    sentences += [text for reducer in reducers if (text := _rejected_regions(reducer, cells))]
    return " ".join(sentences)


def describe_cell(*cells: Cell) -> str:
    """Return the coordinates of a cell, or the least and the largest ones of several."""

    def span(name: str, write: Callable[[float], str]) -> str:
        values = [getattr(cell, name) for cell in cells]
        return " to ".join(map(write, sorted({min(values), max(values)})))

    number = "{:g}".format
    return (
        f"density {span('density', number)}, overlap {span('overlap', number)}, {span('rate_Bps', units.format_rate)}, "
        f"{span('latency_s', units.format_seconds)}"
    )


def _winning_regions(reducer: str, cells: Sequence[Cell]) -> str:
    won = [cell for cell in cells if cell.winner == reducer]
    if won:
        lead = max(cell.margin or 0.0 for cell in won)
        count, where = units.format_number_of(len(won), "cell"), describe_cell(*won)
        return f"{reducer} wins {count}, where the next takes up to {lead:.0%} longer ({where})."
    ran = [(each, cell) for cell in cells for each in cell.reducers if each.reducer == reducer]
    found = [(cell.slower(each), cell) for each, cell in ran if each.acceptable]
    if not found:
        known = [each.error_relative_l2 for each, _ in ran if each.error_relative_l2 is not None]
        why = f"its error is at least {min(known):.3g}" if known else "it refuses these gradients"
        return f"{reducer} wins nowhere: {why} in every cell."
    factor, cell = min(found, key=lambda item: item[0])
    longer = f"{factor:.3g} times as long as {cell.winner} ({describe_cell(cell)})"
    return f"{reducer} wins nowhere: at best it takes {longer}."


def _rejected_regions(reducer: str, cells: Sequence[Cell]) -> str:
    tempting = [
        each
        for cell in cells
        for each in cell.reducers
        if each.reducer == reducer and not each.acceptable and each.total_ps < cell.fastest.total_ps
    ]
    if not tempting:
        return ""
    errors = [each.error_relative_l2 for each in tempting if each.error_relative_l2 is not None]
    low, high = (f"{error:.3g}" for error in (min(errors, default=0.0), max(errors, default=0.0)))
    error = "undefined" if not errors else low if low == high else f"{low} to {high}"
    count = units.format_number_of(len(tempting), "cell")
    return f"{reducer} is faster in {count}, but too far from the exact mean (error {error})."


def _record_cell(
    scenario: RegimeScenario,
    trace: SyntheticTrace,
    max_error: float,
    refusals: dict[str, list[str]],
    progress: ProgressWatcher,
) -> list[tuple[RecordedReducer, Plan, Contender]]:
    """Run every reducer on the gradients; those that refuse are noted and left out.

    Contenders have what no network changes, not their times.
    """
    # Networks differ in rates and latencies alone.
    cluster = scenario.networks[0].healthy(trace.world_size)
    gradients = [trace.gradient(0, rank) for rank in range(trace.world_size)]
    others = step_reader(trace, trace.world_size)
    scripts = []
    for asked in place_reducers(cluster, scenario.reducers):
        try:
            ((found,), _) = record([asked], gradients, seed=trace.seed, others=others)
        except S2SimError as error:
            if asked.reducer.traits.baseline:
                raise
            refusal = f"{asked.option_string} refuses some gradients and is left out there: {error}"
            place = f"density {trace.options.density:g}, overlap {trace.options.overlap:g}"
            refusals.setdefault(refusal, []).append(place)
        else:
            plan = make_plan(found.recording, scenario.machines.library)
            traffic, _ = ring_traffic(plan.lowered, found.recording.workers)
            error_l2 = found.errors.whole.relative_l2
            # The limit is below 1, which no verdict allows; the only layer is compressed, or nothing is.
            acceptable = found.reducer.traits.lossless or (error_l2 is not None and error_l2 <= max_error)
            sent = mean_bytes(int(traffic.max()), found.recording)
            scripts.append((found, plan, Contender(found.option_string, 0, error_l2, sent, acceptable)))
        progress.advance()
    return scripts


def run_regimes(spec: RegimeSpec, progress: ProgressWatcher = SILENT) -> RegimeMap:
    """Return the map of winners; after Ctrl-C of the cells that are finished.

    Parameters
    ----------
    spec : RegimeSpec
        Gradients, networks and reducers.
    progress : ProgressWatcher
        Called as the work advances.
    """
    scenario = resolve_regimes(spec)
    networks = [(each.shape.nic, each.timer(spec.workers)) for each in scenario.networks]
    each = len(scenario.reducers) + len(networks)
    progress.start(len(scenario.traces) * each, "recording and replaying reducers")
    recorded: list[RecordedReducer] = []
    refusals: dict[str, list[str]] = {}
    gpu = scenario.machines.gpu
    gpus = (gpu, *gpu_corners(gpu))
    cells: list[Cell] = []
    # By GPU: who wins how many cells.
    won: list[Counter[str]] = [Counter() for _ in gpus]
    try:
        for trace in scenario.traces:
            scripts, drawn = _record_cell(scenario, trace, spec.max_error, refusals, progress), trace.options
            recorded += [item for item, _, _ in scripts]
            for nic, timer in networks:
                where = drawn.density, drawn.overlap, nic.rate_Bps, nic.latency_ps / units.PS_PER_S
                found = []
                for used in gpus:
                    contenders = (
                        replace(contender, total_ps=replay(item.recording, timer, used, plan).total_ps)
                        for item, plan, contender in scripts
                    )
                    found.append(Cell(*where, tuple(contenders)))
                cells.append(found[0])
                for counter, cell in zip(won, found, strict=True):
                    counter[cell.winner] += 1
                progress.advance()
        warn_of_idle_library_options(spec.library, scenario.machines.library, recorded)
    except KeyboardInterrupt:
        if not cells:
            raise
    progress.stop()
    wins = {
        name: Wins(won[0][name], min(each[name] for each in won), max(each[name] for each in won))
        for name in dict.fromkeys(name for each in won for name in each)
    }
    notes = map_notes(spec, scenario, recorded, refusals)
    return RegimeMap(
        spec=spec,
        cluster=map_headline(spec, scenario),
        cells=tuple(cells),
        wins=wins,
        summary=summarise_map(cells, spec.max_error, wins, estimated_ranges(gpu)),
        notes=(*notes, *([] if len(cells) == spec.cells else [INTERRUPTED_NOTE])),
        provenance=map_provenance(spec, scenario),
    )
