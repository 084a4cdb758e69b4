"""Gradients on which laws are tried: all kinds of layers, and what is at the edge of float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.gradient import Gradient, RowSparse

if TYPE_CHECKING:
    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Layer


def example_gradients(ranks: int, *, seed: int = 0, zero: bool = False) -> list[Gradient]:
    """Return one gradient a rank with all kinds of layers: tables, dense, one-dimensional, empty; all read-only."""
    generator = np.random.default_rng(seed)
    return [_example(generator, zero=zero) for _ in range(ranks)]


def _example(generator: np.random.Generator, *, zero: bool) -> Gradient:
    def values(*shape: int) -> Floats32:
        drawn = np.zeros(shape, np.float32) if zero else generator.standard_normal(shape, np.float32)
        drawn.setflags(write=False)
        return drawn

    def table(rows: int, *width: int) -> RowSparse:
        held = np.flatnonzero(generator.random(rows) < (0 if zero else 0.1))
        held.setflags(write=False)
        return RowSparse(held, values(len(held), *width), (rows, *width))

    layers: dict[str, Layer] = {
        "embedding": table(203, 5),
        "weight": values(13, 7),
        "frequencies": table(101),
        "bias": values(3),
        "no rows": table(0, 4),
        "no elements": values(0),
    }
    return Gradient(tuple(layers), tuple(layers.values()))


def small_gradient(seed: int, *, heavy: bool = False) -> Gradient:
    """Return a gradient of 48 elements, normal or with a ``heavy`` tail, in a dense matrix and a table."""
    generator = np.random.default_rng(seed)
    drawn = generator.standard_t(1.5, 48) if heavy else generator.standard_normal(48)
    return _in_two_layers(drawn.astype(np.float32))


def edge_gradients(ranks: int) -> dict[str, list[Gradient]]:
    """Return gradients that are hard to take, one a rank, by what they are."""
    alternating = np.where(np.arange(48) % 2, -1, 1).astype(np.float32)
    nothing, tiny = np.zeros(48, np.float32), np.float32(1e-41)
    huge = np.float32(0.9 * np.finfo(np.float32).max / ranks)
    one = np.array([[-2.5]], np.float32)
    return {
        "one element": [Gradient(("only",), (one,))] * ranks,
        "one row": [Gradient(("only",), (RowSparse(np.array([0]), one, (1, 1)),))] * ranks,
        "equal magnitudes": [_in_two_layers(alternating)] * ranks,
        "subnormal values": [_in_two_layers(alternating * tiny)] * ranks,
        "huge values": [_in_two_layers(alternating * huge)] * ranks,
        "values on one rank alone": [_in_two_layers(alternating if rank == 0 else nothing) for rank in range(ranks)],
    }


def _in_two_layers(values: Floats32) -> Gradient:
    """Return a gradient of 48 values."""
    values.setflags(write=False)
    table = RowSparse(np.arange(0, 24, 2), values[24:].reshape(12, 2), (24, 2))
    return Gradient(("weight", "table"), (values[:24].reshape(6, 4), table))
