"""How the size of a model grows while the statistics of its gradients stay: what to run, and by how much to scale it.

A model of hundreds of millions of parameters is not run on arrays of its own size. Its reducers run on the gradients at
hand, then once more with one part of them twice as large, and what grows by so much each time the part grows by its own
size gives the scripts of a model in which that part is a hundred times as large. Doubling repeats every row with the
ranks that hold it (or every element of a row), so that density, growth of the union over ranks and tail of the values
stay exactly as they are, by layer. This is what "scaled" assumes: mini-batches grow with the tables.

A bucket of a model's layers runs as small copies that many buckets can have at once. Sizes of most reducers follow from
how many elements a dense layer has, so that these run as vectors, of as many elements as keep densities and blocks
whole. Those that take layers as matrices see sides: a size is then a + b (rows) + c (columns) + d (elements).
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, lcm, prod, sqrt
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from s2sim.arrays import Ints
from s2sim.errors import OptionError, TraceError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, to_dense
from s2sim.gradients.models import ModelLayer
from s2sim.seeds import splitmix64
from s2sim.tables import group_by

SIZE_LAW = (
    "sizes grow as they do where one part of the gradients is doubled; density, growth of the union over ranks and "
    "tail of each layer stay"
)

_Table = TypeVar("_Table")
Side: TypeAlias = Literal["rows", "columns", "elements"]
_KEPT = "density, growth of the union and tail stay those of the trace, as if mini-batches grew with the tables"
_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGB]?)")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_MAX_TEXT = 40
# A thousand times the largest model.
_MAX_PARAMETERS = 10**16
DENSE_ELEMENTS = 1 << 23
"""Elements of dense layers that run for a model, over all ranks: a tenth of a second for each pass over them."""
MAX_ELEMENTS = 1 << 25
"""Of a single one, where a reducer needs them to keep whole numbers of elements."""


@dataclass(frozen=True, slots=True)
class Growth:
    """One part of the gradients that is larger in the model asked for.

    What doubling it adds is to be added so many ``times``; negative for a part that shrinks.
    """

    what: str
    double: Callable[[Gradient], Gradient]
    times: float


@dataclass(frozen=True, slots=True)
class Scaling:
    """How to get the scripts of a larger model."""

    parameters: int
    run: Callable[[Gradient], Gradient]  # Makes the gradient that reducers run on of a rank's recorded one
    growths: tuple[Growth, ...]
    # Elements of each layer in the model over those that run, where these differ by layer
    weights: tuple[float, ...] | None
    notes: tuple[str, ...]


def parse_parameters(text: str) -> int:
    """Return a number of parameters.

    >>> parse_parameters("350M"), parse_parameters("1.5B")
    (350000000, 1500000000)
    """
    found = _COUNT.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    count = round(float(found[1]) * _FACTORS[found[2]]) if found else 0
    if not 1 <= count <= _MAX_PARAMETERS:
        raise OptionError(
            f"--scale-to {text[:_MAX_TEXT]} is not a number of parameters: write for example 350M or 1.5B"
        )
    return count


def scale_to(parameters: int, like: Gradient) -> Scaling:
    """Return the scaling by which all layers of ``like`` grow alike, in rows, to ``parameters`` in all."""
    if parameters == like.size:
        raise OptionError(f"--scale-to {parameters} changes nothing: the gradients have {like.size} parameters")
    if parameters < like.size:
        raise OptionError(
            f"--scale-to {parameters}: the gradients have {like.size} parameters, and sizes only scale up: ask for "
            "more, or take a smaller trace"
        )
    everything = range(len(like.layers))
    growth = Growth("rows of all layers", partial(double_rows, layers=everything), parameters / like.size - 1)
    note = (
        f"scaled from {like.size} to {parameters} parameters: all layers grow in rows, {_KEPT}; "
        "errors are those of the trace"
    )
    return Scaling(parameters, lambda gradient: gradient, (growth,), None, (note,))


def scale_to_layers(name: str, layers: Sequence[ModelLayer], like: Gradient, workers: int) -> Scaling:
    """Return the scaling to the layers of a model with the statistics of ``like``.

    Each row-sparse table of the model takes its rows from one of the trace's, in turn, and at most the model's width of
    it; dense layers run as small copies of the model's, filled with the values of the trace's dense layers. The more
    ``workers`` run, the smaller these copies are.
    """
    tables = match_tables(name, layers, like)
    make = partial(shrink_to_layers, layers=layers, tables=tables, copies=_small_copies(layers, workers))
    runs = make(like)
    kept = _KEPT
    if any(layer.most_rows for layer in layers):
        kept += ", but of no table more rows than a mini-batch looks up"
    notes = [
        f"scaled to the layers of {name}: {kept}; errors are those of the trace's values, weighted by the model's sizes"
    ]
    if tables:
        pairs = ", ".join(f"{table} after {like.names[source]}" for table, source in tables.items())
        notes.append(f"tables of {name}: {pairs}")
    sparse = [index for index, layer in enumerate(layers) if layer.sparse]
    dense = [index for index, layer in enumerate(layers) if not layer.sparse]
    growths = [
        *table_growths(layers, runs, tables, sparse),
        Growth("rows of dense layers", partial(double_rows, layers=dense), growth_factor(layers, runs, dense) - 1),
    ]
    return Scaling(
        sum(layer.size for layer in layers),
        make,
        tuple(growth for growth in growths if growth.times),
        layer_weights(layers, runs),
        tuple(notes),
    )


def layer_weights(layers: Sequence[ModelLayer], runs: Gradient) -> tuple[float, ...]:
    """Return how many times larger each layer is than what runs of it."""
    return tuple(layer.size / ran.size for layer, ran in zip(layers, runs.layers, strict=True))


def growth_factor(
    layers: Sequence[ModelLayer], runs: Gradient, part: Sequence[int], *, what: Side = "elements"
) -> float:
    """Return how many times the elements, rows or columns of some layers, by index, are those of what runs of them."""
    if not part:
        return 1.0
    sides = {"rows": slice(0, 1), "columns": slice(1, None), "elements": slice(None)}[what]
    return sum(prod(layers[i].shape[sides]) for i in part) / sum(prod(runs.layers[i].shape[sides]) for i in part)


def match_tables(name: str, layers: Sequence[ModelLayer], like: Gradient) -> dict[str, int]:
    """Return after which layer of ``like``, by index, each row-sparse table of a model takes.

    `TraceError` where there is none, or none for its dense layers.
    """
    found = {isinstance(layer, RowSparse) for layer in like.layers}
    for sparse, what in ((True, "row-sparse"), (False, "dense")):
        if sparse not in found and any(layer.sparse == sparse for layer in layers):
            raise TraceError(f"model {name} has {what} layers and the trace has none to take after: use another")
    return assign_tables(layers, [index for index, layer in enumerate(like.layers) if isinstance(layer, RowSparse)])


def assign_tables(layers: Sequence[ModelLayer], tables: Sequence[_Table]) -> dict[str, _Table]:
    """Return which of a trace's row-sparse ``tables`` each of a model's takes its statistics from: these in turn."""
    sparse = [layer.name for layer in layers if layer.sparse]
    return {name: tables[number % len(tables)] for number, name in enumerate(sparse)}


def table_growths(
    layers: Sequence[ModelLayer], runs: Gradient, tables: Mapping[str, int], among: Sequence[int]
) -> list[Growth]:
    """Return how row-sparse tables of ``runs``, given by index, grow to those of a model: by rows and by width.

    A size is a + b (rows) + c (elements) of a table. Doubling the width adds c (elements), doubling the rows adds
    b (rows) + c (elements).
    """
    by_rows: dict[float, list[int]] = {}
    by_width: dict[float, list[int]] = {}
    for source in dict.fromkeys(tables[layers[index].name] for index in among):
        part = [index for index in among if tables[layers[index].name] == source]
        rows = growth_factor(layers, runs, part, what="rows")
        # Tables that grow alike do so together, which takes one run less.
        by_rows.setdefault(rows - 1, []).extend(part)
        by_width.setdefault(growth_factor(layers, runs, part) - rows, []).extend(part)
    return [
        *(Growth("rows of tables", partial(double_rows, layers=part), times) for times, part in by_rows.items()),
        *(Growth("width of tables", partial(double_width, layers=part), times) for times, part in by_width.items()),
    ]


def elements_by_rows(layers: Sequence[ModelLayer], workers: int) -> int:
    """Return how many elements of dense layers run on all workers together where each layer has at least one row."""
    return workers * sum(map(prod, _small_copies(layers, workers).values()))


def _small_copies(layers: Sequence[ModelLayer], workers: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes in which dense layers run: all with the same share of their rows, but not too few elements."""
    dense = [layer for layer in layers if not layer.sparse]
    whole = sum(layer.size for layer in dense)
    share = min(1.0, DENSE_ELEMENTS / workers / whole) if whole else 1.0

    def rows(layer: ModelLayer) -> int:
        # The mean of very few elements may be next to zero by chance, and any error is large beside that.
        least = min(layer.shape[0], ceil(_LEAST_ELEMENTS * layer.shape[0] / layer.size))
        return max(least, round(layer.shape[0] * share))

    return {layer.name: (rows(layer), *layer.shape[1:]) for layer in dense}


