"""The comparison of reducers: resolve the spec, record, predict, search for break-even, compare."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, log
from typing import Any

from s2sim.errors import OptionError, S2SimError, warn
from s2sim.experiment.break_even import scan_rates
from s2sim.experiment.choice import judged_time_s
from s2sim.experiment.cluster_spec import accept_fields_of, merged_overrides
from s2sim.experiment.costs import Gate, accept_any, run_cost
from s2sim.experiment.judgement import judge
from s2sim.experiment.notes import caveats_of, run_notes, warn_of_idle_library_options
from s2sim.experiment.prediction import predict, record
from s2sim.experiment.progress import SILENT, ProgressWatcher, tell
from s2sim.experiment.rate_curve import RateCurves, limiting_rate, rate_curves_of, rate_of
from s2sim.experiment.record import describe_gradients
from s2sim.experiment.recording_store import recordings_content
from s2sim.experiment.robustness import over_batches
from s2sim.experiment.row_parts import Alternative, Refused
from s2sim.experiment.rows import Result, Row
from s2sim.experiment.run_extrapolation import RunExtrapolation, extrapolate
from s2sim.experiment.run_state import RunState, mark
from s2sim.experiment.scenario.content_hash import make_provenance
from s2sim.experiment.scenario.reducers import ReducerScenario, resolve_run, warn_of_later_options
from s2sim.experiment.spec import RunSpec
from s2sim.experiment.steps import add_step_rows
from s2sim.experiment.timeline import Streams, Timeline, record_timeline
from s2sim.experiment.verdict import VerdictContext, give_verdict, give_verdicts
from s2sim.simulation.bucketing.sharded import ShardedDiscipline
from s2sim.topology.describe import summary_line
from s2sim.units import format_number_of, format_seconds


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
    sensitivity: bool = True,
    curves: dict[int, RateCurves] | None = None,
    gate: Gate = accept_any,
    **options: Any,
) -> Result:
    """Compare gradient reducers on a cluster; after Ctrl-C with the numbers of workers that were finished.

    The result shows as a table in a notebook. `S2SimError` if the experiment cannot be run as given.

    Parameters
    ----------
    timelines : dict, optional
        Filled with the activity of ranks and links under each reducer, for the largest number of workers; of whole
        iterations with the streams of one rank.
    timeline_rank : int, optional
        That rank; the slowest by default.
    sensitivity : bool
        Whether to look for estimated constants that would change the verdict.
    curves : dict, optional
        Filled with the speed-ups over dense at other rates, by number of workers.
    """
    spec = spec_of(topology, workers, reducers, spec, options)
    asked = timelines, timeline_rank, break_even, thorough, curves
    spec, scenario, state, interrupted = _predict_all(spec, progress or SILENT, gate, *asked)
    return compare(spec, scenario, state, interrupted=interrupted, sensitivity=sensitivity and not interrupted)


def run_subsets(spec: RunSpec, gate: Gate = accept_any) -> Callable[[Collection[str]], Result]:
    """Return what returns the result of a run of some of a spec's reducers alone, all if () is given.

    They share recordings and predictions. Neither break-even nor constants that would change the verdict are looked
    for.
    """
    spec, scenario, state, _ = _predict_all(spec, SILENT, gate, break_even=False, thorough=False)

    def of(names: Collection[str]) -> Result:
        if not names:
            return compare(spec, scenario, state, sensitivity=False)
        reducers = tuple(
            each for each in scenario.reducers if each.option_string in names or each.reducer.traits.baseline
        )
        refused = {name: why for name, why in scenario.refused.items() if name in names}
        alone = replace(scenario, reducers=reducers, refused=refused)
        return compare(replace(spec, reducers=tuple(names)), alone, state.of_reducers(names), sensitivity=False)

    return of


def _predict_all(
    spec: RunSpec,
    progress: ProgressWatcher,
    gate: Gate,
    timelines: dict[str, Timeline | Streams] | None = None,
    timeline_rank: int | None = None,
    break_even: bool = True,
    thorough: bool = True,
    curves: dict[int, RateCurves] | None = None,
) -> tuple[RunSpec, ReducerScenario, RunState, bool]:
    """Return a run before the comparison, by names as in `run`, and whether it was interrupted."""
    scenario, spec = resolve_named(spec)
    ranks = {count: scenario.ranks_of(count) for count in spec.workers}
    gate(run_cost(scenario, list(ranks.values()), search=break_even, thorough=thorough))
    _check_timeline_rank(timeline_rank, scenario, max(ranks.values()))
    scenario, state = begin(spec, scenario, progress)
    recorded_ranks = [item for own in ranks.values() for item in scenario.by_recorded_ranks(own).items()]
    steps = sum(few + len(reducers) for few, reducers in recorded_ranks)
    progress.start(steps, "running reducers on real gradients")
    interrupted = False

    try:
        for count, own in ranks.items():
            recorded, refused = record(scenario, own, progress)
            predictions = predict(scenario, recorded, thorough=thorough, on_row=partial(_tell_row, progress))
            state.add(predictions, refused, count, own)
            if count != max(ranks):
                # The largest number alone is replayed at other rates.
                predictions[0].executed.timer.ways.forget()
        if timelines is not None:
            for each in state.predictions[state.largest]:
                timelines[each.row.reducer] = record_timeline(each.executed, timeline_rank)
        if spec.steps > 1:
            add_step_rows(spec, scenario, progress, state)
        if break_even:
            _find_break_even(spec, scenario, state, progress, thorough=thorough)
        state.alternatives = find_alternatives(spec, scenario, state)
        if curves is not None:
            curves |= vary_rate(spec, scenario, state, progress)
    except KeyboardInterrupt:
        if not state.predictions:
            raise
        interrupted = True
    progress.stop()
    return spec, scenario, state, interrupted


def _find_break_even(
    spec: RunSpec, scenario: ReducerScenario, state: RunState, progress: ProgressWatcher, *, thorough: bool
) -> None:
    """Find rates and mini-batches of all reducers if ``thorough``; what was asked for stands if one cannot be run."""
    named = state.named(spec.max_error)
    scanned = state.predictions[state.largest] if thorough else named
    try:
        state.scan = scan_rates(scenario, scanned, spec.max_error, progress, state.extrapolated)
        state.over_batches = over_batches(named, spec.max_error, progress)
    except S2SimError as error:
        state.search_ended = str(error)


def begin(
    spec: RunSpec, scenario: ReducerScenario, progress: ProgressWatcher = SILENT
) -> tuple[ReducerScenario, RunState]:
    """Return a scenario without reducers that cannot be extrapolated, and the state of a run before any prediction."""
    found, last = dict[int, RunExtrapolation | None](), None
    for ranks in sorted(map(scenario.ranks_of, spec.workers), reverse=True):
        law = extrapolate(scenario, ranks, progress, last)
        if law is not None and law.refused and last is None:
            checked = tuple(item for item in scenario.reducers if item.option_string not in law.refused)
            scenario = replace(scenario, reducers=checked, refused={**scenario.refused, **law.refused})
        elif law is not None and law.refused and last is not None:
            # What fewer ranks cannot check has the check of more.
            others = (check for check in last.checks if check.reducer in law.refused)
            law = replace(law, checks=(*law.checks, *others), refused={})
        found[ranks] = last = law
    refused = [Refused(name, count, why) for name, why in scenario.refused.items() for count in spec.workers]
    return scenario, RunState(extrapolations=dict(reversed(found.items())), refused=refused)


def spec_of(
    topology: str | None,
    workers: int | Sequence[int] | None,
    reducers: Sequence[str] | None,
    spec: RunSpec | None,
    options: dict[str, Any],
) -> RunSpec:
    """Return the given spec, or the one of the arguments of `run`."""
    if spec is None:
        if topology is None or workers is None:
            raise OptionError("run needs a topology and a number of workers, or a spec")
        one_or_more: Any = workers
        several = isinstance(one_or_more, Iterable) and not isinstance(one_or_more, str)
        if reducers is not None:
            options["reducers"] = (reducers,) if isinstance(reducers, str) else reducers
        return RunSpec.of(topology, workers=one_or_more if several else (one_or_more,), **options)
    if not isinstance(spec, RunSpec):
        raise OptionError(f"s2sim.run: spec is a {type(spec).__name__}: give a RunSpec, or RunSpec.load(path)")
    arguments = {"topology": topology, "workers": workers, "reducers": reducers, **options}
    if given := [name for name, value in arguments.items() if name in options or value is not None]:
        raise OptionError(f"s2sim.run: spec holds the whole experiment, so {', '.join(given)} cannot be given with it")
    return spec


def _tell_row(progress: ProgressWatcher, row: Row) -> None:
    where = format_number_of(row.workers, "worker")
    tell(progress, f"{where}, {row.reducer}: {format_seconds(judged_time_s(row))}")


def _check_timeline_rank(rank: int | None, scenario: ReducerScenario, ranks: int) -> None:
    if rank is None:
        return
    if scenario.training is None:
        raise OptionError("--timeline-rank changes nothing without --profile: a phase is shown with all its ranks")
    if not 0 <= rank < ranks:
        raise OptionError(f"--timeline-rank {rank}: there are ranks 0 to {ranks - 1}")


def compare(
    spec: RunSpec, scenario: ReducerScenario, state: RunState, *, interrupted: bool = False, sensitivity: bool = True
) -> Result:
    """Return the result of ``state``'s predictions, with ``dense``: judged rows, verdicts, notes and run record."""
    largest, extrapolation = state.predictions[state.largest], state.extrapolated
    recorded = state.recorded(state.largest)
    warn_of_idle_library_options(spec.library, scenario.library, recorded)
    rows, verdicts = give_verdicts(spec, scenario, state, sensitivity=sensitivity)
    executed = [each.executed for each in largest]
    caveats = caveats_of(scenario, recorded, executed, extrapolation, interrupted=interrupted)
    notes = [
        *([] if extrapolation is None else extrapolation.notes_with_checks()),
        *run_notes(spec, scenario, recorded),
        *([] if state.search_ended is None else [f"the search for break-even ended early: {state.search_ended}"]),
        *(f"{item.reducer} did not run with {item.workers} workers: {item.why}" for item in state.refused),
    ]
    ranks, price = scenario.ranks_of(state.largest), scenario.shape.price
    nodes_of = {count: scenario.all_groups(scenario.ranks_of(count))[1].layout.nodes for count in state.predictions}
    return Result(
        spec=spec,
        cluster=summary_line(scenario.cluster(ranks)),
        gradients=describe_gradients(scenario, ranks),
        library=scenario.library.option_string,
        gpu=scenario.gpu.name,
        machines=scenario.machines.text,
        provenance=make_provenance(spec, scenario, None if extrapolation is None else extrapolation.sentence()),
        results=rows,
        verdict=next(each for each in verdicts if each.workers == state.largest),
        verdicts=verdicts,
        alternatives=state.alternatives,
        refused=tuple(state.refused),
        notes=tuple(dict.fromkeys([*notes, *caveats])),
        caveats=caveats,
        recorded=None if scenario.training is None else scenario.training.recorded,
        prices=() if price is None else tuple(price.cost(count, nodes) for count, nodes in nodes_of.items()),
    )


