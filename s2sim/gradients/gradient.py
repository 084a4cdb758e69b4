"""A gradient in memory: ordered layers, each a dense array or rows + values."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import prod
from typing import Any, TypeAlias, get_args, get_origin

import numpy as np

from s2sim.arrays import Array, Ints

SPARSE_BELOW = 0.5
"""Share of rows that are not zero from which on a table is no row-sparse one, where nobody says what it is."""


class Shaped:
    """What a description of a layer inherits: its size follows from its shape."""

    __slots__ = ()
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements, zeros included."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class RowSparse(Shaped):
    """An array most of whose rows are zero, kept as the others."""

    rows: Ints  # Which rows are stored, strictly increasing
    values: Array  # Their values
    shape: tuple[int, ...]  # Shape of the whole array; a one-dimensional one has rows of a single element

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of one element."""
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array, zeros included: what a dense collective sends."""
        return self.size * self.values.dtype.itemsize

    @property
    def width(self) -> int:
        """Elements in one row."""
        return prod(self.shape[1:])

    def to_dense(self) -> Array:
        """Return the whole array, shape ``shape``."""
        dense = np.zeros(self.shape, self.values.dtype)
        dense[self.rows] = self.values
        return dense

    def among(self, rows: Ints) -> "RowSparse":
        """Return the stored rows at their places in some increasing ``rows``, int64 of shape (k,), that hold them."""
        return RowSparse(np.searchsorted(rows, self.rows), self.values, (len(rows), *self.shape[1:]))

    def keep(self, rows: Ints) -> "RowSparse":
        """Return those of some increasing ``rows`` that are stored, at their places among these."""
        held = np.isin(self.rows, rows, assume_unique=True)
        return RowSparse(self.rows[held], self.values[held], self.shape).among(rows)

    def with_values(self, values: Array) -> "RowSparse":
        """Return the same rows with other values, shape (k, *shape[1:])."""
        return RowSparse(self.rows, values, self.shape)


Layer: TypeAlias = "Array | RowSparse"


def stored(layer: Layer) -> Array:
    """Return the values that a layer keeps; all others are zero."""
    return layer.values if isinstance(layer, RowSparse) else layer


def to_dense(layer: Layer) -> Array:
    """Return all of a layer's values."""
    return layer.to_dense() if isinstance(layer, RowSparse) else layer


def zeros_like(layer: Layer) -> Layer:
    """Return a layer of the same shape and kind without anything in it."""
    if isinstance(layer, RowSparse):
        return RowSparse(layer.rows[:0], layer.values[:0], layer.shape)
    return np.zeros_like(layer)


def union_of(tables: Sequence[RowSparse]) -> Ints:
    """Return the rows that any of some tables of one shape holds, strictly increasing."""
    held = np.zeros(tables[0].shape[0], np.bool_)
    for table in tables:
        held[table.rows] = True
    return np.flatnonzero(held)


def map_values(layer: Layer, function: Callable[[Array], Array]) -> Layer:
    """Return a layer with ``function`` applied to the stored values; it must keep shapes and zeros."""
    return layer.with_values(function(layer.values)) if isinstance(layer, RowSparse) else function(layer)


