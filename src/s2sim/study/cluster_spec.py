"""What all specs say of the cluster, and how specs are checked, written and read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_type_hints

from s2sim.errors import OptionError, S2SimError, problems_of
from s2sim.study.json_form import JsonForm
from s2sim.study.spec_options import OVERRIDES, SEED, TOPOLOGY, described, option
from s2sim.text_files import read_text

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ClusterSpec(JsonForm):
    """A cluster as people write it, and what goes wrong on it."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    what: ClassVar[str] = ""
    """Names the kind of spec in messages."""

    topology: str = field(metadata=described(**TOPOLOGY))
    _: KW_ONLY
    overrides: tuple[str, ...] = option((), **OVERRIDES)
    placement: str = option(
        "linear",
        "HOW",
        "Ranks to GPUs: linear, round-robin, random, or the path of a file with a line 'node gpu' for each rank.",
    )
    seed: int = option(0, **SEED)
    faults: tuple[str, ...] = option(
        (),
        "NAME:KEY=VALUE,...",
        "Let something go wrong, for example slow-link:link=node1.nic0.out,factor=0.5 (see s2sim list faults); "
        "repeatable.",
        flag="--fault",
        none="nothing",
    )

    def __post_init__(self) -> None:
        """Refuse what a caller in Python may get wrong; files are checked field by field before."""
        check_tuples(self, "overrides", "faults")
        check_whole(self.seed)
        fields = [override.partition("=")[0].strip() for override in self.overrides]
        if len(set(fields)) < len(fields):
            raise OptionError(f"a field is set twice in {', '.join(self.overrides)}: --set it once")
        if self.seed < 0:
            raise OptionError(f"--seed {self.seed} must not be negative")

    @classmethod
    def of(cls, topology: Any, **options: Any) -> Self:
        """Return the spec of what a caller in Python gives, who may give lists and arrays for tuples, and paths.

        `OptionError` names an option that there is not, that is missing or of the wrong type.
        """
        from pydantic import TypeAdapter, ValidationError

        given = {name: _plain(value) for name, value in {"topology": topology, **options}.items()}
        kinds = get_type_hints(cls)
        for name, value in given.items():
            try:
                TypeAdapter(kinds.get(name, Any)).validate_python(value, strict=True)
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
        """Return the spec of a JSON value: a spec, or a saved result, whose ``spec`` is taken.

        `S2SimError` names every field that is missing, unknown or of the wrong type.
        """
        from pydantic import TypeAdapter, ValidationError

        if isinstance(value, dict) and isinstance(value.get("spec"), dict):
            value = value["spec"]
        try:
            return TypeAdapter(cls).validate_python(value)
        except ValidationError as error:
            raise S2SimError(f"{origin} is not a {cls.what} spec: {problems_of(error.errors(), 'spec')}") from None

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


def check_whole(*numbers: object) -> None:
    """Refuse what is no whole number."""
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise OptionError(f"{number!r} is not a whole number, as numbers of workers, seeds and steps are")
