"""What is kept from step to step as plain data, and back: gradients, lists, dataclasses of arrays and numbers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

import numpy as np

from s2sim.gradients.gradient import Gradient, RowSparse


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
            return Gradient(tuple(value), tuple(map(_layer, value.values())))
        classes = [each for each in choices if isinstance(each, type) and is_dataclass(each)]
        if classes:
            return classes[0](**{name: from_plain(item, None) for name, item in value.items()})
        items = next(get_args(each) for each in choices if get_origin(each) is dict)
        return {key: from_plain(item, items[1]) for key, item in value.items()}
    return value


def _layer(value: Any) -> Any:
    if isinstance(value, dict):
        return RowSparse(value["rows"].copy(), value["values"].copy(), tuple(value["shape"]))
    return value.copy()