def shrink_to_layers(
    gradient: Gradient,
    *,
    layers: Sequence[ModelLayer],
    tables: Mapping[str, int],
    copies: Mapping[str, tuple[int, ...]],
) -> Gradient:
    """Return what runs of layers of a model, with the values of ``gradient``.

    Row-sparse tables are those of the gradient that ``tables`` name by index, dense layers have the shapes ``copies``.
    """
    parts = [np.asarray(layer).reshape(-1) for layer in gradient.layers if not isinstance(layer, RowSparse)]
    values = np.concatenate(parts) if parts else np.empty(0, np.float32)
    start = 0
    found: list[Layer] = []
    for layer in layers:
        if layer.sparse:
            table = gradient.layers[tables[layer.name]]
            assert isinstance(table, RowSparse)
            width = layer.size // layer.shape[0]
            if table.width > width:
                columns = table.values.reshape(len(table.rows), table.width)[:, :width]
                table = RowSparse(table.rows, columns, (table.shape[0], width))
            found.append(_hold_less(table, layer.most_rows / layer.shape[0]) if layer.most_rows else table)
            continue
        shape = copies[layer.name]
        size = prod(shape)
        found.append(values[np.arange(start, start + size) % len(values)].reshape(shape))
        start += size
    return Gradient(tuple(layer.name for layer in layers), tuple(found))


