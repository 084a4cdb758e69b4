"""How far the gradients of one model tell those of another: from the trace at hand to the recorded ones of others.

Whoever scales gradients to another model takes its statistics from the model that was recorded. Each shipped trace of
another model shows how far off that is: its layers are given the statistics of the trace at hand, just as the layers of
the model that was asked for are, and then its own. What reducers send, how long they take and what they lose is then
compared. Both are grown to the size that was asked for, at which times are bytes and not latency.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.errors import S2SimWarning
from s2sim.gradients.extrapolation.law_ranks import MoreRanks
from s2sim.gradients.extrapolation.models import LayerGroup, LayerTable, Model, Published
from s2sim.gradients.extrapolation.scaling import scale_to_model
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.traces.read import Trace, open_trace
from s2sim.gradients.traces.shipped import shipped_directories
from s2sim.study.extrapolate.scaled_scripts import record_scaled, relative_error
from s2sim.study.measuring.executed import Executed
from s2sim.study.measuring.make_row import traffic
from s2sim.study.measuring.result import ROUNDING_ERROR
from s2sim.study.measuring.row_parts import Transfer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from s2sim.gradients.load import AnyTrace
    from s2sim.study.scenario.reducers import ReducerScenario

# Statistics differ at any number of ranks; these take a second.
_MOST_RANKS = 8
# Dense layers run as copies as small as those of so many ranks: all values of every shipped trace, and some twice.
_COPIES_OF_RANKS = 128


@dataclass(frozen=True, slots=True)
class _Found:
    """What one reducer does: bytes of the rank that sends most, time of the phase, relative L2 error."""

    bytes: int
    time_ps: int
    error: float | None


def measure_transfer(scenario: ReducerScenario, workers: int) -> dict[str, tuple[Transfer, ...]]:
    """Return, by option string, how far off the trace's statistics are for each shipped trace of another model.

    Both run on the scenario's cluster for as many ranks, at most eight, filled in order and without faults, each
    collective by its fastest algorithm. Left out is what a reducer cannot do with these gradients.
    """
    trace, target = scenario.trace, scenario.target
    asked = target.layers if isinstance(target, Model) else trace.manifest.layers
    parameters = target.parameters if isinstance(target, Model) else target or trace.manifest.parameters
    kinds = {layer.sparse for layer in asked}
    found: dict[str, list[Transfer]] = {item.option_string: [] for item in scenario.reducers}
    for other in _others(trace, kinds):
        ranks = min(workers, other.world_size, _MOST_RANKS)
        model = _grown_model(other, kinds, parameters)
        predicted, recorded = (_run(scenario, source, kinds, model, ranks) for source in (trace, other))
        for reducer, truth in recorded.items():
            if reducer in predicted:
                found[reducer].append(_transfer(other.name, ranks, predicted[reducer], truth))
    return {reducer: tuple(transfers) for reducer, transfers in found.items()}


def _others(trace: AnyTrace, kinds: Collection[bool]) -> list[Trace]:
    """Return the shipped traces of other models, one a model, that have row-sparse or dense layers as needed."""
    known: dict[object, Trace] = {}
    own = trace.source if isinstance(trace, MoreRanks) else trace
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


def _grown_model(trace: Trace, kinds: Collection[bool], parameters: int) -> Model:
    """Return the layers of some kinds of a trace, grown alike in rows to about so many parameters."""
    kept = [layer for layer in trace.manifest.layers if layer.sparse in kinds]
    factor = parameters / sum(layer.size for layer in kept)
    layers = tuple(
        LayerGroup(layer.name, (max(1, round(factor * layer.shape[0])), *layer.shape[1:]), sparse=layer.sparse)
        for layer in kept
    )
    source = f"the manifest of trace {trace.name}"
    published = Published(sum(layer.size for layer in layers), 0.0, "estimated", source)
    return Model(trace.name, LayerTable(trace.manifest.model, "estimated", source, layers, published))


def _run(
    scenario: ReducerScenario, source: AnyTrace, kinds: Collection[bool], model: Model, ranks: int
) -> Mapping[str, _Found]:
    """Return what reducers do with gradients of a model that have the statistics of ``source``."""
    gradients = [_of_kinds(source.gradient(0, rank), kinds) for rank in range(ranks)]
    plain = scenario.plain()
    timer = plain.timer(ranks)
    with warnings.catch_warnings():
        # What there is to warn of, the run itself says of its own gradients.
        warnings.simplefilter("ignore", S2SimWarning)
        scaling = scale_to_model(model, gradients[0], _COPIES_OF_RANKS)
        optional = [replace(item, optional=True) for item in plain.reducers_on(ranks)]
        records, _ = record_scaled(optional, gradients, scaling, seed=scenario.seed)
    found = {}
    for item in records:
        run = Executed(item.recording, plain, timer)
        error = None if item.reducer.traits.lossless else item.errors.whole.relative_l2
        found[item.option_string] = _Found(int(traffic(run)[0].max()), run.replay.total_ps, error)
    return found


def _of_kinds(gradient: Gradient, kinds: Collection[bool]) -> Gradient:
    kept = [(name, layer) for name, layer in gradient if isinstance(layer, RowSparse) in kinds]
    names, layers = zip(*kept, strict=True)
    return Gradient(names, layers)


def _transfer(to: str, ranks: int, predicted: _Found, recorded: _Found) -> Transfer:
    error = None
    if predicted.error is not None and recorded.error and max(predicted.error, recorded.error) > ROUNDING_ERROR:
        error = predicted.error / recorded.error - 1
    return Transfer(
        to=to,
        workers=ranks,
        error_bytes=relative_error(predicted.bytes, recorded.bytes),
        error_time=relative_error(predicted.time_ps, recorded.time_ps),
        error_l2=error,
    )
