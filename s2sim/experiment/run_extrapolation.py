"""Extrapolated runs: more ranks, more parameters, the mark of every such row, and checks of them.

Half of the recording is predicted from the other half. To scale gradients to another model, its layers take the
statistics of the recorded model. Each shipped trace of another model measures the error of that: its layers run with
the statistics of this trace and with their own, both scaled to the target size, at which times depend on bytes rather
than latency.
"""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimWarning
from s2sim.experiment.buckets import record_scaled_buckets
from s2sim.experiment.execute import ExecutedRecording
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.experiment.record import Gradients, RecordedReducer, describe_gradients, record
from s2sim.experiment.recording_store import through_store
from s2sim.experiment.row_parts import Extrapolation, Refused, Transfer, worst_factor
from s2sim.experiment.rows import ROUNDING_ERROR, Row
from s2sim.experiment.scaled_scripts import Outcome, record_scaled, run_without_warnings, scale_scripts
from s2sim.experiment.scenario.content_hash import trace_content
from s2sim.experiment.scenario.reducers import ReducerScenario, ReducerSpec, place_reducers
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.law import LAW, ExtrapolatedRanks, fit_law
from s2sim.gradients.manifest import LayerEntry
from s2sim.gradients.models import Model, ModelLayer
from s2sim.gradients.read_trace import Trace, open_trace, shipped_directories
from s2sim.gradients.scaling import SIZE_LAW, Scaling, keep_rows, scale_to, scale_to_layers
from s2sim.gradients.statistics import GradientTable
from s2sim.gradients.synthetic import AnyTrace
from s2sim.reducers.run import OtherSteps
from s2sim.reducers.script import Recording
from s2sim.reducers.shared.layers import select_layers
from s2sim.seeds import named_generator
from s2sim.simulation.bucketing.policy import Bucket
from s2sim.units import format_count


@dataclass(frozen=True, slots=True, eq=False)
class PhaseCheck:
    """A communication phase as it was predicted, and the same of recorded gradients."""

    scenario: ReducerScenario
    predicted: Recording
    recorded: Recording

    def errors(self, timer: Timer) -> tuple[float, float]:
        """Return predicted over recorded less 1, of the busiest rank's bytes and the phase's time; none on one rank."""
        runs = [ExecutedRecording(each, self.scenario, timer) for each in (self.predicted, self.recorded)]
        sent, time = ([int(run.traffic()[0].max()) for run in runs], [run.replay.total_ps for run in runs])
        of_bytes, of_time = (guess / truth - 1 if truth else 0.0 for guess, truth in (sent, time))
        return of_bytes, of_time


@dataclass(frozen=True, slots=True)
class HoldOut:
    """The check of one reducer; ``what`` describes it for reports. Errors are those of the phase."""

    reducer: str
    what: str
    phase: PhaseCheck
    error_bytes: float
    error_time: float


def check_extrapolation(scenario: ReducerScenario, ranks: int) -> tuple[tuple[HoldOut, ...], dict[str, str]]:
    """Predict every reducer's bytes and time at the recorded size from half of it; return also optional refusals.

    Scripts are replayed on the cluster of the same number of ranks, filled in order, without faults, each
    collective by its fastest algorithm. With more ranks than recorded the first half of the recorded ranks predicts
    all; with scaled sizes a random half of the rows of each layer is held out as well.
    """
    plain = scenario.plain()
    order = [item.option_string for item in scenario.reducers]
    found: list[HoldOut] = []
    refused: dict[str, str] = {}
    for few, reducers in plain.by_recorded_ranks(ranks).items():
        what, outcomes = _hold_out(plain, place_reducers(plain.healthy(few), reducers), few)
        timer = plain.timer(few)
        for name, both in outcomes.items():
            recordings = [each for each in both if isinstance(each, Recording)]
            if len(recordings) < len(both):
                refused[name] = next(str(each) for each in both if not isinstance(each, Recording))
                continue
            recorded, predicted = recordings
            phase = PhaseCheck(plain, predicted, recorded)
            found.append(HoldOut(name, f"{what} predict all", phase, *phase.errors(timer)))
    return tuple(sorted(found, key=lambda check: order.index(check.reducer))), refused