def resolve_named(spec: RunSpec) -> tuple[ReducerScenario, RunSpec]:
    """Return the scenario of a spec, and the spec with the reducers that were chosen where it names none."""
    scenario = resolve_checked(spec)
    names = tuple(item.option_string for item in scenario.reducers)
    return scenario, spec if spec.reducers else replace(spec, reducers=names)


def resolve_checked(spec: RunSpec) -> ReducerScenario:
    """Return the scenario of a run with all its clusters built; `S2SimError` if the spec does not fit it."""
    if len(spec.topologies) > 1:
        raise OptionError(f"--topology {spec.topology}: s2sim.run takes one topology, s2sim.run_topologies several")
    scenario = resolve_run(spec)
    clusters = [scenario.cluster(scenario.ranks_of(workers)) for workers in spec.workers]
    if scenario.training is not None and isinstance(scenario.training.discipline, ShardedDiscipline):
        for cluster in clusters:
            # Nodes that its options do not fit are refused before anything runs.
            scenario.training.discipline.groups(cluster.node_of_rank.tolist())
        if scenario.training.discipline.within_nodes and all(cluster.nodes_used == 1 for cluster in clusters):
            text = f"--discipline {spec.discipline}: what it divides within nodes changes nothing here"
            warn(f"{text}: one node has all workers")
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


