"""Buckets of a model larger than what was recorded: those of like layers share one scaled recording."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

from s2sim.gradients.extrapolation.parts import LEAST_ELEMENTS, scale_to_part
from s2sim.gradients.extrapolation.scaling import MOST_ELEMENTS, dense_elements, elements_by_rows, tables_like
from s2sim.reducers.measure import Error, Errors
from s2sim.reducers.registry import option_string
from s2sim.reducers.run import begin
from s2sim.replay.iteration.exchange import Leaving, joined
from s2sim.seeds import bucket_seed
from s2sim.study.extrapolate.bucket_groups import Whole, group_of, with_room
from s2sim.study.extrapolate.scaled_scripts import record_copies, record_scaled, squares_at, weighted_errors
from s2sim.study.measuring.buckets import heard
from s2sim.study.measuring.record import Recorded
from s2sim.study.scenario.asked import AskedReducer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from s2sim.gradients.extrapolation.models import Model, ModelLayer
    from s2sim.gradients.extrapolation.scaling import Scaling
    from s2sim.gradients.gradient import Gradient
    from s2sim.replay.iteration.disciplines.discipline import Bucket
    from s2sim.study.extrapolate.bucket_groups import Group, Sight
    from s2sim.study.measuring.row_parts import Refused


# Of all layers together, where each runs with at least one row: more are those of wide layers of a large model.
_MOST_BY_ROWS = 2 * MOST_ELEMENTS


def record_scaled_buckets(
    reducers: Sequence[AskedReducer],
    gradients: Sequence[Gradient],
    layers: Sequence[ModelLayer],
    buckets: Sequence[Bucket],
    model: Model | None,
    *,
    seed: int,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[Recorded], list[Refused]]:
    """Return what each reducer does with every bucket of layers, as `s2sim.study.extrapolate.buckets` says.

    ``layers`` are in the order of readiness, with the statistics of ``gradients``, one a rank.
    """
    own = {layer.name: layer for layer in layers}
    order = [] if model is None else [layer.name for layer in model.layers]
    if {*order} != own.keys():
        order = [layer.name for layer in reversed(layers)]
    whole = Whole("asked for" if model is None else model.name, [own[name] for name in order], gradients, seed)
    tables = tables_like(whole.name, whole.layers, gradients[0])
    groups: dict[object, Group] = {}
    for asked in reducers:
        group = group_of(asked, layers, buckets, whole, tables)
        groups.setdefault((group.seen, group.least_side, group.unit, group.even), group).reducers.append(asked)
    found: dict[str, Recorded] = {}
    refused: list[Refused] = []
    for group in groups.values():
        records, others = _record(group, whole, tables)
        found |= {item.option_string: item for item in records}
        refused += others
        for _ in group.reducers:
            on_reducer()
    return [found[item.option_string] for item in reducers if item.option_string in found], refused


@dataclass(frozen=True, slots=True)
class _Ran:
    """What came of the layers of one bucket: by reducer, and the squared norms of the layers' means."""

    records: Mapping[str, Recorded]
    squares: Sequence[float]
    like: Gradient


def _record(group: Group, whole: Whole, tables: Mapping[str, int]) -> tuple[list[Recorded], list[Refused]]:
    """Run the reducers of a group on one bucket of each kind."""
    ranks = len(whole.gradients)
    if len(group.buckets) == 1 and group.even and elements_by_rows(whole.layers, ranks) <= _MOST_BY_ROWS:
        records, refused = record_scaled(group.reducers, whole.gradients, whole.scaling(), seed=whole.seed)
        return [replace(item, exchange=(Leaving(group.buckets[0], item.recording),)) for item in records], refused
    kinds = dict(zip(reversed(group.seen), reversed(group.parts), strict=True))
    elements = dense_elements(ranks) // len(kinds)
    # So many layers can run with so many elements each.
    least = MOST_ELEMENTS // ranks // sum(map(len, kinds.values()))
    left, refused = with_room(group, ranks)
    ran: dict[tuple[Sight, ...], _Ran] = {}
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
                unit=1 if group.even else group.unit,
                least=max(1, min(least, LEAST_ELEMENTS)),
            )
            seed = whole.seed
            if len(group.buckets) > 1:
                seed = bucket_seed(whole.seed, [layer.name for layer in part])
            ran[seen], others = _run(left, whole.gradients, scaling, seed)
            refused += others
            left = [item for item in left if item.option_string in ran[seen].records]
    found = [_put_together(item.option_string, group, [ran[seen] for seen in group.seen], whole) for item in left]
    silent = {item.option_string for item in left if all(item.reducer.leaves_to(each.like) for each in ran.values())}
    for item in found:
        # One that leaves all buckets to another has had nothing to warn of.
        if told or item.option_string in silent:
            like = whole.scaling().run(whole.gradients[0])
            begin(item.reducer, like, ranks, seed=whole.seed)
    return found, refused


def _run(
    reducers: Sequence[AskedReducer], gradients: Sequence[Gradient], scaling: Scaling, seed: int
) -> tuple[_Ran, list[Refused]]:
    """Run reducers on copies of a bucket; those that leave it to another one have what that does."""
    like = scaling.run(gradients[0])
    left_to = {item.option_string: item.reducer.leaves_to(like) for item in reducers}
    run = [item for item in reducers if left_to[item.option_string] is None]
    does = {option_string(item.reducer): item.option_string for item in reversed(run)}
    for other in filter(None, left_to.values()):
        if (text := option_string(other)) not in does:
            does[text] = text
            run.append(AskedReducer(text, other))
    records, refused, copies = record_copies(run, gradients, scaling, seed=seed)
    found = {item.option_string: item for item in records}
    for item in reducers:
        instead = left_to[item.option_string]
        if instead is not None:
            done = found[does[option_string(instead)]]
            found[item.option_string] = replace(done, option_string=item.option_string, reducer=item.reducer)
    assert scaling.weights is not None
    return _Ran(found, squares_at(scaling.weights, copies), copies[0]), refused


def _put_together(text: str, group: Group, ran: Sequence[_Ran], whole: Whole) -> Recorded:
    """Return what one reducer did with all buckets."""
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
    errors = weighted_errors(
        Errors(nothing, nothing, {name: layers[name] for name in names}),
        [squares[name] for name in names],
        [index for index, name in enumerate(names) if name in compressed],
    )
    most = max(range(len(records)), key=lambda place: sum(sizes[place]))
    exchange = tuple(Leaving(bucket, item.recording) for bucket, item in zip(group.buckets, records, strict=True))
    apart = _consensus(records, [sum(each.squares) for each in ran])
    return Recorded(text, records[most].reducer, joined(exchange), errors, None, apart, exchange)


def _consensus(records: Sequence[Recorded], squares: Sequence[float]) -> float | None:
    """Return how far apart ranks end of the whole: squares add."""
    parts = [(item.consensus, square) for item, square in zip(records, squares, strict=True)]
    if any(apart is None for apart, _ in parts):
        return None
    whole = sum(squares)
    return sqrt(sum(apart**2 * square for apart, square in parts if apart) / whole) if whole else 0.0
