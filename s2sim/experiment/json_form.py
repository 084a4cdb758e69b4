"""Specs, rows and results as JSON: an object with the names of the fields as keys, and of a few properties."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import getdoc
from math import inf, isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, Union, get_args, get_origin, get_type_hints

from s2sim.errors import S2SimError
from s2sim.files import own_tables, read_text
from s2sim.registry import Catalogue, Registry
from s2sim.tables import Table, flat_scalars, table_of

Schema = dict[str, Any]

MayBeInfinite: TypeAlias = Annotated[float, "null in files where it is infinite"]

_LOAD = "load"
INLINE: dict[str, bool] = {"inline": True}
"""Metadata of a field whose schema stands within that of its class."""
LEFT_OUT: dict[str, Any] = {_LOAD: None}
"""Metadata of a field that does not stand in JSON, and has its default after loading."""


def left_out(load: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
    """Return the metadata of a field that is not in JSON, and that ``load`` computes from the keys of the object."""
    return {_LOAD: load}


class JsonForm:
    """A dataclass with a JSON form: fields, then ``more_json``, with ``?`` if neither None nor empty."""

    __slots__ = ()
    more_json: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value with the keys that other programs rely on."""
        return _object(self)


def json_keys(kind: type) -> dict[str, bool]:
    """Return the keys of a class in their order, and whether each is always there."""
    more: tuple[str, ...] = getattr(kind, "more_json", ())
    last = {name.rstrip("?"): not name.endswith("?") for name in more}
    if not is_dataclass(kind):
        names: tuple[str, ...] = getattr(kind, "_fields", ())  # Of a named tuple
        return dict.fromkeys(names, True)
    own = {field.name: True for field in fields(kind) if _LOAD not in field.metadata and field.name not in last}
    return own | last


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: dataclasses and named tuples as objects, other tuples and arrays as lists."""
    if isinstance(value, JsonForm):
        return value.to_json()
    if is_dataclass(value) or hasattr(value, "_fields"):
        return _object(value)
    if isinstance(value, dict):
        return {name: json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def finite(value: Any) -> Any:
    """Return a value of JSON with None for infinities and NaN."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _object(value: Any) -> dict[str, Any]:
    found = {}
    for name, always in json_keys(type(value)).items():
        item = getattr(value, name)
        if always or not (item is None or item in ((), [], {})):
            found[name] = json_value(item)
    return found


SCHEMA_VERSION = 1
"""Of the JSON of all results; raised when a key goes or comes to mean something else, not when one is added."""

_CATALOGUE = Catalogue("s2sim", own_tables(__file__, "results.toml"))
RESULTS = Registry("result", "s2sim.results", _CATALOGUE.places)

# Notebooks look for a method on the class, while what draws it stands above.
_VIEWS = Registry(
    "view",
    "s2sim.views",
    {
        f"{name} as {form}": f"s2sim.report.screens:screen_{form}"
        for name in RESULTS.builtin
        for form in ("text", "html", "line", "page")
    },
)


class ResultForm(JsonForm):
    """Gives an answer its JSON form and its first screen, which ``answers`` names."""

    __slots__ = ()
    answers: ClassVar[str]
    tabulated: ClassVar[str] = ""
    """The field that has the rows of its table; the table has one row of all fields without it."""
    schema_version: ClassVar[int] = SCHEMA_VERSION

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if row := _CATALOGUE.facts(cls):
            cls.answers, cls.tabulated = row["name"], row.get("tabulated", "")

    def to_json(self) -> dict[str, Any]:
        """Return the answer with the keys that other programs rely on, and the version of these."""
        return {"schema_version": self.schema_version, **JsonForm.to_json(self)}

    def table(self) -> Table:
        """Return its rows as a table of scalars, with units in the names of columns."""
        objects = getattr(self, self.tabulated) if self.tabulated else [self]
        return table_of(row.columns() if hasattr(row, "columns") else flat_scalars(json_value(row)) for row in objects)

    def to_csv(self) -> str:
        """Return the rows as CSV."""
        return self.table().to_csv()

    def to_frame(self) -> Any:
        """Return the rows as a ``polars.DataFrame``, of which ``to_pandas`` makes one of pandas."""
        return self.table().to_frame()

    @classmethod
    def load(cls, source: Path | str) -> Self:
        """Return the result that `to_json` or ``--json`` wrote, of a path or JSON text; `S2SimError` if it is none."""
        is_text = str(source).lstrip().startswith("{")
        text = str(source) if is_text else read_text(Path(source), noun="the result")
        try:
            found: Self = SchemaBuilder().load(cls, json.loads(text))
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            origin = "the text" if is_text else source
            raise S2SimError(f"{origin} is no result of s2sim {cls.answers}: {type(error).__name__} {error}") from None
        return found

    def __repr__(self) -> str:
        return f"<s2sim {self.answers}: {_VIEWS.get(f'{self.answers} as line')(self)}>"

    def __str__(self) -> str:
        """Return the first screen as text of 80 columns."""
        return str(_VIEWS.get(f"{self.answers} as text")(self))

    def to_html(self) -> str:
        """Return a page with the answer, tables and charts, which loads nothing."""
        return str(_VIEWS.get(f"{self.answers} as page")(self))

    def _repr_html_(self) -> str:
        return str(_VIEWS.get(f"{self.answers} as html")(self))


