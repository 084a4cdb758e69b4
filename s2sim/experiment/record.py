"""Reducers run once on real gradients: their scripts, and the distance of their results to the exact mean."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from math import hypot
from typing import TypeVar

import numpy as np

from s2sim.errors import CodecError, S2SimError, warnings_about
from s2sim.experiment.row_parts import BoundRow, Refused
from s2sim.experiment.scenario.reducers import AnyLayer, ReducerScenario, ReducerSpec
from s2sim.gradients.gradient import Gradient, add, stored
from s2sim.gradients.law import ExtrapolatedRanks
from s2sim.gradients.models import Model, ModelLayer
from s2sim.gradients.read_trace import shipped_directories
from s2sim.gradients.scaling import assign_tables
from s2sim.gradients.statistics import GradientTable, trace_statistics
from s2sim.profiles.profile import VALUE_BYTES
from s2sim.reducers import measure
from s2sim.reducers.rank import ErrorBound, Reducer
from s2sim.reducers.run import OtherSteps, run_reducer
from s2sim.reducers.script import AwaitGradient, Recording
from s2sim.simulation.bucketing.policy import BucketExchange
from s2sim.units import format_bytes, format_count, format_number_of


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of a run as it reduces them."""

    # trace, model, kind: name of the trace, one line on the model that it was taken from, and whether it is
    # ``recorded``, ``imported`` or ``synthetic``
    trace: str
    model: str
    kind: str
    toy: bool  # Whether those of a small model stand for those of the one that the reader trains
    # recorded_ranks, recorded_steps, recorded_parameters: extent of the trace; of a synthetic one what is drawn
    recorded_ranks: int
    recorded_steps: int
    recorded_parameters: int
    # parameters, bytes: of one rank's dense gradient
    parameters: int
    bytes: int
    dtype: str  # Type that training holds it in
    to_model: str | None  # Model to whose layers sizes were scaled, where one was asked for
    drawn_ranks: int  # Ranks beyond the recorded ones, drawn by the law fitted to these
    # Share of the elements that one rank holds: those of stored rows, and of dense layers those that are not zero; mean
    # over ranks and steps
    density: float
    # Share of the rows of row-sparse layers that one rank holds; None where there is no such layer
    row_density: float | None

    @property
    def scaled(self) -> bool:
        """Whether sizes are others than those of the trace."""
        return self.to_model is not None or self.parameters != self.recorded_parameters

    def short_sentence(self) -> str:
        """Return name, size and density in one line."""
        whose = "Toy gradients" if self.toy else "Gradients"
        rows = "" if self.row_density is None else f", {_percent(self.row_density)} of the rows of its tables"
        return f"{whose}: {self.trace}, {self._size_text()}{rows}."

    def _size_text(self) -> str:
        size = f"{format_bytes(self.bytes)} a rank{'' if self.dtype == 'fp32' else f' in {self.dtype}'}"
        if not self.scaled:
            return size
        model = "" if self.to_model is None else f" of {self.to_model}"
        return f"scaled to {format_count(self.parameters)} parameters{model}, {size}"

    def sentence(self) -> str:
        """Return all of it in one line."""
        whose = "Toy gradients" if self.toy else "Gradients"
        extent = f"{format_count(self.recorded_parameters)} parameters"
        if self.kind != "synthetic":
            extent += f", {format_number_of(self.recorded_ranks, 'rank')} {self.kind}"
        parts = [f"{whose}: {self.trace} ({self.model}; {extent})", self._size_text()]
        if self.drawn_ranks:
            parts.append(f"{format_number_of(self.drawn_ranks, 'rank')} more drawn by a law")
        held = f"a rank holds {_percent(self.density)} of the elements"
        if self.row_density is not None:
            held += f", {_percent(self.row_density)} of the rows of its tables"
        return "; ".join([*parts, held]) + "."


def _percent(share: float) -> str:
    """Return a share for reading, "all" only where nothing is missing.

    >>> _percent(0.03451), _percent(0.9999), _percent(1.0)
    ('3.5 %', '99.99 %', 'all')
    """
    if share == 1:
        return "all"
    return f"{100 * share:.{2 if share < 0.99 else 4}g} %"


