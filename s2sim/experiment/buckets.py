"""Reducers bucket by bucket: each runs on the layers of one bucket, with separate state.

Buckets of a model larger than the recorded one share one scaled recording where their layers are equal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import lcm, sqrt
from typing import NamedTuple
from warnings import WarningMessage

from s2sim.errors import S2SimError, S2SimWarning, hold_warnings, warnings_about
from s2sim.experiment.record import RecordedReducer, exact_means, make_bound_row, record, record_each
from s2sim.experiment.row_parts import Refused
from s2sim.experiment.scaled_scripts import record_scaled, weighted_errors
from s2sim.experiment.scenario.reducers import ReducerSpec, zero_gradient
from s2sim.gradients import scaling as gradient_scaling
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.models import Model, ModelLayer
from s2sim.reducers.measure import Error, Errors, consensus_distance, final_results, worst_error
from s2sim.reducers.rank import Reduced, Reducer
from s2sim.reducers.registry import option_string
from s2sim.reducers.run import OtherSteps, ReducerRun, dry_run, run_reducer
from s2sim.reducers.shared.layers import merge_layers, select_layers
from s2sim.seeds import bucket_seed
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange, merge_recordings


def buckets_for(reducer: Reducer, buckets: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """Return the buckets that a reducer runs on: these, or one of all their tensors."""
    if reducer.traits.scope == "bucket":
        return tuple(buckets)
    return (Bucket(tuple(sorted(place for bucket in buckets for place in bucket.tensors))),)


def record_buckets(
    reducers: Sequence[ReducerSpec],
    gradients: Sequence[Gradient],
    layers: Sequence[ModelLayer],
    buckets: Sequence[Bucket],
    *,
    seed: int,
    others: OtherSteps | None = None,
    model: Model | None = None,
    ranks: int | None = None,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run each reducer on every bucket; return the recordings, and the refusals of optional ones.

    If ``layers`` (in the order of readiness, by whose indices buckets name them) are those of the gradients,
    these run unchanged. Otherwise scripts are scaled to the layers with the statistics of the gradients, in the
    order of ``model`` if the layers are its own, else of forward; all steps then have the same gradients. One
    bucket of all layers equals `record_at_size`. Identical buckets share one recording; a reducer that is defined
    over the whole gradient has one bucket. ``ranks`` as in `record_scaled`. `S2SimError` if a reducer that is not
    optional refuses a bucket, or its scripts cannot be scaled.
    """
    if {layer.name: layer.size for layer in layers} != {name: layer.size for name, layer in gradients[0]}:
        return record_scaled_buckets(
            reducers, gradients, layers, buckets, model, seed=seed, ranks=ranks, on_reducer=on_reducer
        )
    means, like = exact_means(gradients, others), gradients[0]
    place_of = {name: place for place, name in enumerate(like.names)}

    def record_one(asked: ReducerSpec) -> RecordedReducer:
        own_buckets = buckets_for(asked.reducer, buckets)
        if len(own_buckets) == 1:
            ((found,), _) = record([replace(asked, optional=False)], gradients, seed=seed, others=others)
            return replace(found, exchange=(BucketExchange(own_buckets[0], found.recording),))
        parts = [sorted(place_of[layers[tensor].name] for tensor in bucket.tensors) for bucket in own_buckets]
        fitted: list[Reducer] = []
        ran: list[ReducerRun] = []
        with capture_warnings() as told:
            for part in parts:
                own = [select_layers(gradient, part) for gradient in gradients]
                own_seed = bucket_seed(seed, own[0].names)
                fitted.append(asked.reducer.fitted(own, own_seed))
                timed = replace(asked, reducer=fitted[-1]).timed
                ran.append(run_reducer(timed, own, seed=own_seed, others=_restrict_steps(others, part)))
        exact = means(fitted[0].period)
        results = final_results(_merged(parts, [each.results for each in ran], like), asked.reducer.traits)
        compressed = [
            [part[index] for index in each.compresses(select_layers(like, part))]
            for each, part in zip(fitted, parts, strict=True)
        ]
        most = max(range(len(parts)), key=lambda place: select_layers(like, compressed[place]).size)
        if told:
            dry_run(fitted[most], like, len(gradients), seed=seed)
        bounds = [(each.instances[0].error_bound(), layers) for each, layers in zip(ran, compressed, strict=True)]
        exchange = tuple(BucketExchange(bucket, each.recording) for bucket, each in zip(own_buckets, ran, strict=True))
        return RecordedReducer(
            asked.option_string,
            fitted[most],
            merge_recordings(exchange),
            worst_error(results, exact, sorted(index for layers in compressed for index in layers)),
            make_bound_row(bounds, results[0].mean, exact),
            consensus_distance(results),
            exchange,
        )

    return record_each(reducers, len(gradients), record_one, on_reducer)