_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}


class SchemaBuilder:
    """The schemas of types, with those of dataclasses and named tuples gathered as ``definitions`` by name."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def schema(self, kind: Any) -> Schema:
        """Return the schema of what a file of JSON has for a value of type ``kind``."""
        import numpy as np  # not at the top: specs have a JSON form, and help texts are made of specs

        if kind is Any:
            return {}
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        if is_dataclass(kind) or _is_record(kind):
            name = kind.__name__.lstrip("_")
            if name not in self.definitions:
                self.definitions[name] = {}
                self.definitions[name] = self._object(kind)
            return {"$ref": f"#/$defs/{name}"}
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"enum": list(inner)}
        if origin in (Annotated, Union, UnionType):
            # The only note there is: `MayBeInfinite`.
            return {"anyOf": [self.schema(each) for each in ((inner[0], NoneType) if origin is Annotated else inner)]}
        if origin is np.ndarray:
            scalar = get_args(inner[1])[0]
            return {"type": "array", "items": {"type": "integer" if issubclass(scalar, np.integer) else "number"}}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.schema(inner[1])}
        if origin in (list, tuple):
            return {"type": "array", "items": self.schema(inner[0])}
        raise TypeError(f"{kind} has no JSON form")

    def _object(self, kind: Any) -> Schema:
        found: Schema = {"type": "object"}
        if is_dataclass(kind):
            found["description"] = (getdoc(kind) or "").partition("\n")[0]
        hints = _hints(kind)
        inline = {field.name for field in fields(kind) if "inline" in field.metadata} if is_dataclass(kind) else set()
        found["properties"] = {"schema_version": {"const": SCHEMA_VERSION}} if issubclass(kind, ResultForm) else {}
        found["required"] = [*found["properties"]]
        for key, always in json_keys(kind).items():
            own = hints[key] if key in hints else _hints(getattr(kind, key).fget)["return"]
            if not always and NoneType in get_args(own):
                # Where it is None the key is missing.
                own = Union[tuple(each for each in get_args(own) if each is not NoneType)]  # noqa: UP007 # of any number
            found["properties"][key] = self._object(own) if key in inline else self.schema(own)
            found["required"] += [key] if always else []
        return found

    def load(self, kind: Any, value: Any) -> Any:
        """Return the value of type ``kind`` that was written as JSON."""
        import numpy as np

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
        if kind is float and isinstance(value, int):
            return float(value)
        if (kind in _PLAIN and not isinstance(value, kind)) or (origin is Literal and value not in inner):
            raise TypeError(f"{value!r} is no {_PLAIN.get(kind, kind)}")
        return value

    def _load_object(self, kind: Any, value: Mapping[str, Any]) -> Any:
        hints = _hints(kind)
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


@cache
def _hints(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated, include_extras=True)


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of ``--json`` for one kind of result; `UnknownNameError` if unknown.

    Further keys may appear without another version.
    """
    kind = RESULTS.get(name)
    builder = SchemaBuilder()
    builder.schema(kind)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"s2sim {name}, version {SCHEMA_VERSION}",
        **builder.definitions.pop(kind.__name__),
        "$defs": builder.definitions,
    }
