"""Buckets of a model larger than what was recorded: those of like layers share one scaled recording."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.extrapolation.parts import scale_to_part
from s2sim.gradients.extrapolation.scaling import MOST_ELEMENTS, dense_elements, scale_to_layers, tables_like
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.measure import Error, Errors
from s2sim.reducers.scripts.join import join_buckets
from s2sim.study.extrapolate.scaled_scripts import record_copies, record_scaled, squares_at, weighted_errors
from s2sim.study.measuring.buckets import BucketedRecord, bucket_seed, buckets_for, heard, say_of_all
from s2sim.study.measuring.record import Recorded
from s2sim.study.measuring.row_parts import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from s2sim.gradients.extrapolation.models import Model, ModelLayer
    from s2sim.gradients.extrapolation.scaling import Scaling
    from s2sim.gradients.gradient import Layer
    from s2sim.replay.iteration.disciplines.discipline import Bucket
    from s2sim.study.scenario.asked import AskedReducer


class _Sight(NamedTuple):
    """What a reducer sees of a layer.

    Attributes
    ----------
    sort : int
        See `Reducer.sorts`.
    table : int
        Which of the recorded layers it takes after; -1 where it is dense.
    matrix : bool
        Whether it is taken as a matrix.
    shape : tuple of int
        Of a table or a matrix; the elements of others.
    """

    sort: int
    table: int
    matrix: bool
    shape: tuple[int, ...]


def record_scaled_buckets(
    reducers: Sequence[AskedReducer],
    gradients: Sequence[Gradient],
    layers: Sequence[ModelLayer],
    buckets: Sequence[Bucket],
    model: Model | None,
    *,
    seed: int,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[BucketedRecord], list[Refused]]:
    """Return what each reducer does with every bucket of layers, as `s2sim.study.extrapolate.buckets` says.

    ``layers`` are in the order of readiness, with the statistics of ``gradients``, one a rank.
    """
    own = {layer.name: layer for layer in layers}
    order = [] if model is None else [layer.name for layer in model.layers]
    if {*order} != own.keys():
        order = [layer.name for layer in reversed(layers)]
    whole = _Whole("asked for" if model is None else model.name, [own[name] for name in order], gradients, seed)
    tables = tables_like(whole.name, whole.layers, gradients[0])
    groups: dict[object, _Group] = {}
    for asked in reducers:
        group = _group(asked, layers, buckets, whole, tables)
        groups.setdefault((group.seen, group.least_side, group.unit, group.even), group).reducers.append(asked)
    found: dict[str, BucketedRecord] = {}
    refused: list[Refused] = []
    for group in groups.values():
        records, others = _record(group, whole, tables)
        found |= {item.recorded.option_string: item for item in records}
        refused += others
        for _ in group.reducers:
            on_reducer()
    return [found[item.option_string] for item in reducers if item.option_string in found], refused


@dataclass(frozen=True, slots=True)
class _Whole:
    """All layers of a model, in its order, and the gradients that they take after."""

    name: str
    layers: Sequence[ModelLayer]
    gradients: Sequence[Gradient]
    seed: int

    def scaling(self) -> Scaling:
        """Return that to all layers."""
        return scale_to_layers(self.name, self.layers, self.gradients[0], len(self.gradients))


@dataclass(frozen=True, slots=True)
class _Group:
    """Reducers that run on the same buckets and see the same of them.

    ``parts`` has the layers of each bucket, ``seen`` what the reducers see of these; where it is equal they do alike.
    ``least_side`` and ``unit`` are those of `Reducer`; where they are ``even``, sizes follow from copies of any shape.
    """

    buckets: tuple[Bucket, ...]
    parts: tuple[tuple[ModelLayer, ...], ...]
    seen: tuple[tuple[_Sight, ...], ...]
    least_side: int
    unit: int
    even: bool
    reducers: list[AskedReducer]


@dataclass(frozen=True, slots=True)
class _Ran:
    """What came of the layers of one bucket: by reducer, and the squared norms of the layers' means."""

    records: Mapping[str, Recorded]
    squares: Sequence[float]
    like: Gradient


def _group(
    asked: AskedReducer,
    layers: Sequence[ModelLayer],
    buckets: Sequence[Bucket],
    whole: _Whole,
    tables: Mapping[str, int],
) -> _Group:
    """Return a group for a reducer, without any yet."""
    reducer = asked.reducer
    own = buckets_for(reducer, buckets)
    names = [layer.name for layer in layers]
    place = {layer.name: number for number, layer in enumerate(whole.layers)}
    sorts = dict(zip(names, reducer.sorts(names), strict=True))
    matrices = {names[index] for index in reducer.compresses(_zeros(layers))} if reducer.least_side else set()

    def sight(layer: ModelLayer) -> _Sight:
        seen = layer.shape if layer.sparse or layer.name in matrices else (layer.size,)
        return _Sight(sorts[layer.name], tables.get(layer.name, -1), layer.name in matrices, seen)

    parts = []
    for bucket in own:
        part = sorted((layers[tensor] for tensor in bucket.tensors), key=lambda layer: place[layer.name])
        parts.append(tuple(sorted(part, key=sight) if len(own) > 1 else part))
    seen = tuple(tuple(sight(layer) for layer in part) for part in parts)
    unit = reducer.unit(len(whole.gradients))
    # A density of the whole gradient keeps thousands of elements even of a small copy.
    even = not reducer.least_side and (unit == 1 or reducer.traits.scope == "gradient")
    return _Group(own, tuple(parts), seen, reducer.least_side, unit, even, [])


