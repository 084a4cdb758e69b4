"""The part of all specs that describes the cluster, and how specs are checked, written and read."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields
from functools import lru_cache, partial, wraps
from inspect import Parameter, signature
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Self, TypeVar, get_type_hints

from s2sim.errors import OptionError, S2SimError, suggest_nearest
from s2sim.experiment.json_form import JsonForm
from s2sim.files import StrictFields, own_tables, read_text, validated
from s2sim.units import parse_option, parse_size_bytes

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_PARSE = "parse"
_DOC_LINE = re.compile(r"(.{1,92})(?: |$)")  # textwrap takes 2 ms at every start of a command
_MOST_WORKERS_DIGITS, _LONGEST_TEXT = 9, 40


@dataclass(frozen=True, slots=True)
class Option:
    """What the field of a spec is to those who write it, see ``options.toml``."""

    metavar: str | None  # The form of its value, with its unit
    text: str  # What it does
    none: str = ""  # What the default amounts to, where it is None or long
    flag: str = ""  # Its option on the command line; by default the field's name
    # Makes the value of the text on the command line, where that is of another type
    parse: Callable[[str], Any] | None = None
    least: int | None = None  # Smallest value that the command line takes
    argument: bool = False  # Whether the command line takes it by its place, under the name ``metavar``


def parsed(parse: Callable[[str], Any], default: Any = MISSING) -> Any:
    """Return a field whose value ``parse`` makes of the text on the command line."""
    return field(default=default, metadata={_PARSE: parse})


def _own_option(spec: type, each: Field[Any]) -> Option | None:
    """Return what ``options.toml`` says of a field, by the class that has it; None for programs alone."""
    owner = next(base for base in spec.__mro__ if each.name in vars(base).get("__annotations__", {}))
    texts = own_tables(__file__, "options.toml")
    if (row := texts.get(owner.__name__, {}).get(each.name)) is None:
        return None
    row = texts["*"][row] if isinstance(row, str) else row
    return Option(row.get("form"), parse=each.metadata.get(_PARSE), **{key: row[key] for key in row if key != "form"})


def options_of(spec: type) -> dict[str, tuple[Field[Any], Option]]:
    """Return the options of a spec by field: topology, arguments, own, inherited; without a text for programs alone."""
    found = {each.name: (each, option) for each in fields(spec) if (option := _own_option(spec, each)) is not None}
    names = [name for base in spec.__mro__ for name in vars(base).get("__annotations__", {}) if name in found]
    arguments = [name for name in names if found[name][1].argument]
    return {name: found[name] for name in dict.fromkeys([*arguments, "topology", *names]) if name in found}


def flag_of(name: str, option: Option) -> str:
    """Return the option of a field on the command line."""
    return option.flag or f"--{name.replace('_', '-')}"


def command_of(spec: "ClusterSpec") -> str:
    """Return the command line that computes a spec, with the options that are not defaults."""
    words = ["s2sim", spec.what]
    for name, (each, option) in options_of(type(spec)).items():
        value = getattr(spec, name)
        if value in (None, (), each.default):
            continue
        several = value if isinstance(value, tuple) else (value,)
        for text in [",".join(map(str, several))] if option.parse is not None else list(map(str, several)):
            words += [text] if option.argument else [flag_of(name, option), text]
    return shlex.join(words)


def merged_overrides(overrides: Iterable[str], others: Sequence[str]) -> tuple[str, ...]:
    """Return overrides with others, which replace those of the same fields."""
    replaced = set(map(overridden_field, others))
    return (*(each for each in overrides if overridden_field(each) not in replaced), *others)


def overridden_field(override: str) -> str:
    """Return the field of an override ``field=value``."""
    return override.partition("=")[0].strip()


def parse_workers(text: str) -> int:
    """Return a number of workers.

    >>> parse_workers("64")
    64
    """
    shown = repr(text) if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]!r}..."
    if re.fullmatch(r"[+-]?\d+", text.strip()) is None:
        raise OptionError(f"--workers {shown} is not a whole number; for example --workers 64")
    if len(text.strip().lstrip("+-0")) > _MOST_WORKERS_DIGITS:
        raise OptionError(f"--workers {shown} is out of range; for example --workers 64")
    if int(text) < 1:
        raise OptionError(f"--workers {text}: at least 1 worker is needed")
    return int(text)


def parse_worker_list(text: str) -> tuple[int, ...]:
    """Return numbers of workers.

    >>> parse_worker_list("8,16")
    (8, 16)
    """
    return tuple(parse_workers(part.strip()) for part in text.split(","))


def size_parser(flag: str) -> Callable[[str], int]:
    """Return a parser of the size in bytes of an option."""
    return partial(parse_option, flag, parse_size_bytes)


def parse_list(flag: str, example: str, text: str) -> tuple[str, ...]:
    """Return the values between commas of an option."""
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise OptionError(f"{flag} {text!r} has an empty place: write values between commas, as in {flag} {example}")
    return parts


def parse_numbers(flag: str, example: str, text: str) -> tuple[float, ...]:
    """Return the numbers between commas of an option."""
    values = []
    for part in parse_list(flag, example, text):
        try:
            values.append(float(part))
        except ValueError:
            raise OptionError(f"{flag}: {part!r} is not a number; write for example {flag} {example}") from None
    return tuple(values)


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def accept_fields_of(spec: "type[ClusterSpec]") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that adds the fields of ``spec`` as keywords: in signature and documentation, and checked."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name, bound = f"s2sim.{function.__name__}", signature(function)
        own = [each.name for each in bound.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        known = dict.fromkeys([*own, *(field.name for field in fields(spec))])

        @wraps(function)
        def checked(*arguments: P.args, **named: P.kwargs) -> R:
            for wrong in named.keys() - known.keys():
                raise OptionError(f"{name} takes no {wrong!r}{suggest_nearest(wrong, known)}")
            try:
                bound.bind(*arguments, **named)
            except TypeError as error:
                raise OptionError(f"{name}: {error}; see help({name})") from None
            return function(*arguments, **named)

        others = {name: each for name, each in options_of(spec).items() if name not in own}
        keywords = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=each.type)
            for name, (each, _) in others.items()
            for default in [Parameter.empty if each.default is MISSING else each.default]
        ]
        everything = [*(bound.parameters[each] for each in own), *keywords]
        checked.__dict__["__signature__"] = bound.replace(parameters=everything)
        written = re.findall(r"^ *(\w+) : ", checked.__doc__ or "", re.MULTILINE)
        others = {name: each for name, each in options_of(spec).items() if name not in written}
        common = [name for name in own if name in _COMMON and name not in written]
        _document(checked, others, "Other Parameters" if written else "Parameters", common)
        return checked

    return decorate


# What arguments of several functions are.
_COMMON = {
    "spec": ("spec, optional", "All of it as a value, instead of the other arguments."),
    "progress": ("ProgressWatcher, optional", "Called as the work advances."),
    "break_even": ("bool", "Whether to search for the rates at which reducers break even with dense."),
    "thorough": ("bool", "Whether to predict what the first screen leaves out: break-even of all, other libraries."),
    "gate": ("Gate, optional", "Given the cost before work begins, which it may refuse by an error."),
}


def _document(
    target: Any, options: dict[str, tuple[Field[Any], Option]], title: str, common: Sequence[str] = ()
) -> None:
    """Append a section with the texts of options to the docstring of a function or class."""
    lines = [f"{(target.__doc__ or '').rstrip()}\n", f"    {title}", f"    {'-' * len(title)}"]
    lines += [f"    {name} : {_COMMON[name][0]}\n        {_COMMON[name][1]}" for name in common]
    for name, (each, option) in options.items():
        text = f"{option.text} Default: {option.none}." if option.none else option.text
        lines += [f"    {name} : {each.type}", _DOC_LINE.sub(r"        \1\n", text).rstrip()]
    target.__doc__ = "\n".join([*lines, ""])


def document_options(spec: type[S]) -> type[S]:
    """Append the texts of a spec's options to its docstring, as its parameters."""
    _document(spec, options_of(spec), "Parameters")
    return spec