HEALTHY = "without faults"


def find_alternatives(spec: RunSpec, scenario: ReducerScenario, state: RunState) -> tuple[Alternative, ...]:
    """Return what a run gives without its faults, if it has some, and with the overrides of each ``spec.instead``.

    It is about the largest number of workers, with the run's own mini-batch. What was recorded is predicted there,
    unless the other cluster has other nodes or buckets: then it is recorded anew, so that a run there says the same.
    """
    batch = None if scenario.training is None else scenario.training.profile.batch
    predictions, ranks = state.predictions[state.largest], scenario.ranks_of(state.largest)
    others = {HEALTHY: (spec.overrides, replace(scenario, faults=()))} if spec.faults else {}
    for text in spec.instead:
        overrides = merged_overrides(spec.overrides, [each.strip() for each in text.split(",")])
        changed = replace(spec, overrides=overrides, workers=(state.largest,), instead=(), batch=batch)
        others[text] = overrides, resolve_checked(changed)
    found = []
    for name, (overrides, there) in others.items():
        law = state.extrapolations.get(ranks) if name == HEALTHY else extrapolate(there, ranks)
        refused = {*scenario.refused, *({} if law is None else law.refused)}
        kept = replace(there, reducers=tuple(each for each in there.reducers if each.option_string not in refused))
        recorded = [each.recorded for each in predictions if each.recorded.option_string not in refused]
        if recordings_content(scenario, ranks) != recordings_content(kept, ranks):
            recorded, _ = record(kept, ranks)
        marked = mark(predict(kept, recorded, thorough=False), law)
        rows = judge([each.row for each in marked], spec.max_error)
        verdict = give_verdict(rows, VerdictContext(max_error=spec.max_error))
        times_s = {row.reducer: row.judgement.time_s for row in rows if row.judgement is not None}
        training = None if spec.batch is not None else there.training
        usual = batch if training is None else training.source.batch_on(there.gpu)[0]
        own = None if usual == batch else batch
        found.append(Alternative(name, overrides, verdict.decision, verdict.best, times_s, own))
    return tuple(found)