def _zeros(layers: Sequence[ModelLayer]) -> Gradient:
    """Return a gradient of these layers that takes no memory."""
    zero = np.zeros((), np.float32)
    found: list[Layer] = []
    for layer in layers:
        if layer.sparse:
            rows = np.empty(0, np.int64)
            found.append(RowSparse(rows, np.empty((0, *layer.shape[1:]), np.float32), layer.shape))
        else:
            found.append(np.broadcast_to(zero, layer.shape))
    return Gradient(tuple(layer.name for layer in layers), tuple(found))


def _record(group: _Group, whole: _Whole, tables: Mapping[str, int]) -> tuple[list[BucketedRecord], list[Refused]]:
    """Run the reducers of a group on one bucket of each kind."""
    if len(group.buckets) == 1 and group.even:
        records, refused = record_scaled(group.reducers, whole.gradients, whole.scaling(), seed=whole.seed)
        return [BucketedRecord(item, group.buckets, (item.recording,)) for item in records], refused
    kinds = dict(zip(reversed(group.seen), reversed(group.parts), strict=True))
    elements = dense_elements(len(whole.gradients)) // len(kinds)
    left, refused = _with_room(group, len(whole.gradients))
    ran: dict[tuple[_Sight, ...], _Ran] = {}
    with heard() as told:
        for seen, part in kinds.items():
            scaling = scale_to_part(
                part,
                whole.gradients[0],
                tables,
                elements,
                sorts={layer.name: each.sort for layer, each in zip(part, seen, strict=True)},
                matrices={layer.name for layer, each in zip(part, seen, strict=True) if each.matrix},
                least_side=group.least_side,
                unit=group.unit,
            )
            seed = whole.seed
            if len(group.buckets) > 1:
                seed = bucket_seed(whole.seed, [layer.name for layer in part])
            records, others, copies = record_copies(left, whole.gradients, scaling, seed=seed)
            refused += others
            left = [item for item in left if item.option_string not in {each.reducer for each in others}]
            assert scaling.weights is not None
            squares = squares_at(scaling.weights, copies)
            ran[seen] = _Ran({item.option_string: item for item in records}, squares, copies[0])
    if told and left:
        like = whole.scaling().run(whole.gradients[0])
        largest = max(ran.values(), key=lambda each: sum(each.squares))
        for item in left:
            say_of_all(told, largest.records[item.option_string].reducer, like, len(whole.gradients), whole.seed)
    return [
        _put_together(item.option_string, group, [ran[seen] for seen in group.seen], whole) for item in left
    ], refused


def _with_room(group: _Group, ranks: int) -> tuple[list[AskedReducer], list[Refused]]:
    """Return the reducers for which copies are large enough, and why there are none for the optional others."""
    most = MOST_ELEMENTS // ranks
    if group.even or group.unit <= most or all(layer.size <= most for part in group.parts for layer in part):
        return list(group.reducers), []
    why = (
        f"on {ranks} ranks it keeps one element of {group.unit}, of which the small copies that run for a model's "
        "buckets have too few to tell how many it keeps: leave it out, or take fewer workers or a larger density"
    )
    for asked in group.reducers:
        if not asked.optional:
            raise S2SimError(f"{asked.option_string}: {why}")
    return [], [Refused(asked.option_string, ranks, why) for asked in group.reducers]


def _put_together(text: str, group: _Group, ran: Sequence[_Ran], whole: _Whole) -> BucketedRecord:
    """Return what one reducer did with all buckets."""
    records = [each.records[text] for each in ran]
    layers: dict[str, Error] = {}
    squares: dict[str, float] = {}
    compressed: set[str] = set()
    for part, each, item in zip(group.parts, ran, records, strict=True):
        names = [layer.name for layer in part]
        layers |= zip(names, item.errors.layers.values(), strict=True)
        squares |= zip(names, each.squares, strict=True)
        compressed |= {names[index] for index in item.reducer.compresses(each.like)}
    names = [layer.name for layer in whole.layers]
    nothing = Error(None, None)
    errors = weighted_errors(
        Errors(nothing, nothing, {name: layers[name] for name in names}),
        [squares[name] for name in names],
        [index for index, name in enumerate(names) if name in compressed],
    )
    largest = max(range(len(records)), key=lambda place: sum(layer.size for layer in group.parts[place]))
    recordings = tuple(item.recording for item in records)
    apart = _consensus(records, [sum(each.squares) for each in ran])
    recorded = Recorded(text, records[largest].reducer, join_buckets(recordings), errors, None, apart)
    return BucketedRecord(recorded, group.buckets, recordings)


def _consensus(records: Sequence[Recorded], squares: Sequence[float]) -> float | None:
    """Return how far apart ranks end of the whole: squares add."""
    parts = [(item.consensus, square) for item, square in zip(records, squares, strict=True)]
    if any(apart is None for apart, _ in parts):
        return None
    whole = sum(squares)
    return sqrt(sum(apart**2 * square for apart, square in parts if apart) / whole) if whole else 0.0
