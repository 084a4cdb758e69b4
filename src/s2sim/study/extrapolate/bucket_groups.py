"""Which buckets of a model are alike to a reducer, and which reducers see the same of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.extrapolation.scaling import MOST_ELEMENTS, scale_to_layers
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.study.measuring.buckets import buckets_for
from s2sim.study.measuring.row_parts import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.gradients.extrapolation.models import ModelLayer
    from s2sim.gradients.extrapolation.scaling import Scaling
    from s2sim.gradients.gradient import Layer
    from s2sim.replay.iteration.disciplines.discipline import Bucket
    from s2sim.study.scenario.asked import AskedReducer


class Sight(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class Whole:
    """All layers of a model, in its order, and the gradients that they take after."""

    name: str
    layers: Sequence[ModelLayer]
    gradients: Sequence[Gradient]
    seed: int

    def scaling(self) -> Scaling:
        """Return that to all layers."""
        return scale_to_layers(self.name, self.layers, self.gradients[0], len(self.gradients))


@dataclass(frozen=True, slots=True)
class Group:
    """Reducers that run on the same buckets and see the same of them.

    ``parts`` has the layers of each bucket, ``seen`` what the reducers see of these; where it is equal they do alike.
    ``least_side`` and ``unit`` are those of `Reducer`; where they are ``even``, sizes follow from copies of any shape.
    """

    buckets: tuple[Bucket, ...]
    parts: tuple[tuple[ModelLayer, ...], ...]
    seen: tuple[tuple[Sight, ...], ...]
    least_side: int
    unit: int
    even: bool
    reducers: list[AskedReducer]


def group_of(
    asked: AskedReducer,
    layers: Sequence[ModelLayer],
    buckets: Sequence[Bucket],
    whole: Whole,
    tables: Mapping[str, int],
) -> Group:
    """Return a group for a reducer, without any yet."""
    reducer = asked.reducer
    own = buckets_for(reducer, buckets)
    names = [layer.name for layer in layers]
    place = {layer.name: number for number, layer in enumerate(whole.layers)}
    sorts = dict(zip(names, reducer.sorts(names), strict=True))
    matrices = {names[index] for index in reducer.compresses(_zeros(layers))} if reducer.least_side else set()

    def sight(layer: ModelLayer) -> Sight:
        seen = layer.shape if layer.sparse or layer.name in matrices else (layer.size,)
        return Sight(sorts[layer.name], tables.get(layer.name, -1), layer.name in matrices, seen)

    parts = []
    for bucket in own:
        part = sorted((layers[tensor] for tensor in bucket.tensors), key=lambda layer: place[layer.name])
        parts.append(tuple(sorted(part, key=sight) if len(own) > 1 else part))
    seen = tuple(tuple(sight(layer) for layer in part) for part in parts)
    unit = reducer.unit(len(whole.gradients))
    # A density of the whole gradient keeps thousands of elements even of a small copy.
    even = not reducer.least_side and (unit == 1 or reducer.traits.scope == "gradient")
    return Group(own, tuple(parts), seen, reducer.least_side, unit, even, [])


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


def with_room(group: Group, ranks: int) -> tuple[list[AskedReducer], list[Refused]]:
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
