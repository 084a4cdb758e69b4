"""Compare reducers, what Python and the command line call: prepare, record, predict, look for break-even, compare."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from math import ceil, log
from typing import Any

from s2sim.errors import OptionError
from s2sim.experiment.break_even import BreakEvenScan, scan_rates
from s2sim.experiment.cluster_spec import accept_fields_of
from s2sim.experiment.notes import caveats_of, run_notes, warn_of_idle_library_options
from s2sim.experiment.prediction import predict, record
from s2sim.experiment.progress import ProgressWatcher, SilentProgress
from s2sim.experiment.rate_curve import RateCurves, limiting_rate, rate_curves_of, rate_of
from s2sim.experiment.record import describe_gradients
from s2sim.experiment.row_parts import Refused
from s2sim.experiment.rows import Result
from s2sim.experiment.run_extrapolation import RunExtrapolation, extrapolate
from s2sim.experiment.run_state import RequestedOutputs, RunState
from s2sim.experiment.scenario.cluster import Machines
from s2sim.experiment.scenario.content_hash import run_content
from s2sim.experiment.scenario.reducers import ReducerScenario, resolve_run, warn_of_later_options
from s2sim.experiment.spec import RunSpec
from s2sim.experiment.steps import add_step_rows
from s2sim.experiment.timeline import Streams, Timeline
from s2sim.experiment.verdict import give_verdicts
from s2sim.gradients.models import Model
from s2sim.provenance import content_hash, run_record
from s2sim.topology.describe import summary_line
from s2sim.topology.shape import ClusterShape


def hardware_inputs(shape: ClusterShape, machines: Machines, varied: Collection[str] = ()) -> dict[str, Any]:
    """Return what a run record says of the topology, but for the fields that are varied, of the GPU and the library."""
    gpu, library = machines.gpu, machines.library
    described = [("topology", shape.name, shape.quantities), ("gpu", gpu.name, gpu.quantities)]
    if library.profile.used_quantities:
        described.append(("library", library.name, library.profile.used_quantities))
    inputs = {}
    for kind, name, quantities in described:
        fields = {
            item.field: {"value": item.value, "kind": item.kind, "source": item.source}
            for item in quantities
            if item.field not in varied
        }
        inputs[kind] = {"name": name, "sha256": content_hash(fields), "fields": fields}
    return inputs


def make_provenance(spec: RunSpec, scenario: ReducerScenario, beyond: RunExtrapolation | None) -> dict[str, Any]:
    """Return the run record: what every number of a run comes from."""
    trace, target = scenario.trace, scenario.target
    return run_record(
        spec={
            **run_content(scenario, [scenario.ranks_of(count) for count in spec.workers]),
            "steps": spec.steps,
            "max_error": spec.max_error,
        },
        inputs={
            **hardware_inputs(scenario.shape, scenario.machines),
            "trace": {
                "name": trace.name,
                "kind": trace.manifest.kind,
                "sha256": content_hash(dict(trace.manifest.files)),
            },
            **({"model": _model_record(target)} if isinstance(target, Model) else {}),
            "seed": spec.seed,
        },
        measured=["bytes", "error"],
        assumed=[
            "time: simulated on the topology above; encode and decode: bytes over memory bandwidth and launches",
            *([] if beyond is None else [f"rows with a mark are {beyond.sentence()}"]),
        ],
    )


def _model_record(model: Model) -> dict[str, Any]:
    table = asdict(model.table)
    return {"name": model.name, "sha256": content_hash(table), "kind": model.table.kind, "source": model.table.source}


def resolve_checked(spec: RunSpec) -> ReducerScenario:
    """Return the scenario of a run with all its clusters built."""
    scenario = resolve_run(spec)
    for workers in spec.workers:
        scenario.cluster(scenario.ranks_of(workers))
    scenario.warn_of_idle_overrides(scenario.ranks_of(max(spec.workers)))
    if spec.steps == 1:
        warn_of_later_options(scenario.reducers, what="a run")
    trace = scenario.trace
    if spec.steps > trace.steps:
        raise OptionError(
            f"--steps {spec.steps}: trace {trace.name} has {trace.steps}; s2sim list traces tells what others have, "
            "and synthetic:steps=8 has as many as are asked for"
        )
    return scenario


# Bytes per second: 1 Gbps, the slowest network that people still train over.
_LOWEST_BPS = 1.25e8
# Between neighbouring points: what lies between is straight enough on logarithmic axes.
_FACTOR = 1.5


def vary_rate(scenario: ReducerScenario, found: RunState, progress: ProgressWatcher) -> dict[int, RateCurves]:
    """Return the curves of each number of workers; of one worker, whom no rate limits, and of dense alone none."""
    curves = {}
    for count, predictions in found.predictions.items():
        recorded = found.recorded(count)
        cluster = scenario.healthy(scenario.ranks_of(count))
        field = limiting_rate(cluster)
        if field is None or len(recorded) == 1:
            continue
        # The verdict may have looked at some alone.
        known = count == found.largest and len(found.scan.pays_at_ends) == len(recorded) - 1
        scan = found.scan if known else scan_rates(scenario, recorded, progress)
        rates_Bps = _curve_rates(scan, rate_of(cluster.shape, field))
        progress.start(len(rates_Bps), f"drawing speed-ups over {field}")
        drawn = rate_curves_of(scenario, recorded, rates_Bps, progress.advance)
        beyond = any(each.row.extrapolated is not None for each in predictions)
        curves[count] = replace(drawn, crossings=scan.crossings, extrapolated=beyond)
    return curves


def _curve_rates(scan: BreakEvenScan, own_Bps: float) -> list[float]:
    low = min(_LOWEST_BPS, own_Bps / 10, *(0.7 * crossing.at_Bps for crossing in scan.crossings))
    high = max(scan.highest_Bps, own_Bps)
    steps = ceil(log(high / low) / log(_FACTOR))
    return [low * (high / low) ** (step / steps) for step in range(steps + 1)]


@accept_fields_of(RunSpec)
def run(
    topology: str | None = None,
    *,
    workers: int | Sequence[int] | None = None,
    reducers: Sequence[str] | None = None,
    spec: RunSpec | None = None,
    progress: ProgressWatcher | None = None,
    timelines: dict[str, Timeline | Streams] | None = None,
    timeline_rank: int | None = None,
    break_even: bool = True,
    thorough: bool = True,
    curves: dict[int, RateCurves] | None = None,
    **options: Any,
) -> Result:
    """Compare gradient reducers on a cluster.

    Parameters
    ----------
    topology : str
        Name of a shipped topology or path of a TOML file.
    workers : int or sequence of int
        Number of ranks; several give several rows a reducer.
    reducers : sequence of str, optional
        Option strings; without them those that `s2sim run` compares.
    spec : RunSpec, optional
        The whole experiment as a value, instead of the other arguments.
    progress : Progress, optional
        Told what is being done.
    timelines : dict, optional
        Filled with what ranks and links do under each reducer, for the largest number of workers; of whole iterations
        with the streams of one rank.
    timeline_rank : int, optional
        Which; the slowest unless given.
    break_even : bool
        Whether to look for the rates at which reducers break even with dense.
    thorough : bool
        Whether to work out what the first screen does not show: break-even of all reducers instead of those that the
        verdict names, and what other libraries would make of each.
    curves : dict, optional
        Filled with the speed-ups over dense at other rates, by number of workers.

    Returns
    -------
    Result
        Rows, verdict and run record; shows as a table in a notebook.
    """
    if spec is None:
        if topology is None or workers is None:
            raise OptionError("run needs a topology and a number of workers, or a spec")
        one_or_more: Any = workers
        several = isinstance(one_or_more, Iterable) and not isinstance(one_or_more, str)
        counts = one_or_more if several else (one_or_more,)
        if reducers is not None:
            options["reducers"] = (reducers,) if isinstance(reducers, str) else reducers
        spec = RunSpec.of(topology, workers=counts, **options)
    elif not isinstance(spec, RunSpec):
        raise OptionError(f"s2sim.run: spec is a {type(spec).__name__}: give a RunSpec, or RunSpec.load(path)")
    elif topology is not None or workers is not None or reducers is not None or options:
        asked = {"topology": topology, "workers": workers, "reducers": reducers, **options}
        named = ", ".join(name for name, value in asked.items() if value is not None)
        raise OptionError(f"s2sim.run: spec holds the whole experiment, so {named} cannot be given with it")
    wanted = RequestedOutputs(timelines, curves, break_even, thorough, timeline_rank)
    return _run(spec, progress or SilentProgress(), wanted)


def _run(spec: RunSpec, progress: ProgressWatcher, wanted: RequestedOutputs) -> Result:
    """Return the result of a run; after Ctrl-C of what was finished by then."""
    scenario = resolve_checked(spec)
    wanted.check(scenario, scenario.ranks_of(max(spec.workers)))
    beyond = extrapolate(scenario, scenario.ranks_of(max(spec.workers)), progress)
    if beyond is not None and beyond.refused:
        checked = tuple(item for item in scenario.reducers if item.option_string not in beyond.refused)
        scenario = replace(scenario, reducers=checked, refused={**scenario.refused, **beyond.refused})
    found = RunState(extrapolated=beyond)
    found.refused += [Refused(name, each, why) for name, why in scenario.refused.items() for each in spec.workers]
    ranks = {count: scenario.ranks_of(count) for count in spec.workers}
    progress.start(sum(ranks.values()) + len(scenario.reducers) * len(ranks), "running reducers on real gradients")
    interrupted = False
    try:
        for count in spec.workers:
            recorded, refused = record(scenario, ranks[count], progress)
            predictions = predict(scenario, recorded, thorough=wanted.thorough)
            if beyond is not None:
                marked = [replace(each.row, extrapolated=beyond.mark(each.row, ranks[count])) for each in predictions]
                predictions = [replace(each, row=row) for each, row in zip(predictions, marked, strict=True)]
            found.predictions[count] = predictions
            found.refused += refused
        if wanted.timelines is not None:
            wanted.timelines |= found.timelines(wanted.timeline_rank)
        if spec.steps > 1:
            add_step_rows(spec, scenario, progress, found)
        if wanted.break_even:
            scanned = found.predictions[found.largest] if wanted.thorough else found.named(spec.max_error)
            found.scan = scan_rates(scenario, [each.recorded for each in scanned], progress)
            found.find_worthwhile_batches(spec.max_error)
        if wanted.curves is not None:
            wanted.curves |= vary_rate(scenario, found, progress)
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets the rows that are finished.
        if not found.predictions:
            raise
        interrupted = True
    progress.stop()
    return compare(spec, scenario, found, interrupted=interrupted)


def compare(spec: RunSpec, scenario: ReducerScenario, found: RunState, *, interrupted: bool = False) -> Result:
    """Compare what was predicted of reducers: rows with what is thought of each, verdicts, notes and run record.

    Parameters
    ----------
    spec : RunSpec
        What was asked for.
    scenario : ReducerScenario
        Where `s2sim.experiment.prediction.predict` found times.
    found : Found
        Predictions by number of workers, at least ``dense`` of each; rates and mini-batches at which reducers pay where
        these were looked for.
    interrupted : bool
        Whether there was to be more.
    """
    largest = found.predictions[found.largest]
    records, beyond = found.recorded(found.largest), found.extrapolated
    warn_of_idle_library_options(spec.library, scenario.library, records)
    rows, verdicts = give_verdicts(spec, scenario, found)
    refused = tuple(found.refused)
    caveats = caveats_of(scenario, records, [each.executed for each in largest], beyond, interrupted=interrupted)
    notes = [*([] if beyond is None else beyond.notes_with_checks()), *run_notes(spec, scenario, records)]
    notes += [f"{item.reducer} did not run with {item.workers} workers: {item.why}" for item in refused]
    ranks = scenario.ranks_of(found.largest)
    return Result(
        spec=spec,
        cluster=summary_line(scenario.cluster(ranks)),
        gradients=describe_gradients(scenario, ranks),
        library=scenario.library.option_string,
        gpu=scenario.gpu.name,
        machines=scenario.machines.text,
        provenance=make_provenance(spec, scenario, beyond),
        results=rows,
        verdict=next(each for each in verdicts if each.workers == found.largest),
        verdicts=verdicts,
        refused=refused,
        notes=tuple(dict.fromkeys([*notes, *caveats])),
        caveats=caveats,
    )