def as_row_sparse(array: Layer) -> RowSparse:
    """Return the rows of ``array``, shape (n, ...), that hold a non-zero; a row-sparse one as it is.

    >>> as_row_sparse(np.array([[0.0, 0.0], [0.0, 3.0]], np.float32)).rows
    array([1])
    """
    if isinstance(array, RowSparse):
        return array
    if array.size == 0:
        return RowSparse(np.empty(0, np.int64), array[:0], array.shape)
    # Comparing first is five times as fast as finding the non-zeros of floats.
    rows = np.flatnonzero(array != 0 if array.ndim == 1 else array.reshape(len(array), -1).any(axis=1))
    return RowSparse(rows, array[rows], array.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """One rank's gradient of one step: layer names in the model's order, and float32 values for each."""

    names: tuple[str, ...]
    layers: tuple[Layer, ...]

    def __iter__(self) -> Iterator[tuple[str, Layer]]:
        return zip(self.names, self.layers, strict=True)

    @property
    def size(self) -> int:
        """Elements of all layers, zeros included."""
        return sum(layer.size for layer in self.layers)

    @property
    def nbytes(self) -> int:
        """Bytes of all layers, zeros included."""
        return sum(layer.nbytes for layer in self.layers)

    def map(self, function: Callable[[Array], Array]) -> "Gradient":
        """Return the gradient with ``function`` applied to the stored values; it must keep shapes and zeros."""
        return Gradient(self.names, tuple(map_values(layer, function) for layer in self.layers))


def add_into(total: Array, layer: Layer) -> None:
    """Add a layer to an array of its shape, in place."""
    if isinstance(layer, RowSparse):
        total[layer.rows] += layer.values
    else:
        total += layer


def average(total: Gradient, ranks: int) -> Gradient:
    """Return a sum over ``ranks`` ranks divided by their number."""
    return total.map(lambda values: values / ranks)


def _add_layers(left: Layer, right: Layer, sign: int) -> Layer:
    if not isinstance(left, RowSparse) or not isinstance(right, RowSparse):
        dense = np.array(to_dense(left))
        add_into(dense, map_values(right, lambda values: sign * values))
        return dense
    if np.array_equal(left.rows, right.rows):
        return left.with_values(left.values + sign * right.values)
    rows = union_of([left, right])
    values = np.zeros((len(rows), *left.shape[1:]), left.dtype)
    values[np.searchsorted(rows, left.rows)] = left.values
    values[np.searchsorted(rows, right.rows)] += sign * right.values
    return RowSparse(rows, values, left.shape)


def add(left: Gradient, right: Gradient) -> Gradient:
    """Return ``left + right``; a layer stays row-sparse where both are."""
    return Gradient(left.names, tuple(map(_add_layers, left.layers, right.layers, [1] * len(left.layers))))


def subtract(left: Gradient, right: Gradient) -> Gradient:
    """Return ``left - right``; a layer stays row-sparse where both are."""
    return Gradient(left.names, tuple(map(_add_layers, left.layers, right.layers, [-1] * len(left.layers))))


def to_plain(value: Any) -> Any:
    """Return a copy made of dicts by name, lists, arrays, numbers, texts and None alone.

    >>> to_plain(Gradient(("table",), (RowSparse(np.array([4]), np.ones((1, 2), np.float32), (9, 2)),)))
    {'table': {'rows': array([4]), 'values': array([[1., 1.]], dtype=float32), 'shape': [9, 2]}}
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Gradient):
        return {name: to_plain(layer) for name, layer in value}
    if is_dataclass(value):
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def from_plain(value: Any, annotation: Any) -> Any:
    """Return what `to_plain` was given, for a value of this type, as `typing.get_type_hints` has it.

    Lists, tuples and dicts may hold dataclasses, these only arrays, numbers and None.
    """
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return value.copy()
    choices = [annotation, *get_args(annotation)]
    if isinstance(value, list):
        kind, item = next((get_origin(each), get_args(each)) for each in choices if get_origin(each) in (list, tuple))
        return kind(from_plain(each, item[0]) for each in value)
    if isinstance(value, dict):
        if Gradient in choices:
            return Gradient(tuple(value), tuple(map(_plain_to_layer, value.values())))
        classes = [each for each in choices if isinstance(each, type) and is_dataclass(each)]
        if classes:
            return classes[0](**{name: from_plain(item, None) for name, item in value.items()})
        items = next(get_args(each) for each in choices if get_origin(each) is dict)
        return {key: from_plain(item, items[1]) for key, item in value.items()}
    return value


def _plain_to_layer(value: Any) -> Any:
    if isinstance(value, dict):
        return RowSparse(value["rows"].copy(), value["values"].copy(), tuple(value["shape"]))
    return value.copy()