@dataclass(frozen=True, slots=True)
class ClusterSpec(JsonForm, StrictFields):
    """A cluster as people write it, and what goes wrong on it."""

    what: ClassVar[str] = ""
    """Names the kind of spec in messages."""

    topology: str
    _: KW_ONLY
    overrides: tuple[str, ...] = ()
    placement: str = "linear"
    seed: int = 0
    faults: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what a caller in Python may get wrong; files are checked field by field before."""
        check_tuples(self, "overrides", "faults")
        check_integer(self.seed)
        if len(set(map(overridden_field, self.overrides))) < len(self.overrides):
            raise OptionError(f"a field is set twice in {', '.join(self.overrides)}: --set it once")
        if self.seed < 0:
            raise OptionError(f"--seed {self.seed} must not be negative")

    @classmethod
    def of(cls, topology: Any, **options: Any) -> Self:
        """Return the spec of Python values: lists for tuples, paths for texts; `OptionError` names a wrong option."""
        from pydantic import ValidationError

        given = {name: _plain(value) for name, value in {"topology": topology, **options}.items()}
        for name, value in given.items():
            try:
                _type_adapter(cls, name).validate_python(value, strict=True)  # type: ignore[arg-type] # of frozen ones
            except ValidationError as error:
                first = error.errors()[0]
                if first["type"] == "literal_error":
                    # A name that there is not; whoever looks it up tells the nearest.
                    continue
                found = first["msg"]
                raise OptionError(f"{cls.what}: {name} = {value!r}: {found[0].lower()}{found[1:]}") from None
        try:
            return cls(**given)
        except TypeError as error:
            raise OptionError(f"{cls.what}: {error}") from None

    @classmethod
    def from_json(cls, value: Any, origin: str) -> Self:
        """Return the spec of a JSON value, or of a saved result's ``spec``; `S2SimError` names every wrong field."""
        if isinstance(value, dict) and isinstance(value.get("spec"), dict):
            value = value["spec"]
        if isinstance(value, dict) and len(others := value.keys() - {each.name for each in fields(cls)}) > 2:
            named = ", ".join(sorted(others)[:3])
            raise S2SimError(f"{origin} is not a {cls.what} spec but that of another command: it has {named}")
        return validated(cls, value, f"{origin} is not a {cls.what} spec")

    @classmethod
    def from_keywords(cls, spec: Self | None, defaults: dict[str, Any], options: dict[str, Any]) -> Self:
        """Return a spec that is given as a value, or the one of keywords; `OptionError` for both."""
        if spec is not None and options:
            raise OptionError(f"spec holds all of it, so {', '.join(options)} cannot be given with it")
        return spec or cls.of(**{"topology": None, **defaults, **options})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the spec of a file that ``--json`` or a person wrote."""
        text = read_text(path, noun="the spec")
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise S2SimError(f"{path} is not JSON: {error.msg} at line {error.lineno}") from None
        except (RecursionError, ValueError):
            # Brackets in brackets, or a number of thousands of digits.
            raise S2SimError(f"{path} is not a {cls.what} spec: it holds a list or a number beyond reason") from None
        return cls.from_json(value, str(path))


@lru_cache(maxsize=256)
def _type_adapter(spec: type[object], name: str) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(get_type_hints(spec).get(name, Any))


def _plain(value: Any) -> Any:
    """Return paths as texts, what NumPy has as Python has it, and what holds several as a tuple."""
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, Iterable) and not isinstance(value, str) else value


def check_tuples(spec: object, *names: str) -> None:
    """Refuse fields of a spec that hold one value, or a list, where a tuple belongs."""
    for name in names:
        if not isinstance(getattr(spec, name), tuple):
            raise OptionError(f"{name} = {getattr(spec, name)!r} must be a tuple, even of one")


def check_integer(*numbers: object) -> None:
    """Refuse what is no whole number."""
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise OptionError(f"{number!r} is not a whole number, as numbers of workers, seeds and steps are")


@dataclass(frozen=True, slots=True)
class NetworkSpec(ClusterSpec):
    """Traffic on the cluster of a `ClusterSpec`."""

    _: KW_ONLY
    network: str = "fluid"
    packet_bytes: int | None = parsed(size_parser("--packet-bytes"), None)
    buffer_bytes: int | None = parsed(size_parser("--buffer"), None)
    cross_check: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        from s2sim.network.network import check_network

        ClusterSpec.__post_init__(self)
        check_network(self.network)
        sent = "packet" if self.as_packets else self.network
        check_network(sent, packet_bytes=self.packet_bytes, buffer_bytes=self.buffer_bytes)

    @property
    def as_packets(self) -> bool:
        """Whether anything goes as packets."""
        return self.cross_check or self.network == "packet"

    @property
    def packet_size_bytes(self) -> int:
        """Bytes of a packet."""
        from s2sim.network.packet_queues import PACKET_BYTES

        return PACKET_BYTES if self.packet_bytes is None else self.packet_bytes

    @property
    def other_network(self) -> str:
        """The network that a cross-check adds."""
        return "fluid" if self.network == "packet" else "packet"
