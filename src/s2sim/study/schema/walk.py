"""The JSON schema of a dataclass, walked as its JSON form is: every field, and what `more_json` says it returns."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from inspect import getdoc
from sys import modules
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np

from s2sim.study.json_form import JsonForm, json_path

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
        if is_dataclass(kind) or is_typeddict(kind):
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
        if is_typeddict(kind):
            self._add_items(found, hints)
            return found
        for field in fields(kind):
            path = json_path(field)
            if path is not None:
                _put(found, path, self.schema(hints[field.name]))
        if issubclass(kind, JsonForm) and kind.more_json is not JsonForm.more_json:
            self._add_items(found, self._hints(self._hints(kind.more_json)["return"]))
        return found

    def _hints(self, annotated: Any) -> dict[str, Any]:
        """Return annotations as types; what a module knows itself comes before what others call so."""
        names = self._names | vars(modules[annotated.__module__])
        return get_type_hints(annotated, localns=names, include_extras=True)

    def _add_items(self, found: Schema, hints: Mapping[str, Any]) -> None:
        for key, kind in hints.items():
            optional = get_origin(kind) is NotRequired
            _put(found, (key,), self.schema(get_args(kind)[0] if optional else kind), required=not optional)


def _put(found: Schema, path: tuple[str, ...], schema: Schema, *, required: bool = True) -> None:
    """Add a key to an object's schema; of several, each is an object in the one before."""
    for number, key in enumerate(path, start=1):
        found.setdefault("properties", {}).setdefault(key, {"type": "object"} if number < len(path) else schema)
        keys = found.setdefault("required", [])
        if required and key not in keys:
            keys.append(key)
        found = found["properties"][key]
