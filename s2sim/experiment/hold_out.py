"""Checks of extrapolations: half of the recording is predicted from the other half, and other models from this trace.

To scale gradients to another model, its layers take the statistics of the recorded model. Each shipped trace of another
model measures the error of that: its layers run with the statistics of this trace and with their own, both scaled to
the target size, at which times depend on bytes rather than latency.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimWarning
from s2sim.experiment.execute import ExecutedRecording
from s2sim.experiment.record import RecordedReducer
from s2sim.experiment.recording_store import through_store
from s2sim.experiment.row_parts import Transfer
from s2sim.experiment.rows import ROUNDING_ERROR
from s2sim.experiment.scaled_scripts import Outcome, record_scaled, run_without_warnings, scale_scripts
from s2sim.experiment.scenario.content_hash import trace_content
from s2sim.experiment.scenario.reducers import ReducerScenario, ReducerSpec, place_reducers
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.law import ExtrapolatedRanks, fit_law
from s2sim.gradients.models import Model, ModelLayer
from s2sim.gradients.read_trace import Trace, open_trace, shipped_directories
from s2sim.gradients.scaling import keep_rows, scale_to, scale_to_layers
from s2sim.gradients.statistics import GradientTable
from s2sim.gradients.synthetic import AnyTrace
from s2sim.reducers.script import Recording
from s2sim.reducers.shared.layers import select_layers
from s2sim.seeds import named_generator


@dataclass(frozen=True, slots=True, eq=False)
class PhaseCheck:
    """A communication phase as it was predicted, and the same of recorded gradients."""

    scenario: ReducerScenario
    predicted: Recording
    recorded: Recording

    def errors(self, timer: Timer) -> tuple[float, float]:
        """Return predicted over recorded less 1: of the bytes of the busiest rank, and of the time of the phase.

        On one rank nothing is sent and nothing is predicted.
        """
        runs = [ExecutedRecording(each, self.scenario, timer) for each in (self.predicted, self.recorded)]
        pairs = [int(run.traffic()[0].max()) for run in runs], [run.replay.total_ps for run in runs]
        of_bytes, of_time = (guess / truth - 1 if truth else 0.0 for guess, truth in pairs)
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
    kinds = {layer.sparse for layer in asked}
    found: dict[str, list[tuple[Transfer, PhaseCheck]]] = {item.option_string: [] for item in scenario.reducers}
    for other in _other_traces(trace, kinds):
        ranks = min(workers, other.world_size, _MAX_RANKS)
        kept = [layer for layer in other.manifest.layers if layer.sparse in kinds]
        factor = parameters / sum(layer.size for layer in kept)
        # Rows grow until there are about as many parameters.
        shapes = [(max(1, round(factor * layer.shape[0])), *layer.shape[1:]) for layer in kept]
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
