"""The JSON schema of a dataclass, and its value from JSON, by the annotations that its JSON form is written by."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from inspect import getdoc
from math import inf
from sys import modules
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from s2sim.study.json_form import json_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    Schema = dict[str, Any]

_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}


class Walk:
    """The schemas of types, those of dataclasses and typed dictionaries gathered as definitions.

    Attributes
    ----------
    names : mapping of str to type
        Types that annotations may name although their modules import them for type checkers alone.
    definitions : dict
        Schemas found so far, by name.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = dict(names)
        self.definitions: dict[str, Schema] = {}

    def schema(self, kind: Any) -> Schema:
        """Return the schema of what a file of JSON has for a value of type ``kind``."""
        if kind is Any:
            return {}
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        if is_dataclass(kind) or _is_record(kind):
            return self._defined(kind)
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Annotated:
            # The only note there is: `MayBeInfinite`.
            return {"anyOf": [self.schema(inner[0]), {"type": "null"}]}
        if origin is Literal:
            return {"enum": list(inner)}
        if origin in (Union, UnionType):
            return {"anyOf": [self.schema(each) for each in inner]}
        if origin is np.ndarray:
            scalar = get_args(inner[1])[0]
            return {"type": "array", "items": {"type": "integer" if issubclass(scalar, np.integer) else "number"}}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.schema(inner[1])}
        if origin in (list, tuple):
            return {"type": "array", "items": self.schema(inner[0])}
        raise TypeError(f"{kind} has no JSON form")

    def _defined(self, kind: Any) -> Schema:
        name = kind.__name__.lstrip("_")
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self._object(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _object(self, kind: Any) -> Schema:
        found: Schema = {"type": "object"}
        if is_dataclass(kind):
            found["description"] = (getdoc(kind) or "").partition("\n")[0]
        hints = self._hints(kind)
        inline = {field.name for field in fields(kind) if "inline" in field.metadata} if is_dataclass(kind) else set()
        keys = json_keys(kind)
        found["properties"] = {
            key: self._object(hints[key])
            if key in inline
            else self.schema(self._type_of(kind, hints, key, always=always))
            for key, always in keys.items()
        }
        found["required"] = [key for key, always in keys.items() if always]
        return found

    def _type_of(self, kind: Any, hints: Mapping[str, Any], key: str, *, always: bool) -> Any:
        """Return the type of a field or property; where it is missing from JSON when None, without that."""
        found = hints[key] if key in hints else self._hints(getattr(kind, key).fget)["return"]
        if always or NoneType not in get_args(found):
            return found
        return Union[tuple(each for each in get_args(found) if each is not NoneType)]  # noqa: UP007 # of any number

    def load(self, kind: Any, value: Any) -> Any:
        """Return the value of type ``kind`` that was written as JSON."""
        origin, inner = get_origin(kind), get_args(kind)
        if is_dataclass(kind) or _is_record(kind):
            return self._load_object(kind, value)
        if origin is Annotated:
            return inf if value is None else self.load(inner[0], value)
        if origin in (Union, UnionType):
            return None if value is None else self.load(self._alternative(inner, value), value)
        if origin is np.ndarray:
            return np.array(value, get_args(inner[1])[0])
        if origin is dict:
            return {key: self.load(inner[1], item) for key, item in value.items()}
        if origin is tuple and inner[-1] is not Ellipsis:
            return tuple(self.load(each, item) for each, item in zip(inner, value, strict=True))
        if origin in (list, tuple):
            return origin(self.load(inner[0], item) for item in value)
        return float(value) if kind is float else value

    def _load_object(self, kind: Any, value: Mapping[str, Any]) -> Any:
        hints = self._hints(kind)
        if not is_dataclass(kind):
            return kind(**{key: self.load(hints[key], value[key]) for key in json_keys(kind)})
        found: dict[str, Any] = {}
        for field in fields(kind):
            if (load := field.metadata.get("load")) is not None:
                found[field.name] = load(value)
            elif field.name in value and field.init and "load" not in field.metadata:
                found[field.name] = self.load(hints[field.name], value[field.name])
        make: Any = kind
        return make(**found)

    def _alternative(self, kinds: tuple[Any, ...], value: Any) -> Any:
        """Return which of several types a value has that is not null; an object's follows from its keys."""
        for kind in kinds:
            if isinstance(kind, type) and is_dataclass(kind):
                needed = (key for key, always in json_keys(kind).items() if always)
                fits = isinstance(value, dict) and all(key in value for key in needed)
            elif kind in _PLAIN:
                fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
            else:
                fits = isinstance(value, dict if get_origin(kind) is dict else list) or get_origin(kind) is Literal
            if fits:
                return kind
        raise TypeError(f"{value!r} is none of {kinds}")

    def _hints(self, annotated: Any) -> dict[str, Any]:
        """Return annotations as types; what a module knows itself comes before what others call so."""
        names = self._names | vars(modules[annotated.__module__])
        return get_type_hints(annotated, localns=names, include_extras=True)


def _is_record(kind: Any) -> bool:
    """Return whether a type is a named tuple."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