# A dense gradient of 40 MB: nobody spreads a smaller model over a cluster.
_SMALL_MODEL_PARAMETERS = 10_000_000


def describe_gradients(scenario: ReducerScenario, workers: int) -> Gradients:
    """Return the description of the gradients of a run of at most ``workers`` ranks."""
    trace, target = scenario.trace, scenario.target
    manifest = trace.manifest
    recorded_ranks = trace.source.world_size if isinstance(trace, ExtrapolatedRanks) else manifest.world_size
    parameters = target.parameters if isinstance(target, Model) else target or manifest.parameters
    statistics = manifest.statistics or trace_statistics(GradientTable(trace.steps, 1, trace.gradient))
    held = {name: spread.density for name, spread in statistics.layers.items()}
    shares: list[tuple[AnyLayer, float]] = [(layer, held[layer.name]) for layer in manifest.layers]
    if isinstance(target, Model):
        after = assign_tables(target.layers, [layer.name for layer in manifest.layers if layer.sparse])
        dense = _mean((layer.size, share) for layer, share in shares if not layer.sparse) or 0.0
        shares = [(one, _share(one, held[after[one.name]]) if one.sparse else dense) for one in target.layers]
    small = manifest.kind != "synthetic" and manifest.parameters < _SMALL_MODEL_PARAMETERS
    return Gradients(
        trace=trace.name,
        model=manifest.model,
        kind=manifest.kind,
        # Those of a small model stand for others: scaled, or where they come with s2sim.
        toy=small and (target is not None or trace.name in shipped_directories()),
        recorded_ranks=recorded_ranks,
        recorded_steps=manifest.steps,
        recorded_parameters=manifest.parameters,
        parameters=parameters,
        bytes=VALUE_BYTES[scenario.dtype] * parameters,
        dtype=scenario.dtype,
        to_model=target.name if isinstance(target, Model) else None,
        drawn_ranks=max(0, workers - recorded_ranks),
        density=_mean((layer.size, share) for layer, share in shares) or 0.0,
        row_density=_mean((layer.shape[0], share) for layer, share in shares if layer.sparse),
    )


def _share(table: ModelLayer, held: float) -> float:
    """Return the share of a table's rows that a rank holds."""
    return min(held, table.most_rows / table.shape[0]) if table.most_rows else held


def _mean(weighted: Iterable[tuple[int, float]]) -> float | None:
    pairs = list(weighted)
    whole = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / whole if whole else None


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordedReducer:
    """The run of one reducer on one set of gradients.

    ``reducer`` has its options fitted; it is not one of the instances that ran. ``errors`` are those of the worst
    rank, ``bound`` is the published bound on the error of an element, ``consensus`` that of
    `s2sim.reducers.measure.consensus_distance`. ``exchange`` are the buckets in which it ran, whose recordings are
    joined in ``recording``; empty if it took all layers in one batch.
    """

    option_string: str
    reducer: Reducer
    recording: Recording
    errors: measure.Errors
    bound: BoundRow | None
    consensus: float | None
    exchange: tuple[BucketExchange, ...] = ()
    shards: bool = False  # Whether each rank ends with its part of the mean alone

    @property
    def spec(self) -> ReducerSpec:
        """What was asked for, with its options fitted."""
        return ReducerSpec(self.option_string, self.reducer)

    @property
    def assumes(self) -> str | None:
        """The assumptions of its time besides those of the simulation."""
        parts = []
        if AwaitGradient() in self.recording.scripts[0]:
            parts.append("rows are known before forward")
        if self.reducer.traits.warm:
            parts.append("sizes carry over from the step before")
        if self.reducer.traits.assumes:
            parts.append(self.reducer.traits.assumes)
        return " and ".join(parts) or None


_FLOAT32_ROUNDING, _MAX_NAMES = 2.0**-23, 8


def baseline_of(recorded: Sequence[RecordedReducer]) -> RecordedReducer:
    """Return the ``dense`` with which all are compared, the first of several types."""
    return next(item for item in recorded if item.reducer.traits.baseline)