def _restrict_steps(others: OtherSteps | None, part: Sequence[int]) -> OtherSteps | None:
    return None if others is None else lambda step: [select_layers(gradient, part) for gradient in others(step)]


def _merged(parts: Sequence[Sequence[int]], results: Sequence[Sequence[Reduced]], like: Gradient) -> list[Reduced]:
    known: dict[tuple[int, ...], Gradient] = {}
    found = []
    for own in zip(*results, strict=True):
        alike = tuple(id(each.mean) for each in own)
        if alike not in known:
            known[alike] = merge_layers(zip(parts, (each.mean for each in own), strict=True), like)
        found.append(replace(own[0], mean=known[alike]))
    return found


@contextmanager
def capture_warnings() -> Iterator[list[WarningMessage]]:
    """Collect the warnings of reducers on parts of a gradient instead of showing them.

    A part may lack what others have. If no part warns, the full gradient has nothing to warn of; else the caller
    runs the reducer by `dry_run` on the full gradient.
    """
    told: list[WarningMessage] = []
    with hold_warnings() as every:
        yield told
        told += [each for each in every if issubclass(each.category, S2SimWarning)]
        every[:] = [each for each in every if each not in told]


class LayerView(NamedTuple):
    """What a reducer sees of a layer."""

    sort: int  # See `Reducer.sorts`
    table: int  # Which of the recorded layers it takes after; -1 where it is dense
    matrix: bool  # Whether it is taken as a matrix
    shape: tuple[int, ...]  # Of a table or a matrix; the elements of others
    most_rows: int  # Of a table


@dataclass(frozen=True, slots=True)
class FullModel:
    """All layers of a model, in its order, and the gradients that they take after."""

    name: str
    layers: Sequence[ModelLayer]
    gradients: Sequence[Gradient]
    seed: int
    ranks: int  # Of the run; more than there are gradients if scripts follow from those of one

    def scaling(self) -> gradient_scaling.Scaling:
        """Return that to all layers."""
        return gradient_scaling.scale_to_layers(self.name, self.layers, self.gradients[0], len(self.gradients))


@dataclass(frozen=True, slots=True)
class BucketGroup:
    """Reducers with the same buckets and the same views of them.

    ``parts`` has the layers of each bucket, ``seen`` the views of these: equal views give equal recordings.
    ``least_side`` and ``unit`` are those of `Reducer`; if ``even``, sizes follow from copies of any shape.
    """

    buckets: tuple[Bucket, ...]
    parts: tuple[tuple[ModelLayer, ...], ...]
    seen: tuple[tuple[LayerView, ...], ...]
    least_side: int
    unit: int
    even: bool
    reducers: list[ReducerSpec]


# Of all layers together, where each runs with at least one row: more are those of wide layers of a large model.
_MOST_ROW_SCALED = 2 * gradient_scaling.MAX_ELEMENTS


