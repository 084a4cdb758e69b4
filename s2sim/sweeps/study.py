"""Studies: the questions of a sweep, from a TOML file, and the cells that they make."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from s2sim.errors import OptionError, S2SimError, suggest_nearest
from s2sim.experiment.cluster_spec import ClusterSpec, options_of
from s2sim.experiment.spec import RunSpec
from s2sim.files import StrictFields, read_toml, validated
from s2sim.tables import holds
from s2sim.traffic.spec import CollectiveSpec
from s2sim.units import parse_rate_Bps, parse_size_bytes, parse_time_ps

SPECS: dict[str, type[ClusterSpec]] = {"run": RunSpec, "collective": CollectiveSpec}
"""What a study may compute in each cell."""

MOST_CELLS = 1_000_000
_PARALLEL = ("tp", "pp", "dp")
_QUANTITY = re.compile(r"\s*([0-9.eE+-]+?)\s*([A-Za-z/]+)\s*")
_SPREADS = ("geometric", "linear", "range")


@dataclass(frozen=True, slots=True)
class Sample(StrictFields):
    """A sample of the axes' product, by scipy.stats.qmc."""

    cells: int
    method: Literal["latin-hypercube", "sobol"] = "latin-hypercube"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Study(StrictFields):
    """The questions of a sweep.

    Fields have the names that `s2sim.run` and `s2sim.run_collective` give them, or those of options (``reducer``,
    ``set``); a name with a dot is a field of the topology, as ``nic.rate``; ``tp``, ``pp`` and ``dp`` make ``groups``.
    """

    what: Literal["run", "collective"] = "run"
    base: dict[str, Any] = field(default_factory=dict)  # Fields that are the same in all cells
    axes: dict[str, Any] = field(default_factory=dict)  # By field a list, or {geometric = [first, last, number]}
    zip: dict[str, list[Any]] = field(default_factory=dict)  # Fields that go together, in lists of equal length
    where: dict[str, str] = field(default_factory=dict)  # Conditions that cells have to meet
    sample: Sample | None = None  # Instead of all combinations

    @classmethod
    def load(cls, source: Path | str | Mapping[str, Any] | Study) -> Study:
        """Return the study of a TOML file, or of the same as a dictionary; `S2SimError` for anything else."""
        if isinstance(source, Study):
            return source
        value = dict(source) if isinstance(source, Mapping) else read_toml(Path(source), S2SimError)
        origin = "the study" if isinstance(source, Mapping) else source
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise S2SimError(f"{origin} is not a study: {error}") from None
        return validated(cls, value, f"{origin} is not a study")

    def cells(self) -> list[Cell]:
        """Return the cells: every combination of the axes, or a sample, that meets the conditions."""
        base = self.base_fields()
        names = self.axis_names()
        fields_of_axes = zip(names, flat_fields(self.axes).values(), strict=False)
        axes = [_Axis.of(name, value, _field_type(self.what, name)[2]) for name, value in fields_of_axes]
        lengths = {name: len(values) for name, values in self.zip.items()}
        if len(set(lengths.values())) > 1:
            raise OptionError(f"study: lists of [zip] have different lengths: {lengths}")
        if self.zip:
            axes.append(_Axis.listed(tuple(zip(*self.zip.values(), strict=True))))
        for name in names:
            if names.count(name) > 1 or name in base:
                raise OptionError(f"study: {name} is given twice: put it in one of [base], [axes] and [zip]")
        found: list[Cell] = []
        for values in self._combinations(axes):
            point = dict(zip(names, values, strict=True))
            if all(holds(condition, base | point) for condition in self.where.values()):
                try:
                    found.append(Cell(len(found), point, make_spec(self.what, base | point)))
                except S2SimError as error:
                    found.append(Cell(len(found), point, None, str(error)))
        if not found:
            raise OptionError("study: no cell is left: look at [axes] and at [where]")
        return found

    def base_fields(self) -> dict[str, Any]:
        """Return the fields that are the same in all cells, by the names that specs and topologies have for them."""
        return {canonical_field(self.what, name): value for name, value in flat_fields(self.base).items()}

    def axis_names(self) -> tuple[str, ...]:
        """Return the names of the fields that vary."""
        return tuple(canonical_field(self.what, name) for name in (*flat_fields(self.axes), *self.zip))

    def _combinations(self, axes: Sequence[_Axis]) -> Iterator[tuple[Any, ...]]:
        count = prod(len(axis.values) for axis in axes) if self.sample is None else self.sample.cells
        if count > MOST_CELLS:
            raise OptionError(f"study: {count:,} cells, above {MOST_CELLS:,}: take fewer, or draw some with [sample]")
        if self.sample is None:
            for values in product(*(axis.values for axis in axes)):
                yield tuple(value for several in values for value in several)
            return
        from scipy.stats import qmc

        if not axes or self.sample.cells < 1 or self.sample.seed < 0:
            raise OptionError("study: [sample] draws at least 1 cell of at least one of [axes], with a seed from 0")
        sampler = {"latin-hypercube": qmc.LatinHypercube, "sobol": qmc.Sobol}[self.sample.method]
        # Sobol's sequence is drawn in powers of 2, of which the first ones are those of fewer.
        drawn = 1 << (self.sample.cells - 1).bit_length() if self.sample.method == "sobol" else self.sample.cells
        for point in sampler(len(axes), seed=self.sample.seed).random(drawn)[: self.sample.cells]:
            yield tuple(value for axis, share in zip(axes, point, strict=True) for value in axis.at(float(share)))


