"""A bucket of a model's layers, scaled from what was recorded: small copies that many buckets can have at once.

Sizes of most reducers follow from how many elements a dense layer has, so that these run as vectors, of as many
elements as keep densities and blocks whole. Those that take layers as matrices see sides: a size is then
a + b (rows) + c (columns) + d (elements).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import lcm, prod, sqrt

from s2sim.gradients.gradient import Gradient
from s2sim.gradients.models import ModelLayer
from s2sim.gradients.scaling import (
    Growth,
    Scaling,
    double_length,
    double_rows,
    double_width,
    growth_factor,
    layer_weights,
    shrink_to_layers,
    table_growths,
)

# Bits of a byte, blocks of 256, a thousand: whole numbers where vectors have multiples of these.
_WHOLE = (32_000, 8_000, 1_000)
_MIN_SIDE = 32
MIN_ELEMENTS = _WHOLE[-1]
"""A dense layer of no more elements runs as large as it is, where there is room for all."""


def scale_to_bucket(
    layers: Sequence[ModelLayer],
    like: Gradient,
    tables: Mapping[str, int],
    elements: int,
    *,
    sorts: Mapping[str, int],
    matrices: Collection[str] = (),
    least_side: int = 0,
    unit: int = 1,
    least: int = MIN_ELEMENTS,
) -> Scaling:
    """Return the scaling to some layers of a model, with the statistics of ``like``.

    ``tables`` are what `s2sim.gradients.scaling.match_tables` says of the whole model. Of dense layers about
    ``elements`` run, those of no more than ``least`` as large as they are, others that are smaller than in the model as
    multiples of ``unit``. ``sorts`` tell which layers are treated alike; sizes of the others grow by themselves.
    ``matrices`` are taken as such, of which a side that is no shorter than ``least_side`` stays so.
    """
    copies = _copies(layers, elements, matrices, least_side, unit, least)
    make = partial(shrink_to_layers, layers=layers, tables=tables, copies=copies)
    runs = make(like)
    growths: list[Growth] = []
    for sort in dict.fromkeys(sorts[layer.name] for layer in layers):
        own = [index for index, layer in enumerate(layers) if sorts[layer.name] == sort]
        # Those that take after the same table of the trace grow together, and so do dense ones.
        alike: dict[int | None, list[int]] = {}
        for index in own:
            if layers[index].name in matrices:
                alike.setdefault(tables.get(layers[index].name), []).append(index)
        for part in alike.values():
            growths += _matrix_growths(layers, runs, part)
        others = [index for index in own if layers[index].name not in matrices]
        growths += table_growths(layers, runs, tables, [index for index in others if layers[index].sparse])
        shrunk = [i for i in others if not layers[i].sparse and runs.layers[i].size < layers[i].size]
        times = growth_factor(layers, runs, shrunk) - 1
        growths.append(Growth("elements of dense layers", partial(double_length, layers=shrunk), times))
    whole = sum(layer.size for layer in layers)
    return Scaling(whole, make, tuple(each for each in growths if each.times), layer_weights(layers, runs), ())


def _matrix_growths(layers: Sequence[ModelLayer], runs: Gradient, part: Sequence[int]) -> list[Growth]:
    """Return how matrices grow by both sides.

    Doubling the rows adds b (rows) + d (elements), doubling the columns c (columns) + d (elements), and doubling both
    b (rows) + c (columns) + 3 d (elements): so often each that b, c and d grow as their own sums over matrices do.
    """
    smaller = [index for index in part if runs.layers[index].size < layers[index].size]
    rows, columns = (growth_factor(layers, runs, smaller, what=side) - 1 for side in ("rows", "columns"))
    elements = growth_factor(layers, runs, smaller) - 1

    def both(gradient: Gradient) -> Gradient:
        return double_width(double_rows(gradient, smaller), smaller)

    return [
        Growth("rows of matrices", partial(double_rows, layers=smaller), 2 * rows + columns - elements),
        Growth("columns of matrices", partial(double_width, layers=smaller), rows + 2 * columns - elements),
        Growth("rows and columns of matrices", both, elements - rows - columns),
    ]


def _copies(
    layers: Sequence[ModelLayer], elements: int, matrices: Collection[str], least_side: int, unit: int, least: int
) -> dict[str, tuple[int, ...]]:
    """Return the shapes in which dense layers run: all of a small one, of others an equal share of what is left."""
    dense = sorted((layer for layer in layers if not layer.sparse), key=lambda layer: layer.size)
    found: dict[str, tuple[int, ...]] = {}
    left = elements
    units = [each for each in (lcm(unit, whole) for whole in (*_WHOLE, 1)) if each <= elements] or [unit]
    for place, layer in enumerate(dense):
        share = max(left // (len(dense) - place), units[-1], least)
        if layer.name in matrices:
            # The sides of a matrix of about so many elements and the same shape.
            times = max(1.0, sqrt(layer.size / share))
            sides = (layer.shape[0], layer.size // layer.shape[0])
            rows, columns = (min(side, max(least_side, _MIN_SIDE, round(side / times))) for side in sides)
            found[layer.name] = rows, columns
        else:
            whole = next(each for each in units if each <= share)
            found[layer.name] = (share // whole * whole if layer.size > share else layer.size,)
        left -= prod(found[layer.name])
    return found