def _hold_less(table: RowSparse, most: float) -> RowSparse:
    """Return a table of which a rank holds a share ``most`` of the rows at most, and one row.

    A hash of each row and its first value chooses them: rows that a mini-batch looks up once each are others on each
    rank, so that ranks share fewer than those of the trace.
    """
    if len(table.rows) <= most * table.shape[0]:
        return table
    first = np.ascontiguousarray(table.values.reshape(len(table.rows), -1)[:, 0], np.float32).view(np.uint32)
    words = splitmix64(table.rows.astype(np.uint64) << np.uint64(32) | first)
    kept = words <= max(int(words.min()), int(most * table.shape[0] / len(table.rows) * 2**64))
    return RowSparse(table.rows[kept], table.values.reshape(len(table.rows), -1)[kept], table.shape)


def _change(gradient: Gradient, layers: Collection[int], change: Callable[[Layer], Layer]) -> Gradient:
    changed = (change(layer) if index in layers else layer for index, layer in enumerate(gradient.layers))
    return Gradient(gradient.names, tuple(changed))


def double_rows(gradient: Gradient, layers: Collection[int]) -> Gradient:
    """Return a gradient in which every row of some ``layers``, given by index, is there twice, side by side.

    So a part of the table that ranks hold more of stays as large a part of it.
    """

    def twice(layer: Layer) -> Layer:
        if not isinstance(layer, RowSparse):
            return layer.repeat(2, axis=0)
        rows = (2 * layer.rows).repeat(2)
        rows[1::2] += 1
        return RowSparse(rows, layer.values.repeat(2, axis=0), (2 * layer.shape[0], *layer.shape[1:]))

    return _change(gradient, layers, twice)


def double_width(gradient: Gradient, layers: Collection[int]) -> Gradient:
    """Return a gradient in which every row of some ``layers``, given by index, is twice as wide."""

    def twice(layer: Layer) -> Layer:
        if not isinstance(layer, RowSparse):
            return np.concatenate([layer, layer], axis=1)
        rows = layer.values.reshape(len(layer.rows), layer.width)
        return RowSparse(layer.rows, np.concatenate([rows, rows], axis=1), (layer.shape[0], 2 * layer.width))

    return _change(gradient, layers, twice)


def double_length(gradient: Gradient, layers: Collection[int]) -> Gradient:
    """Return a gradient in which some dense ``layers``, given by index, come twice, one after the other."""
    return _change(gradient, layers, lambda layer: np.concatenate([to_dense(layer), to_dense(layer)]))


def keep_rows(gradient: Gradient, kept: Sequence[Ints]) -> Gradient:
    """Return a gradient with only some rows of each layer, int64 and strictly increasing, renumbered."""
    layers = [
        layer.keep(rows) if isinstance(layer, RowSparse) else layer[rows]
        for layer, rows in zip(gradient.layers, kept, strict=True)
    ]
    return Gradient(gradient.names, tuple(layers))


# Bits of a byte, blocks of 256, a thousand: whole numbers where vectors have multiples of these.
_WHOLE = (32_000, 8_000, 1_000)
_MIN_SIDE = _LEAST_ELEMENTS = 32
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

    ``tables`` are what `match_tables` says of the whole model. Of dense layers about
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
        grown = [index for index in own if layers[index].name in matrices]
        for part in group_by(grown, lambda index: tables.get(layers[index].name)).values():
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
            chunks = range(1, 1 + (unit if least_side == 1 else 1))  # See `Reducer.least_side`.
            found[layer.name] = tuple(
                min(side, max(1, round(max(least_side, _MIN_SIDE, side / times) / chunk)) * chunk)
                for side in sides
                for chunk in [max(chunk for chunk in chunks if side % chunk == 0)]
            )
        else:
            whole = next(each for each in units if each <= share)
            found[layer.name] = (share // whole * whole if layer.size > share else layer.size,)
        left -= prod(found[layer.name])
    return found
