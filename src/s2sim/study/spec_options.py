"""Options of specs, each declared once with its field: command lines and signatures are made of them."""

from __future__ import annotations

import re
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from s2sim.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

_OPTION = "option"
_WHOLE = re.compile(r"[+-]?\d+")
_MOST_WORKERS_DIGITS = 9
_LONGEST_TEXT = 40


@dataclass(frozen=True, slots=True)
class Option:
    """What the field of a spec is to those who write it.

    Attributes
    ----------
    metavar : str or None
        The form of its value, with its unit.
    text : str
        What it does.
    none : str
        What the default amounts to, where it is None or long.
    flag : str
        Its option on the command line; by default the field's name.
    parse : callable or None
        Makes the value of the text on the command line, where that is of another type.
    at_least : int or None
        Smallest value that the command line takes.
    argument : bool
        Whether the command line takes it by its place, under the name ``metavar``.
    """

    metavar: str | None
    text: str
    none: str = ""
    flag: str = ""
    parse: Callable[[str], Any] | None = None
    at_least: int | None = None
    argument: bool = False


def described(metavar: str | None, text: str, **more: Any) -> dict[str, Option]:
    """Return the metadata of a field that has to be given; for the arguments see `Option`."""
    return {_OPTION: Option(metavar, text, **more)}


def option(default: Any, metavar: str | None, text: str, **more: Any) -> Any:
    """Return a field of a spec that has a default; for the other arguments see `Option`."""
    return field(default=default, metadata=described(metavar, text, **more))


def options_of(spec: type) -> dict[str, tuple[Field[Any], Option]]:
    """Return the options of a spec by field: its own first, then those of what it is derived from.

    The topology comes before all, and arguments before options. Fields without a text are for programs alone.
    """
    found = {each.name: (each, each.metadata[_OPTION]) for each in fields(spec) if _OPTION in each.metadata}
    names = [name for base in spec.__mro__ for name in vars(base).get("__annotations__", {}) if name in found]
    arguments = [name for name in names if found[name][1].argument]
    return {name: found[name] for name in dict.fromkeys([*arguments, "topology", *names]) if name in found}


def parse_workers(text: str) -> int:
    """Return a number of workers.

    >>> parse_workers("64")
    64
    """
    shown = repr(text) if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]!r}..."
    if _WHOLE.fullmatch(text.strip()) is None:
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
    """Return what reads the size in bytes of an option."""

    def parse(text: str) -> int:
        from s2sim.units import parse_option, parse_size_bytes

        return parse_option(flag, parse_size_bytes, text)

    return parse


def list_parser(flag: str, example: str) -> Callable[[str], tuple[str, ...]]:
    """Return what reads values between commas."""

    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(part.strip() for part in text.split(","))
        if not all(parts):
            raise OptionError(
                f"{flag} {text!r} has an empty place: write values between commas, as in {flag} {example}"
            )
        return parts

    return parse


def numbers_parser(flag: str, example: str) -> Callable[[str], tuple[float, ...]]:
    """Return what reads numbers between commas."""
    split = list_parser(flag, example)

    def parse(text: str) -> tuple[float, ...]:
        values = []
        for part in split(text):
            try:
                values.append(float(part))
            except ValueError:
                raise OptionError(f"{flag}: {part!r} is not a number; write for example {flag} {example}") from None
        return tuple(values)

    return parse


TOPOLOGY: dict[str, Any] = {
    "metavar": "NAME|FILE",
    "text": "Name of a shipped topology (see s2sim list topologies) or path of a TOML file.",
}
OVERRIDES: dict[str, Any] = {
    "metavar": "FIELD=VALUE",
    "text": "Override a field of the topology, for example nic.rate=100Gbps or node.gpus=8; repeatable.",
    "none": "as in the topology file",
    "flag": "--set",
}
SEED: dict[str, Any] = {"metavar": "N", "text": "Root of all randomness, a whole number from 0."}
REDUCER: dict[str, Any] = {
    "metavar": "NAME[:KEY=VALUE,...]",
    "text": "A reducer to compare with dense, for example topk:density=0.01,ef=true; repeatable (see s2sim list "
    "reducers). For run, all takes every one with its defaults.",
    "none": "many that cover the field",
    "flag": "--reducer",
}
LIBRARY: dict[str, Any] = {
    "metavar": "NAME[:KEY=VALUE,...]",
    "text": "Communication library that executes the collectives, or ideal, which executes everything as asked (see "
    "s2sim list libraries).",
    "none": "as the topology says",
}
GPU: dict[str, Any] = {
    "metavar": "NAME|FILE",
    "text": "GPU that encodes and decodes: a name (see s2sim list gpus), or the path of a TOML file with one.",
    "none": "as the topology says",
}
"""Options of several specs."""
