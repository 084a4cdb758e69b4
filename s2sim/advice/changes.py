"""Changes of a cluster or a training job, with their prices, from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from s2sim.errors import OptionError, S2SimError, describe_problems
from s2sim.experiment.spec import RunSpec
from s2sim.files import read_toml
from s2sim.sweeps.study import canonical_field, flat_fields, make_spec
from s2sim.topology.shape import parse_money

REDUCER = "reducers"
_PRICE = "price"
_FORM = 'write for example price = "20000 USD", "500 USD/node" or "90 USD/GPU"'


@dataclass(frozen=True, slots=True)
class Option:
    """One way to make a change: fields with their new values, and the price, which is paid once."""

    fields: dict[str, Any]
    price: float = 0.0

    @property
    def text(self) -> str:
        """The fields with their values.

        >>> Option({"nic.rate": "400Gbps", "batch": 64}).text
        'nic.rate=400Gbps, batch=64'
        """
        named = {("reducer" if name == REDUCER else name): value for name, value in self.fields.items()}
        return ", ".join(f"{name}={value}" for name, value in named.items()) or "as it is"


AS_IT_IS = Option({})


@dataclass(frozen=True, slots=True)
class Change:
    """Something that can be changed; its first option is to leave it as it is, and the others are ordered by price."""

    name: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: str
    options: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _File:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    change: list[_Table]


@dataclass(frozen=True, slots=True)
class Changes:
    """All that can be changed, independently of each other."""

    changes: tuple[Change, ...]
    currency: str | None  # Three letters; None where nothing costs anything

    @classmethod
    def load(cls, source: Path | str | Mapping[str, Any], nodes: int, workers: int) -> Changes:
        """Return the changes of a TOML file, or of the same as a dictionary; `S2SimError` for anything else.

        ``nodes`` and ``workers`` are those of the cluster as it is, for prices of one node or GPU.
        """
        from pydantic import TypeAdapter, ValidationError

        value = dict(source) if isinstance(source, Mapping) else read_toml(Path(source), S2SimError)
        origin = "the changes" if isinstance(source, Mapping) else str(source)
        try:
            tables = TypeAdapter(_File).validate_python(value).change
        except ValidationError as error:
            raise S2SimError(f"{origin} has no changes: {describe_problems(error.errors(), 'changes')}") from None
        found: list[Change] = []
        currencies: set[str] = set()
        taken: set[str] = set()
        for table in tables:
            options = []
            for given in table.options:
                price, currency = _price(given.get(_PRICE), nodes, workers, f"{origin}: {table.name}")
                currencies |= {currency} if currency else set()
                fields = flat_fields({name: item for name, item in given.items() if name != _PRICE})
                if not fields:
                    raise OptionError(f"{origin}: {table.name}: an option changes nothing: {given}")
                options.append(Option({canonical_field("run", name): item for name, item in fields.items()}, price))
            names = {name for option in options for name in option.fields}
            if again := names & taken:
                raise OptionError(f"{origin}: two changes have {min(again)}: make them options of one")
            taken |= names
            found.append(Change(table.name, (AS_IT_IS, *sorted(options, key=lambda option: option.price))))
        if len(currencies) > 1:
            several = " and ".join(sorted(currencies))
            raise OptionError(f"{origin}: prices in {several} are not converted: give one currency")
        return cls(tuple(found), next(iter(currencies), None))


def _price(value: Any, nodes: int, workers: int, origin: str) -> tuple[float, str | None]:
    """Return a price for the whole cluster, and its currency; nothing where none is given."""
    if value is None:
        return 0.0, None
    text, _, each = str(value).strip().partition("/")
    money, count = parse_money(text), {"": 1, "node": nodes, "GPU": workers}.get(each)
    if money is None or count is None:
        raise OptionError(f"{origin}: {value!r} is no price: {_FORM}")
    return money[0] * count, money[1]


def changed_spec(base: RunSpec, fields: Mapping[str, Any]) -> RunSpec:
    """Return a spec with other values of some fields; those of the topology, such as ``nic.rate``, replace its own."""
    own = {name: value for name, value in base.to_json().items() if name not in fields and value is not None}
    dotted = {name for name in fields if "." in name}
    own["overrides"] = [each for each in base.overrides if each.partition("=")[0].strip() not in dotted]
    made = make_spec("run", {**own, **fields})
    assert isinstance(made, RunSpec)
    return made