def record_scaled_buckets(
    reducers: Sequence[ReducerSpec],
    gradients: Sequence[Gradient],
    layers: Sequence[ModelLayer],
    buckets: Sequence[Bucket],
    model: Model | None,
    *,
    seed: int,
    ranks: int | None = None,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run each reducer on every bucket of layers, by readiness, of ``gradients`` of all or some of ``ranks``."""
    own = {layer.name: layer for layer in layers}
    order = [] if model is None else [layer.name for layer in model.layers]
    if {*order} != own.keys():
        order = [layer.name for layer in reversed(layers)]
    name = "asked for" if model is None else model.name
    whole = FullModel(name, [own[name] for name in order], gradients, seed, ranks or len(gradients))
    tables = gradient_scaling.match_tables(whole.name, whole.layers, gradients[0])
    names, place = [layer.name for layer in layers], {name: number for number, name in enumerate(order)}
    groups: dict[object, BucketGroup] = {}
    for asked in reducers:
        reducer = asked.reducer
        compressed = reducer.compresses(zero_gradient(layers)) if reducer.least_side else ()
        matrices = {names[index] for index in compressed if len(layers[index].shape) > 1}
        views = {
            layer.name: LayerView(
                sort,
                tables.get(layer.name, -1),
                layer.name in matrices,
                layer.shape if layer.sparse or layer.name in matrices else (layer.size,),
                layer.most_rows,
            )
            for layer, sort in zip(layers, reducer.layer_classes(names), strict=True)
        }
        own_buckets, parts = buckets_for(reducer, buckets), []
        for bucket in own_buckets:
            part = sorted((layers[tensor] for tensor in bucket.tensors), key=lambda layer: place[layer.name])
            parts.append(tuple(sorted(part, key=lambda layer: views[layer.name]) if len(own_buckets) > 1 else part))
        seen = tuple(tuple(views[layer.name] for layer in part) for part in parts)
        unit = reducer.alignment(whole.ranks)
        # A density of the whole gradient keeps thousands of elements even of a small copy.
        even = not reducer.least_side and (unit == 1 or reducer.traits.scope == "gradient")
        group = BucketGroup(own_buckets, tuple(parts), seen, reducer.least_side, unit, even, [])
        groups.setdefault((seen, reducer.least_side, unit, even), group).reducers.append(asked)
    found: dict[str, RecordedReducer] = {}
    refused: list[Refused] = []
    for group in groups.values():
        records, others = _record(group, whole, tables)
        found |= {item.option_string: item for item in records}
        refused += others
        for _ in group.reducers:
            on_reducer()
    return [found[item.option_string] for item in reducers if item.option_string in found], refused


@dataclass(frozen=True, slots=True)
class _BucketRuns:
    """Recordings of one bucket's layers by reducer, and the squared norms of the layers' means."""

    records: Mapping[str, RecordedReducer]
    squares: Sequence[float]
    like: Gradient


def _record(
    group: BucketGroup, whole: FullModel, tables: Mapping[str, int]
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run the reducers of a group on one bucket of each kind."""
    ranks = len(whole.gradients)
    symmetric = whole.ranks > ranks
    if (
        len(group.buckets) == 1
        and group.even
        and not symmetric
        and gradient_scaling.elements_by_rows(whole.layers, ranks) <= _MOST_ROW_SCALED
    ):
        records, refused, _ = record_scaled(group.reducers, whole.gradients, whole.scaling(), seed=whole.seed)
        return [replace(one, exchange=(BucketExchange(group.buckets[0], one.recording),)) for one in records], refused
    kinds = dict(zip(reversed(group.seen), reversed(group.parts), strict=True))
    elements = gradient_scaling.DENSE_ELEMENTS // ranks // len(kinds)
    # So many layers can run with so many elements each.
    least = gradient_scaling.MAX_ELEMENTS // ranks // sum(map(len, kinds.values()))
    left, refused, most = list(group.reducers), [], gradient_scaling.MAX_ELEMENTS // ranks
    if not group.even and group.unit > most and any(layer.size > most for part in group.parts for layer in part):
        why = (
            f"on {ranks} ranks it keeps one element of {group.unit}, of which the small copies that run for a model's "
            "buckets have too few to tell how many it keeps: leave it out, or take fewer workers or a larger density"
        )
        for asked in left:
            if not asked.optional:
                raise S2SimError(f"{asked.option_string}: {why}")
        left, refused = [], [Refused(asked.option_string, ranks, why) for asked in left]
    ran: dict[tuple[LayerView, ...], _BucketRuns] = {}
    with capture_warnings() as told:
        for seen, part in kinds.items():
            scaling = gradient_scaling.scale_to_bucket(
                part,
                whole.gradients[0],
                tables,
                elements,
                sorts={layer.name: each.sort for layer, each in zip(part, seen, strict=True)},
                matrices={layer.name for layer, each in zip(part, seen, strict=True) if each.matrix},
                least_side=group.least_side,
                # All ranks have shares of the same size.
                unit=lcm(1 if group.even else group.unit, whole.ranks if symmetric else 1),
                least=max(1, min(least, gradient_scaling.MIN_ELEMENTS)),
            )
            seed = bucket_seed(whole.seed, [layer.name for layer in part]) if len(group.buckets) > 1 else whole.seed
            ran[seen], others = _run(left, whole, scaling, seed)
            refused += others
            left = [item for item in left if item.option_string in ran[seen].records]
    found = [_combine_buckets(item.option_string, group, [ran[seen] for seen in group.seen], whole) for item in left]
    silent = {item.option_string for item in left if all(item.reducer.fallback_for(each.like) for each in ran.values())}
    for item in found:
        # One that leaves all buckets to another has had nothing to warn of.
        if told or item.option_string in silent:
            with warnings_about(item.option_string):
                dry_run(item.reducer, whole.scaling().run(whole.gradients[0]), whole.ranks, seed=whole.seed)
    return found, refused


def _run(
    reducers: Sequence[ReducerSpec], whole: FullModel, scaling: gradient_scaling.Scaling, seed: int
) -> tuple[_BucketRuns, list[Refused]]:
    """Run reducers on copies of a bucket; one that delegates the bucket takes the recording of its delegate."""
    like = scaling.run(whole.gradients[0])
    left_to = {item.option_string: item.reducer.fallback_for(like) for item in reducers}
    run = [item for item in reducers if left_to[item.option_string] is None]
    does = {option_string(item.reducer): item.option_string for item in reversed(run)}
    for other in filter(None, left_to.values()):
        if (text := option_string(other)) not in does:
            does[text] = text
            run.append(ReducerSpec(text, other))
    records, refused, squares = record_scaled(run, whole.gradients, scaling, seed=seed, ranks=whole.ranks)
    found = {item.option_string: item for item in records}
    for item in reducers:
        if (instead := left_to[item.option_string]) is not None:
            done = found[does[option_string(instead)]]
            found[item.option_string] = replace(done, option_string=item.option_string, reducer=item.reducer)
    return _BucketRuns(found, squares, like), refused


def _combine_buckets(text: str, group: BucketGroup, ran: Sequence[_BucketRuns], whole: FullModel) -> RecordedReducer:
    records = [each.records[text] for each in ran]
    layers: dict[str, Error] = {}
    squares: dict[str, float] = {}
    compressed: set[str] = set()
    sizes = []
    for part, each, item in zip(group.parts, ran, records, strict=True):
        names = [layer.name for layer in part]
        layers |= zip(names, item.errors.layers.values(), strict=True)
        squares |= zip(names, each.squares, strict=True)
        own = item.reducer.compresses(each.like)
        compressed |= {names[index] for index in own}
        sizes.append([part[index].size for index in own])
    names = [layer.name for layer in whole.layers]
    nothing = Error(None, None)
    own_errors = Errors(nothing, nothing, {name: layers[name] for name in names})
    places = [index for index, name in enumerate(names) if name in compressed]
    errors = weighted_errors(own_errors, [squares[name] for name in names], places)
    most = max(range(len(records)), key=lambda place: sum(sizes[place]))
    exchange = tuple(BucketExchange(bucket, one.recording) for bucket, one in zip(group.buckets, records, strict=True))
    # Squares add.
    squared = [(one.consensus, sum(each.squares)) for one, each in zip(records, ran, strict=True)]
    apart = [distance**2 * square for distance, square in squared if distance is not None]
    whole_square = sum(sum(each.squares) for each in ran)
    consensus: float | None = None
    if len(apart) == len(records):
        consensus = sqrt(sum(apart) / whole_square) if whole_square else 0.0
    return RecordedReducer(text, records[most].reducer, merge_recordings(exchange), errors, None, consensus, exchange)
