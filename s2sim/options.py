"""Option strings, ``name:key=value,key=value``: parsed into a dataclass's fields and printed back the same way."""

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from s2sim.errors import OptionError, S2SimError, check_known
from s2sim.registry import Catalogue
from s2sim.units import parse_size_bytes, parse_time_ps

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_KINDS = {int: "a whole number", float: "a number"}
# No option counts more of anything, and arrays of int64 cannot.
_MAX_COUNT = 2**62


def option(default: Any, text: str) -> Any:
    """Return a field of a dataclass of options: its default, and what it does, for people."""
    return dataclasses.field(default=default, metadata={"text": text})


@dataclasses.dataclass(frozen=True, slots=True)
class Time:
    """A time as it was written, and in picoseconds."""

    text: str
    ps: int = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ps", parse_time_ps(self.text))

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """A size as it was written, and in bytes."""

    text: str
    bytes: int = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", parse_size_bytes(self.text))

    def __str__(self) -> str:
        return self.text


def split_option_string(text: str) -> tuple[str, dict[str, str]]:
    """Split ``name:key=value,...`` into its name and its options, in order.

    >>> split_option_string("s2:rows=3,cells=2")
    ('s2', {'rows': '3', 'cells': '2'})
    """
    name, _, tail = text.strip().partition(":")
    if not name:
        raise OptionError(f"{text!r} names nothing: write name or name:key=value,key=value")
    options: dict[str, str] = {}
    for item in filter(None, tail.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise OptionError(f"{item!r} in {text!r} is not key=value")
        if key in options:
            raise OptionError(f"{key!r} stands twice in {text!r}")
        options[key] = value
    return name, options


def join_option_string(name: str, options: Mapping[str, str]) -> str:
    """Return the option string of ``name`` and ``options``; the inverse of `split_option_string`."""
    return f"{name}:{','.join(f'{key}={value}' for key, value in options.items())}" if options else name


def _convert(text: str, annotation: Any, key: str, owner: str) -> Any:
    origin = get_origin(annotation)
    if origin is Literal:
        value = next((choice for choice in get_args(annotation) if str(choice) == text), text)
        _check_choice(value, annotation, key, owner)
        return value
    if origin in (Union, types.UnionType):
        inner = [choice for choice in get_args(annotation) if choice is not type(None)]
        return _convert(text, inner[0], key, owner)
    if annotation is bool:
        if text not in ("true", "false"):
            raise OptionError(f"{owner}: {key}={text} is neither true nor false")
        return text == "true"
    try:
        value = annotation(text)
    except S2SimError:
        raise  # The message of a quantity is complete.
    except ValueError as error:
        raise OptionError(f"{owner}: {key}={text} is not {_KINDS.get(annotation, annotation.__name__)}") from error
    if annotation is int and abs(value) > _MAX_COUNT:
        raise OptionError(f"{owner}: {key}={text} is out of range: at most {_MAX_COUNT}")
    return value


def build(cls: type[T], options: Mapping[str, str], owner: str, **given: Any) -> T:
    """Return ``cls(**given, **options)`` of converted texts; `OptionError` for an unknown option or a wrong value."""
    fields = {field.name for field in dataclasses.fields(cls) if field.init}
    hints = _hints(cls)
    values = {}
    for key, text in options.items():
        check_known(key, fields, f"{owner} has no option {key!r}")
        values[key] = _convert(text, hints[key], key, owner)
    return cls(**given, **values)


def option_text(instance: Any) -> str:
    """Return the option string of a dataclass instance that has a ``name``, defaults left out."""
    return join_option_string(instance.name, non_default(instance))


def check_options(instance: Any, owner: str, **least: int) -> None:
    """Refuse options of a dataclass instance that are no choice of their type, or less than ``least``."""
    for key, choices in _literals(instance.__class__).items():
        if (value := getattr(instance, key)) is not None:
            _check_choice(value, choices, key, owner)
    for key, number in least.items():
        value = getattr(instance, key)
        if isinstance(value, Size):
            if value.bytes < number:
                raise OptionError(f"{owner}: {key}={value} holds nothing: at least {number}B")
        elif value is not None and value < number:
            raise OptionError(f"{owner}: {key}={value} must be at least {number}")


def check_intervals(instance: Any, owner: str, intervals: Mapping[str, str]) -> None:
    """Refuse options of a dataclass instance that are outside of their interval, such as ``[0, 1)``; None is in all."""
    for key, interval in intervals.items():
        value, (low, high) = getattr(instance, key), map(float, interval[1:-1].split(","))
        left_out = [low] * interval.startswith("(") + [high] * interval.endswith(")")
        if value is not None and (not low <= value <= high or value in left_out):
            raise OptionError(f"{owner}: {key}={value} is not in {interval}")


class CheckedOptions:
    """What a dataclass of options inherits that refuses, as it is made, what types and limits do not allow."""

    __slots__ = ()
    name: ClassVar[str]  # In option strings
    minimums: ClassVar[Mapping[str, int]] = {}  # Least values of options, of sizes in bytes
    fractions: ClassVar[tuple[str, ...]] = ()  # Options that are above 0 and at most 1
    intervals: ClassVar[Mapping[str, str]] = {}  # In which other options have to be, such as ``[0, 1)``
    needs: ClassVar[Mapping[str, str]] = {}  # Options that count only with another's value, such as ``wire=packed``

    def __post_init__(self) -> None:
        self.check_limits(self.name)

    def check_limits(self, owner: str) -> None:
        """Refuse options, of which messages say that they are the owner's."""
        check_options(self, owner, **self.minimums)
        for key in self.fractions:
            if not 0 < (value := getattr(self, key)) <= 1:
                raise OptionError(f"{owner}: {key}={value} is not above 0 and at most 1")
        check_intervals(self, owner, self.intervals)
        given = non_default(self) if self.needs else {}
        for key, need in self.needs.items():
            other = need.partition("=")[0]
            if key in given and (found := f"{other}={getattr(self, other)}".lower()) != need:
                value = given[key]
                raise OptionError(f"{owner}: {key}={value} changes nothing with {found}: leave it out, or give {need}")


class Described(CheckedOptions):
    """Options that have as their attributes the facts that a ``catalogue`` has of them; plug-ins state them."""

    __slots__ = ()
    catalogue: ClassVar[Catalogue]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for key, value in cls.catalogue.facts(cls).items():
            setattr(cls, key, value)


_hints = cache(get_type_hints)


@cache
def _literals(cls: type) -> dict[str, Any]:
    """Return the fields of a dataclass that have choices, with these."""
    return {
        key: choices
        for key, annotation in _hints(cls).items()
        for choices in (annotation, *get_args(annotation))
        if get_origin(choices) is Literal
    }


def _check_choice(value: object, choices: Any, key: str, owner: str) -> None:
    if value not in get_args(choices):
        raise OptionError(f"{owner}: {key}={value} is not one of {', '.join(map(str, get_args(choices)))}")


def value_text(value: object) -> str:
    """Return the value of an option as users write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def non_default(instance: Any) -> dict[str, str]:
    """Return the compared fields of a dataclass instance that differ from their defaults, as option texts."""
    return {
        field.name: value_text(getattr(instance, field.name))
        for field in dataclasses.fields(instance)
        if field.init and field.compare and getattr(instance, field.name) != field.default
    }