# Bytes per second: 1 Gbps, the slowest network in use for training.
_LOWEST_BPS = 1.25e8
# Between neighbouring points: on logarithmic axes curves are nearly straight between them.
_FACTOR = 1.5


def vary_rate(
    spec: RunSpec, scenario: ReducerScenario, state: RunState, progress: ProgressWatcher
) -> dict[int, RateCurves]:
    """Return the curves of each number of workers; none for one worker, which no rate limits, and for dense alone."""
    curves = {}
    for count, predictions in state.predictions.items():
        recorded = state.recorded(count)
        cluster = scenario.healthy(scenario.ranks_of(count))
        field = limiting_rate(cluster)
        if field is None or len(recorded) == 1 or state.search_ended is not None:
            continue
        # The verdict may have scanned only the reducers that it names.
        scan = state.scan
        if count != state.largest or len(scan.pays_at_ends) != len(recorded) - 1:
            law = state.extrapolations.get(scenario.ranks_of(count))
            scan = scan_rates(scenario, predictions, spec.max_error, progress, law)
        own_Bps = rate_of(cluster, field)
        low = min(_LOWEST_BPS, own_Bps / 10, *(0.7 * crossing.at_Bps for crossing in scan.crossings))
        high = max(scan.highest_Bps, own_Bps)
        steps = ceil(log(high / low) / log(_FACTOR))
        rates_Bps = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
        progress.start(len(rates_Bps), f"drawing speed-ups over {field}")
        extrapolated = any(each.row.extrapolated is not None for each in predictions)
        curves[count] = replace(
            rate_curves_of(scenario, recorded, rates_Bps, progress.advance),
            crossings=scan.crossings,
            extrapolated=extrapolated,
        )
    return curves