def _hold_out(
    scenario: ReducerScenario, reducers: Sequence[ReducerSpec], ranks: int
) -> tuple[str, dict[str, tuple[Outcome, Outcome]]]:
    """Return what is held out, and by reducer the scripts of the recording and those predicted from the rest."""
    trace, seed, scaled = scenario.trace, scenario.seed, scenario.target is not None
    more = isinstance(trace, ExtrapolatedRanks)
    what = [*([f"{ranks // 2} of {ranks} ranks"] if more else []), *(["half of the rows"] if scaled else [])]

    def run(missing: Sequence[ReducerSpec], gradients: Sequence[Gradient]) -> tuple[list[ReducerSpec], list[Outcome]]:
        fitted = [replace(item, reducer=item.reducer.fitted(gradients, seed)) for item in missing]
        return fitted, run_without_warnings(fitted, gradients, seed=seed)

    def predict(missing: Sequence[ReducerSpec]) -> dict[str, tuple[Outcome, Outcome]]:
        recorded = [trace.gradient(0, rank) for rank in range(ranks)]
        kept = []
        for index, layer in enumerate(recorded[0].layers if scaled else ()):
            generator = named_generator(seed, "rows that are not held back", index)
            kept.append(np.sort(generator.choice(layer.shape[0], -(-layer.shape[0] // 2), replace=False)))
        change = partial(keep_rows, kept=kept) if scaled else lambda gradient: gradient
        source: GradientTable | ExtrapolatedRanks
        source = GradientTable(trace.steps, ranks, lambda step, rank: change(trace.gradient(step, rank)))
        if isinstance(trace, ExtrapolatedRanks):
            whole = trace.source
            few = GradientTable(trace.steps, ranks // 2, lambda step, rank: change(whole.gradient(step, rank)))
            source = ExtrapolatedRanks(trace.name, trace.manifest, few, fit_law(few), ranks, seed)
        gradients = [source.gradient(0, rank) for rank in range(ranks)]
        fitted, predicted = run(missing, gradients)
        if scaled:
            scaling = scale_to(recorded[0].size, gradients[0])
            predicted = scale_scripts(fitted, predicted, gradients, scaling, seed=seed)
        _, truth = run(missing, recorded)
        both = zip(truth, predicted, strict=True)
        return {item.option_string: outcomes for item, outcomes in zip(missing, both, strict=True)}

    return " and ".join(what), through_store(scenario, reducers, ["held out", ranks], predict)


# Statistics differ at any number of ranks; these take a second.
_MAX_RANKS = 8
# Dense layers run as copies as small as those of so many ranks: all values of every shipped trace, and some twice.
_COPIES_OF_RANKS = 128


def measure_transfers(scenario: ReducerScenario, workers: int) -> dict[str, list[tuple[Transfer, PhaseCheck]]]:
    """Return, by option string, the errors of the trace's statistics for each shipped trace of another model.

    Both run on the scenario's cluster with at most eight ranks, filled in order and without faults, each collective
    by its fastest algorithm. Reducers that refuse these gradients are left out.
    """
    plain = scenario.plain()
    trace, target = scenario.trace, scenario.target
    asked = target.layers if isinstance(target, Model) else trace.manifest.layers
    parameters = target.parameters if isinstance(target, Model) else target or trace.manifest.parameters
    # Of tables and of dense layers apart: statistics say nothing of what sends all its values.
    sizes = _sizes(asked)
    factor = parameters / sum(sizes.values())
    found: dict[str, list[tuple[Transfer, PhaseCheck]]] = {item.option_string: [] for item in scenario.reducers}
    for other in _other_traces(trace, sizes):
        ranks = min(workers, other.world_size, _MAX_RANKS)
        kept = [layer for layer in other.manifest.layers if layer.sparse in sizes]
        # Rows grow until there are about as many parameters of each kind.
        grow = {kind: factor * sizes[kind] / held for kind, held in _sizes(kept).items()}
        shapes = [(max(1, round(grow[layer.sparse] * layer.shape[0])), *layer.shape[1:]) for layer in kept]
        layers = [ModelLayer(each.name, shape, each.sparse) for each, shape in zip(kept, shapes, strict=True)]
        predicted, recorded = (_record(plain, source, other.name, layers, ranks) for source in (trace, other))
        timer = plain.timer(ranks)
        for reducer, truth in recorded.items():
            if reducer in predicted:
                guess, error = predicted[reducer], None
                guessed, true = (each.errors.whole.relative_l2 for each in (guess, truth))
                if guessed is not None and true and max(guessed, true) > ROUNDING_ERROR:
                    error = None if guess.reducer.traits.lossless else guessed / true - 1
                phase = PhaseCheck(plain, guess.recording, truth.recording)
                found[reducer].append((Transfer(other.name, ranks, *phase.errors(timer), error), phase))
    return found


def _sizes(layers: Sequence[ModelLayer] | Sequence[LayerEntry]) -> dict[bool, int]:
    """Return the parameters in row-sparse layers, and in dense ones, as far as there are any."""
    kinds = {layer.sparse for layer in layers}
    return {kind: sum(each.size for each in layers if each.sparse == kind) for kind in kinds}


def _other_traces(trace: AnyTrace, kinds: Collection[bool]) -> list[Trace]:
    """Return one shipped trace of each other model with row-sparse or dense layers as required."""
    known: dict[object, Trace] = {}
    own = trace.source if isinstance(trace, ExtrapolatedRanks) else trace
    for name, directory in shipped_directories().items():
        if isinstance(own, Trace) and own.directory == directory:
            continue
        other = open_trace(name)
        shapes = _shapes(other)
        enough = {layer.sparse for layer in other.manifest.layers} >= set(kinds)
        if enough and (shapes not in known or other.world_size > known[shapes].world_size):
            known[shapes] = other
    known.pop(_shapes(trace), None)
    return list(known.values())


def _shapes(trace: AnyTrace) -> object:
    return tuple((layer.name, layer.shape) for layer in trace.manifest.layers)


def _record(
    scenario: ReducerScenario, source: AnyTrace, name: str, layers: Sequence[ModelLayer], ranks: int
) -> Mapping[str, RecordedReducer]:
    """Return the recording of each reducer on gradients of a model's layers with the statistics of ``source``."""
    kinds = {layer.sparse for layer in layers}

    def record_all(missing: Sequence[ReducerSpec]) -> dict[str, RecordedReducer]:
        held = [source.gradient(0, rank) for rank in range(ranks)]
        kept = [place for place, layer in enumerate(held[0].layers) if isinstance(layer, RowSparse) in kinds]
        gradients = [select_layers(gradient, kept) for gradient in held]
        with warnings.catch_warnings(action="ignore", category=S2SimWarning):
            # The run itself warns of its own gradients.
            scaling = scale_to_layers(name, layers, gradients[0], _COPIES_OF_RANKS)
            optional = [replace(item, optional=True) for item in missing]
            records, *_ = record_scaled(optional, gradients, scaling, seed=scenario.seed)
        return {item.option_string: item for item in records}

    what = ["transfer", ranks, trace_content(source), [[each.name, each.shape, each.sparse] for each in layers]]
    return through_store(scenario, scenario.reducers_on(ranks), what, record_all)


# The check predicts a whole from its half.
_CHECKED_REACH = 2
# Sizes grow alike at any number of ranks.
_RANKS_TO_CHECK_SIZES = 8
# A factor that is told as none.
_NEGLIGIBLE_FACTOR = 1.01
# One that percents tell better.
_SMALL_FACTOR = 1.2


def record_at_size(
    scenario: ReducerScenario,
    reducers: Sequence[ReducerSpec],
    gradients: Sequence[Gradient],
    others: OtherSteps | None,
    *,
    ranks: int,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run reducers on the gradients, one per rank, at the target size; return also the optional refusals.

    ``reducers`` know the nodes of their ranks; ``ranks`` is the number of ranks of the run, of which only some may have
    to run. Reducers that need other steps take ``others``; with scaled sizes all steps have the same gradients.
    """
    seed, target = scenario.seed, scenario.target
    if target is None:
        return record(reducers, gradients, seed=seed, others=others, on_reducer=on_reducer)
    if isinstance(target, Model):
        whole = (Bucket(tuple(range(len(target.layers)))),)
        found, refused = record_scaled_buckets(
            reducers, gradients, target.layers, whole, target, seed=seed, ranks=ranks, on_reducer=on_reducer
        )
        return [replace(item, exchange=()) for item in found], refused
    scaling = scale_to(target, gradients[0])
    found, refused, _ = record_scaled(reducers, gradients, scaling, seed=seed, ranks=ranks, on_reducer=on_reducer)
    return found, refused


@dataclass(frozen=True, slots=True, eq=False)
class RunExtrapolation:
    """The extrapolation of a run, and the checks of its laws."""

    gradients: Gradients  # What was recorded, and what the run reduces
    workers: int  # Ranks
    checked_ranks: tuple[int, int]  # Ranks of the checks, and most ranks of the transfers
    checks: tuple[HoldOut, ...]  # One a reducer
    # By reducer, what the trace's statistics are worth for other models, where sizes were scaled
    transfers: dict[str, list[tuple[Transfer, PhaseCheck]]]
    notes: tuple[str, ...]
    # Why optional reducers could not be checked, without which the run goes on
    refused: dict[str, str] = field(default_factory=dict)

    def of_reducers(self, names: Collection[str]) -> "RunExtrapolation":
        """Return the same of some of the reducers."""
        transfers = {name: each for name, each in self.transfers.items() if name in names}
        return replace(self, checks=tuple(each for each in self.checks if each.reducer in names), transfers=transfers)

    def mark(self, row: Row) -> Extrapolation:
        """Return the mark of a row."""
        gradients, ranks = self.gradients, self.workers
        more = ranks > gradients.recorded_ranks
        check = next(check for check in self.checks if check.reducer == row.reducer)
        return Extrapolation(
            law="; ".join([*([LAW] if more else []), *([SIZE_LAW] if gradients.scaled else [])]),
            from_workers=min(ranks, gradients.recorded_ranks),
            to_workers=ranks,
            from_parameters=gradients.recorded_parameters,
            to_parameters=gradients.parameters,
            model=gradients.to_model,
            hold_out=check.what,
            hold_out_error_bytes=check.error_bytes,
            hold_out_error_time=check.error_time,
            transfer=tuple(transfer for transfer, _ in self.transfers.get(row.reducer, ())),
        )

    def time_doubt(self, reducer: str, timer_of: Callable[[int], Timer]) -> float:
        """Return by which factor, 1 or more, a time may be off where ``timer_of`` has plain timers by ranks."""
        phases = [check.phase for check in self.checks if check.reducer == reducer]
        phases += [phase for _, phase in self.transfers.get(reducer, ())]
        return worst_factor(phase.errors(timer_of(phase.recorded.workers))[1] for phase in phases)

    def sentence(self) -> str:
        """Return the extent of the extrapolation and its measured errors in one sentence."""
        gradients, reach = self.gradients, []
        if gradients.drawn_ranks:
            reach.append(f"{self.workers} workers from {gradients.recorded_ranks} recorded ranks")
        if gradients.scaled:
            toy = ", which are toy gradients" if gradients.toy else ""
            model = "" if gradients.to_model is None else f" of {gradients.to_model}"
            parameters, recorded = format_count(gradients.parameters), format_count(gradients.recorded_parameters)
            reach.append(f"{parameters} parameters{model} from {recorded} recorded ones{toy}")
        return f"extrapolated: {' and '.join(reach)}; {self._transferred() or self._held_out()}"

    def notes_with_checks(self) -> tuple[str, ...]:
        """Return the sentence and further notes."""
        inside = (f"{self._held_out()}: a check of how they grow, not of other models' gradients",)
        return (self.sentence(), *(inside if self._transferred() else ()), *self.notes)

    def _held_out(self) -> str:
        worst = max(self.checks, key=lambda check: abs(check.error_bytes))
        return (
            f"where {worst.what}, bytes are off by at most {abs(worst.error_bytes):.1%} ({worst.reducer}) and times by "
            f"at most {max(abs(check.error_time) for check in self.checks):.1%}"
        )

    def _transferred(self) -> str | None:
        found = [(reducer, item) for reducer, transfers in self.transfers.items() for item, _ in transfers]
        if not found:
            return None
        names = " and ".join(dict.fromkeys(item.to for _, item in found))
        parts = [
            _worst("bytes are off", [(item.error_bytes, reducer) for reducer, item in found]),
            _worst("times", [(item.error_time, reducer) for reducer, item in found]),
            _worst("errors", [(item.error_l2, reducer) for reducer, item in found if item.error_l2 is not None]),
        ]
        return f"where the recorded gradients of {names} are predicted like this, {', '.join(filter(None, parts))}"


def _worst(what: str, errors: Sequence[tuple[float, str]]) -> str | None:
    """Return the largest factor between predicted and recorded, with its reducer; None without errors."""
    if not errors:
        return None
    factor, _, reducer = max((worst_factor([error]), error, reducer) for error, reducer in errors)
    size = f"up to {factor - 1:.0%}" if factor < _SMALL_FACTOR else f"up to {float(f'{factor:.2g}'):,g}x"
    return f"{what} by {'less than 1 %' if factor < _NEGLIGIBLE_FACTOR else f'{size} ({reducer})'}"


def extrapolate(
    scenario: ReducerScenario, workers: int, progress: ProgressWatcher = SILENT, known: RunExtrapolation | None = None
) -> RunExtrapolation | None:
    """Return the extrapolation of a run, with its laws checked on the recording; None if all was recorded.

    ``known`` is that of other numbers of workers, whose checks are the same where they are of as many ranks.
    """
    trace, asked = scenario.trace, scenario.target
    scaling: Scaling | None = None
    if isinstance(asked, Model):
        scaling = scale_to_layers(asked.name, asked.layers, trace.gradient(0, 0), workers)
    elif asked is not None:
        scaling = scale_to(asked, trace.gradient(0, 0))
    gradients = describe_gradients(scenario, workers)
    recorded_ranks, more = gradients.recorded_ranks, gradients.drawn_ranks > 0
    if not more and scaling is None:
        return None
    ranks = recorded_ranks if more else min(workers, _RANKS_TO_CHECK_SIZES), min(workers, _MAX_RANKS)
    if known is None or known.checked_ranks != ranks:
        progress.start(1, "predicting what was recorded")
        checks, refused = check_extrapolation(scenario, ranks[0])
        transfers = {} if scaling is None else measure_transfers(scenario, workers)
    else:
        checks, refused, transfers = known.checks, known.refused, known.transfers
    notes: tuple[str, ...] = () if scaling is None else scaling.notes
    if more:
        notes = (f"ranks beyond the {recorded_ranks} recorded ones are drawn: {LAW}", *notes)
    if workers > _CHECKED_REACH * recorded_ranks:
        further = (
            f"the check predicts twice the ranks, this run goes to {workers / recorded_ranks:.3g} times as many: "
            "s2sim trace show tells how far off the law is further out"
        )
        notes = (*notes, further)
    return RunExtrapolation(gradients, workers, ranks, checks, transfers, notes, refused)