@dataclass(frozen=True, slots=True)
class Cell:
    """One question of a study: a spec, or the reason why there is none."""

    number: int  # From 0
    axes: dict[str, Any]  # The value of each axis
    spec: ClusterSpec | None
    problem: str | None = None


def make_spec(what: str, values: Mapping[str, Any]) -> ClusterSpec:
    """Return the spec of fields by their names in a study; `S2SimError` if one is unknown or does not fit."""
    spec = SPECS[what]
    given: dict[str, Any] = {}
    overrides: list[str] = []
    groups = {name: values[name] for name in _PARALLEL if name in values}
    for name, value in values.items():
        if "." in name:
            overrides.append(f"{name}={value}")
        elif name not in _PARALLEL:
            given[name] = _field_value(what, name, value)
    if overrides:
        given["overrides"] = (*given.get("overrides", ()), *overrides)
    if "dp" in groups or any(value != 1 for value in groups.values()):
        given["groups"] = ",".join(f"{name}={value}" for name, value in {"dp": "rest", **groups}.items())
    for needed in ("topology", *(["workers"] if what == "run" else [])):
        if needed not in given:
            raise OptionError(f"{what} needs {needed}: give it in [base] or [axes]")
    made = spec.of(given.pop("topology"), **given)
    if isinstance(made, RunSpec) and len(made.workers) > 1:
        raise OptionError(f"workers = {list(made.workers)}: a cell has one number of workers; several are an axis")
    return made


def _field_value(what: str, name: str, value: Any) -> Any:
    """Return the value of a field: texts as on the command line, one value where several may be."""
    parse, is_tuple, _ = _field_type(what, name)
    read = parse(value) if parse is not None and isinstance(value, str) else value
    if is_tuple:
        return tuple(read) if isinstance(read, list | tuple) else (read,)
    return read


@lru_cache(maxsize=128)
def _field_type(what: str, name: str) -> tuple[Callable[[str], Any] | None, bool, bool | None]:
    """Return what reads a field's text, and whether it takes several and whole numbers; None for none of the spec."""
    option, kind = options_of(SPECS[what]).get(name), get_type_hints(SPECS[what]).get(name)
    parse = option[1].parse if option is not None else parse_size_bytes if name == "size_bytes" else None
    whole = True if name in _PARALLEL else None if kind is None else int in (kind, *get_args(kind))
    return parse, get_origin(kind) is tuple, whole


@lru_cache(maxsize=1024)
def canonical_field(what: str, name: str) -> str:
    """Return the name of the field that a study gives: that of the spec, of its option, or of the topology."""
    if "." in name or name in _PARALLEL:
        return name
    spec = SPECS[what]
    known = {each.name: each.name for each in fields(spec)} | {"size": "size_bytes"}
    known |= {(each.flag.lstrip("-") or field_name): field_name for field_name, (_, each) in options_of(spec).items()}
    found = known.get(name) or known.get(name.replace("-", "_"))
    if found is None or (found == "size_bytes" and what == "run"):
        raise OptionError(f"study: {what} has no field {name!r}{suggest_nearest(name, known)}")
    if found == "instead":
        raise OptionError("study: instead is an axis of its own: put its fields, such as nic.count, in [axes]")
    return found