def format_names(recorded: Sequence[RecordedReducer]) -> str:
    """Return the option strings for a note; of many only their number."""
    if len(recorded) > _MAX_NAMES:
        return f"{recorded[0].option_string} and {len(recorded) - 1} more"
    return ", ".join(item.option_string for item in recorded)


def record(
    reducers: Sequence[ReducerSpec],
    gradients: Sequence[Gradient],
    *,
    seed: int,
    others: OtherSteps | None = None,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run each reducer on the gradients, one per rank, with empty residuals; return also the optional refusals.

    A warm one takes its state from another step, one with a period also the following steps; without ``others`` all
    steps have the same gradients.
    """
    means = exact_means(gradients, others)

    def record_one(asked: ReducerSpec) -> RecordedReducer:
        reducer = asked.reducer.fitted(gradients, seed)
        exact = means(reducer.period)
        ran = run_reducer(replace(asked, reducer=reducer).timed, gradients, seed=seed, others=others)
        compressed = reducer.compresses(gradients[0])
        results = measure.final_results(ran.results, reducer.traits)
        errors = measure.worst_error(results, exact, compressed)
        bound = make_bound_row([(ran.instances[0].error_bound(), compressed)], results[0].mean, exact)
        apart = measure.consensus_distance(results)
        return RecordedReducer(asked.option_string, reducer, ran.recording, errors, bound, apart)

    return record_each(reducers, len(gradients), record_one, on_reducer)


def record_each(
    reducers: Sequence[ReducerSpec], ranks: int, record_one: Callable[[ReducerSpec], T], on_reducer: Callable[[], None]
) -> tuple[list[T], list[Refused]]:
    """Return the recording of each reducer, and the optional ones that refuse the gradients."""
    found, refused = [], []
    for asked in reducers:
        try:
            with warnings_about(asked.option_string):
                found.append(record_one(asked))
        except S2SimError as error:
            text = asked.option_string
            if asked.optional:
                refused.append(Refused(text, ranks, str(error)))
            elif isinstance(error, CodecError):
                raise CodecError(f"{text} cannot take these gradients: {error}; leave it out with --reducer") from None
            else:
                raise
        on_reducer()
    return found, refused


def exact_means(gradients: Sequence[Gradient], others: OtherSteps | None) -> Callable[[int], Gradient]:
    """Return what returns the exact float64 mean over ranks, summed over a period of steps; each is computed once."""
    first = measure.mean_float64(gradients)

    @cache
    def over(period: int) -> Gradient:
        if others is None:
            return first if period == 1 else first.map(lambda values: values * period)
        return reduce(add, (measure.mean_float64(others(step)) for step in range(1, period)), first)

    return over


def make_bound_row(
    parts: Sequence[tuple[ErrorBound | None, Sequence[int]]], mean: Gradient, exact: Gradient
) -> BoundRow | None:
    """Return the published bound over the norm, and its share of elements, of layers' ``parts``; None for none."""
    limits, lengths, laws, told = {}, [], [], []
    for bound, compressed in parts:
        layers = [index for index in compressed if exact.layers[index].size]
        if not layers:
            continue
        if bound is None:
            return None
        own = [measure.norm(exact, [index]) for index in layers]
        for index, length, element in zip(layers, own, bound.element, strict=True):
            # A sum and its quotient are rounded to float32.
            rounding = _FLOAT32_ROUNDING * float(np.abs(stored(exact.layers[index])).max(initial=0.0))
            limits[index] = (element * length if bound.relative else element) + rounding
        if bound.relative_l2 is not None:
            laws += [each * length for each, length in zip(bound.relative_l2, own, strict=True)]
        lengths += own
        told.append(bound)
    if not told:
        return None
    whole = hypot(*lengths)
    return BoundRow(
        element=max(limits.values()) / whole if whole else 0.0,
        share=min(bound.share for bound in told),
        share_found=measure.share_within(mean, exact, limits),
        relative_l2=hypot(*laws) / whole if whole and len(laws) == len(lengths) else None,
        source=told[0].source,
    )
