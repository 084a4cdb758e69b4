"""Statistics of gradients: density, union density against the number of ranks, and the tail of the values."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from s2sim.arrays import Array, Floats, Ints, Mask
from s2sim.errors import TraceError
from s2sim.files import StrictFields
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, stored

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class LayerStatistics(StrictFields):
    """How sparse and how heavy-tailed a layer (or the whole gradient) is; means over ranks and steps."""

    # Share of rows stored (row-sparse layer) or of elements that are not zero (dense layer), of one rank
    density: float
    # The same share for the union of the first k ranks, for each k of `Statistics.union_ranks`
    union_density: tuple[float, ...]
    # Share of the squared L2 norm in the 1 % largest stored values; None where the norm is zero
    top_percent_energy: float | None
    # Fourth central moment of the stored values over their squared variance (3 for a Gaussian); None where they do not
    # vary
    kurtosis: float | None


@dataclass(frozen=True, slots=True)
class Statistics(StrictFields):
    """Statistics of a trace, of its layers and of the whole gradient, whose densities count elements.

    ``union_ranks`` are the numbers of ranks for which the union was measured: 1, 2, 4, ..., world size.
    """

    union_ranks: tuple[int, ...]
    layers: dict[str, LayerStatistics]
    whole: LayerStatistics


class GradientSource(Protocol):
    """Anything that yields the gradient of every rank at every step."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    @property
    def steps(self) -> int:
        """Number of steps."""

    def gradient(self, step: int, rank: int) -> Gradient:
        """Return one rank's gradient of one step."""


@dataclass(frozen=True, slots=True, eq=False)
class GradientTable:
    """Gradients that a function returns for a step and a rank; implements `GradientSource`."""

    steps: int
    world_size: int
    gradient: Callable[[int, int], Gradient]


def check_place(name: str, source: GradientSource, step: int, rank: int) -> None:
    """Raise `TraceError` for a step or a rank that a trace does not have."""
    for what, number, count in (("step", step, source.steps), ("rank", rank, source.world_size)):
        if not 0 <= number < count:
            raise TraceError(f"trace {name} has no {what} {number}: its {what}s are 0 to {count - 1}")


def union_ranks(world_size: int) -> tuple[int, ...]:
    """Return the numbers of ranks at which a union is measured.

    >>> union_ranks(6)
    (1, 2, 4, 6)
    """
    return (*(2**k for k in range(world_size.bit_length()) if 2**k < world_size), world_size)


def nonzero_support(layer: Layer) -> Mask:
    """Return which rows are stored (row-sparse, shape (rows,)) or which elements are not zero (dense, flat)."""
    if isinstance(layer, RowSparse):
        mask = np.zeros(layer.shape[0], np.bool_)
        mask[layer.rows] = True
        return mask
    return np.asarray(layer.reshape(-1) != 0)


def occupancy(source: GradientSource, ranks: int) -> tuple[Ints | None, ...]:
    """Return how many rows of each layer exactly k of the first ``ranks`` ranks hold, summed over all steps.

    int64 of shape (ranks + 1,) for each row-sparse layer; None for a dense one.
    """
    steps = [count_holders([source.gradient(step, rank) for rank in range(ranks)]) for step in range(source.steps)]
    totals: list[Ints | None] = []
    for layer in zip(*steps, strict=True):
        held = [np.bincount(counts, minlength=ranks + 1) for counts in layer if counts is not None]
        totals.append(np.sum(held, axis=0) if held else None)
    return tuple(totals)


def count_holders(gradients: Sequence[Gradient]) -> list[Ints | None]:
    """Return how many of some ranks hold each row, int64 of shape (rows,) a row-sparse layer, None a dense one."""
    counts: list[Ints | None] = []
    for layers in zip(*(gradient.layers for gradient in gradients), strict=True):
        held = [layer for layer in layers if isinstance(layer, RowSparse)]
        counts.append(
            np.bincount(np.concatenate([layer.rows for layer in held]), minlength=held[0].shape[0]) if held else None
        )
    return counts


def iterate_blocks(values: Array) -> Iterator[Floats]:
    """Yield flat values in float64, a few at a time: a gradient of a gigabyte would not fit as a whole."""
    for start in range(0, len(values), _BLOCK):
        yield values[start : start + _BLOCK].astype(np.float64)


def top_percent_energy(values: Array) -> float | None:
    """Return the share of the squared L2 norm in the 1 % largest of ``values`` (at least one); None without any."""
    total = sum(float(np.square(block).sum()) for block in iterate_blocks(values))
    if total == 0:
        return None
    count = max(1, len(values) // 100)
    # Partitions of many equal values, such as zeros, take ten times as long.
    magnitudes = values[values != 0]
    np.abs(magnitudes, out=magnitudes)
    if len(magnitudes) > count:
        magnitudes.partition(len(magnitudes) - count)
    return float(np.square(magnitudes[-count:].astype(np.float64)).sum() / total)


def kurtosis(values: Array) -> float | None:
    """Return the fourth central moment over the squared variance, 3 for a Gaussian; None for equal values."""
    if not len(values):
        return None
    # Kurtosis has no unit: scaled by the largest value, no fourth power overflows or underflows.
    largest = max(float(values.max()), -float(values.min())) or 1.0
    mean = sum(float((block / largest).sum()) for block in iterate_blocks(values)) / len(values)
    second = fourth = 0.0
    for block in iterate_blocks(values):
        squares = np.square(block / largest - mean)
        second += float(squares.sum())
        fourth += float(np.square(squares).sum())
    return len(values) * fourth / second**2 if second > 0 else None


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return float(np.mean(known)) if known else None


def trace_statistics(source: GradientSource) -> Statistics:
    """Measure density, union density and tail of a trace, reading every gradient once: means over ranks and steps.

    Densities of a layer count rows where it is row-sparse and elements where it is dense; those of the whole
    gradient weigh the layers by their elements. The union takes the first k ranks.
    """
    counts = union_ranks(source.world_size)
    first = source.gradient(0, 0)
    names = first.names
    sizes = np.array([layer.size for layer in first.layers], np.float64)
    densities: list[list[float]] = []  # (step, rank) x layer
    unions = np.zeros((source.steps, len(counts), len(names)))
    tails: list[list[tuple[float | None, float | None]]] = []  # (step, rank) x (layers + the whole)
    for step in range(source.steps):
        merged: list[Mask] = []
        for rank in range(source.world_size):
            gradient = source.gradient(step, rank)
            masks = [nonzero_support(layer) for layer in gradient.layers]
            densities.append([float(mask.mean()) for mask in masks])
            merged = [old | new for old, new in zip(merged, masks, strict=True)] if merged else masks
            if rank + 1 in counts:
                unions[step, counts.index(rank + 1)] = [mask.mean() for mask in merged]
            values = [stored(layer).reshape(-1) for layer in gradient.layers]
            tails.append([(top_percent_energy(v), kurtosis(v)) for v in [*values, np.concatenate(values)]])
    density = np.mean(densities, axis=0)
    union = unions.mean(axis=0)
    tail = [[_mean([row[index][part] for row in tails]) for part in (0, 1)] for index in range(len(names) + 1)]
    weights = sizes / sizes.sum()
    layers = {
        name: LayerStatistics(float(density[i]), tuple(map(float, union[:, i])), *tail[i])
        for i, name in enumerate(names)
    }
    whole = LayerStatistics(float(density @ weights), tuple(map(float, union @ weights)), *tail[-1])
    return Statistics(counts, layers, whole)