def flat_fields(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a table with the names of inner ones joined by dots, as TOML has ``nic.rate = ...`` without quotes."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and not value.keys() & {*_SPREADS}:
            found |= flat_fields(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


@dataclass(frozen=True, slots=True)
class _Axis:
    """One or several fields that vary together: their values, and those at a share of the axis from 0 to 1."""

    values: tuple[tuple[Any, ...], ...]
    at: Callable[[float], tuple[Any, ...]]

    @classmethod
    def listed(cls, values: tuple[tuple[Any, ...], ...]) -> _Axis:
        return cls(values, lambda share: values[int(share * len(values))])

    @classmethod
    def of(cls, name: str, value: Any, whole: bool | None) -> _Axis:
        if isinstance(value, dict):
            return cls._spread(name, value, whole)
        if not isinstance(value, list) or not value:
            instead = "{ geometric = [first, last, number] }"
            raise OptionError(f"study: {name} = {value!r}: an axis is a list, or {instead}")
        return cls.listed(tuple((each,) for each in value))

    @classmethod
    def _spread(cls, name: str, value: dict[str, Any], whole: bool | None) -> _Axis:
        ((kind, ends),) = value.items() if len(value) == 1 else [("", None)]
        if kind not in _SPREADS or not isinstance(ends, list) or len(ends) != 3:  # ends and a number
            raise OptionError(f"study: {name} = {value}: write {{ {' | '.join(_SPREADS)} = [first, last, number] }}")
        scale = Scale.of(name, ends[0], ends[1])
        first, last = scale.number(ends[0]), scale.number(ends[1])
        if kind == "geometric" and min(first, last) <= 0:
            raise OptionError(f"study: {name}: geometric needs ends above 0")
        if kind == "range":
            step = scale.number(ends[2])
            if step == 0 or (last - first) / step < 0:
                raise OptionError(f"study: {name}: no value lies between {ends[0]} and {ends[1]} in steps of {ends[2]}")
            if (last - first) / step >= MOST_CELLS:
                raise OptionError(f"study: {name}: more than {MOST_CELLS:,} values, in steps of {ends[2]}")
            shares = [index * step / (last - first or 1) for index in range(int((last - first) / step + 1e-9) + 1)]
        else:
            if not isinstance(ends[2], int) or not 1 <= ends[2] <= MOST_CELLS:
                raise OptionError(f"study: {name}: {ends[2]!r} is no number of values")
            shares = [index / max(1, ends[2] - 1) for index in range(ends[2])]

        def number(share: float) -> float:
            return first * (last / first) ** share if kind == "geometric" else first + share * (last - first)

        if not scale.unit:
            # What is no field of the spec may be a number of any kind.
            as_given = scale.whole and all(float(f"{number(share):.12g}").is_integer() for share in shares)
            scale = replace(scale, whole=as_given if whole is None else whole)
        values = tuple((scale.value(number(share)),) for share in shares)
        if len(set(values)) < len(values):
            raise OptionError(f"study: {name} = {value}: some of the values are the same: take fewer")
        return cls.listed(values) if kind == "range" else cls(values, lambda share: (scale.value(number(share)),))


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers of an axis: plain ones, or with a unit."""

    unit: str
    size: float  # Of the unit; 1 without one
    parse: Callable[[object], float]
    whole: bool  # Whether values are whole: plain integers, or bytes

    @classmethod
    def of(cls, name: str, first: Any, last: Any) -> Scale:
        """Return the scale of two ends, in the unit of the first; `OptionError` for texts without one."""
        if all(isinstance(end, int | float) for end in (first, last)):
            return cls("", 1.0, float, all(isinstance(end, int) for end in (first, last)))  # type: ignore[arg-type]
        if (match := _QUANTITY.fullmatch(str(first))) is not None:
            for parse in (parse_rate_Bps, parse_size_bytes, parse_time_ps):
                with suppress(S2SimError):
                    parse(first), parse(last)
                    is_size = parse is parse_size_bytes
                    unit = "B" if is_size else match[2]
                    return cls(unit, 1.0 if is_size else float(parse(f"1{unit}")), parse, is_size)
        raise OptionError(f"{name}: {first!r} and {last!r} are neither numbers nor rates, sizes or times")

    def number(self, text: Any) -> float:
        """Return a value as a number, of bytes, bytes per second or picoseconds where it has a unit."""
        return float(self.parse(text))

    def value(self, number: float) -> Any:
        """Return a number as a value in the unit of the scale."""
        if not self.unit:
            return round(number) if self.whole else float(f"{number:.12g}")
        scaled = number / self.size
        digits = 12 if f"{scaled:.10g}" == f"{scaled:.12g}" else 6  # Those of thirds and of powers are of no interest
        return f"{round(number) if self.whole else f'{scaled:.{digits}g}'}{self.unit}"


def axis_text(value: Any) -> Any:
    """Return the value of an axis as a table has it.

    >>> axis_text(["union", "fp16"]), axis_text(8)
    ('union;fp16', 8)
    """
    return ";".join(map(str, value)) if isinstance(value, list | tuple) else value
