"""Questions asked one after the other: about the cells of a sweep's store, or about one cluster and job."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from s2sim.errors import OptionError, S2SimError, suggest_nearest
from s2sim.experiment.cluster_spec import command_of, overridden_field
from s2sim.experiment.run import resolve_named
from s2sim.experiment.spec import RunSpec
from s2sim.files import check_inside
from s2sim.options import join_option_string, split_option_string
from s2sim.reducers.registry import REDUCERS, make_reducer, resolved_options
from s2sim.simulation.bucketing.policy import DISCIPLINES
from s2sim.sweeps.compute import Job, cell_key
from s2sim.sweeps.store import FILE, SweepStore
from s2sim.sweeps.study import Cell, Scale, axis_text, make_spec
from s2sim.topology.fields import shipped_topologies
from s2sim.traffic.spec import CollectiveSpec

RATE, DENSITY, REDUCERS_ASKED = "nic.rate", "density", "reducers"
_AS_GIVEN = {RATE: "as in the topology", DENSITY: "as written", "batch": "as in the profile", "discipline": "default"}
_RATES = tuple(f"{rate}Gbps" for rate in (1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400, 800))
_WORKERS = (2, 4, 8, 16, 32, 64, 128)
_BATCHES = (1, *_WORKERS)
_DENSITIES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)")


@dataclass(frozen=True, slots=True)
class Control:
    """What may be asked of one field: a slider over numbers, a choice of texts, or a text of its own (no values)."""

    name: str  # The field, as a study names it
    values: tuple[Any, ...]  # In order; None where the field is left out
    chosen: str  # The text of the value that is asked first
    numbers: tuple[float | None, ...] | None = None  # Of each value, rates and sizes in bytes, times in ps
    unit: str = ""  # Of a slider's values, as in 10Gbps

    @classmethod
    def of(cls, name: str, values: Sequence[Any], chosen: Any = None) -> "Control":
        """Return a slider where all values are numbers, or texts that differ in one number; else a choice."""
        stated = [value for value in values if value is not None]
        numbers, unit = _numbers(name, stated)
        if numbers is None or len(stated) < 2:
            return cls(name, tuple(values), _text(name, values[0] if chosen is None else chosen))
        ordered = [value for _, value in sorted(zip(numbers, stated, strict=True), key=lambda item: item[0])]
        left_out = [None] if None in values else []
        first = chosen if chosen is not None or left_out else ordered[len(ordered) // 2]
        placed = (*([None] * len(left_out)), *sorted(numbers))
        return cls(name, (*left_out, *ordered), _text(name, first), placed, unit)

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as they stand in an address."""
        return tuple(_text(self.name, value) for value in self.values)

    def number(self, text: str) -> float | None:
        """Return the number of a slider at a text; None where it has none."""
        return dict(zip(self.texts, self.numbers or (), strict=False)).get(text)

    def value(self, text: str) -> Any:
        """Return the value of a text; `OptionError` if there is none."""
        if text in self.texts:
            return self.values[self.texts.index(text)]
        near = suggest_nearest(text, self.texts) or f": there are {', '.join(self.texts)}"
        raise OptionError(f"{self.name} = {text} is none of the values here{near}")


def _text(name: str, value: Any) -> str:
    return _AS_GIVEN.get(name, "as it is") if value is None else str(axis_text(value))


def _numbers(name: str, values: Sequence[Any]) -> tuple[list[float] | None, str]:
    """Return the numbers of values and their unit; None if they are not numbers."""
    with suppress(S2SimError, ValueError, IndexError):
        scale = Scale.of(name, values[0], values[-1])
        return [scale.number(value) for value in values], scale.unit
    split = [_NUMBER.split(value) if isinstance(value, str) else [""] for value in values]
    places = [place for place, parts in enumerate(zip(*split, strict=False)) if len(set(parts)) > 1]
    if len({len(parts) for parts in split}) == 1 and len(places) == 1 and places[0] % 2:
        return [float(parts[places[0]]) for parts in split], ""
    return None, ""


Points = list[tuple[float, list[dict[str, Any]]]]
"""Lines of the cells along a slider, by its numbers."""


class Explorer:
    """Answers questions, given as texts by control, from a store; tells which cells are to be computed for more."""

    def __init__(
        self, store: SweepStore, what: str, base: Mapping[str, Any], controls: Sequence[Control], title: str
    ) -> None:
        self.store, self.what, self.title = store, what, title
        self.controls = {control.name: control for control in controls}
        self._base = dict(base)
        self._planned: dict[str, str] = {}
        self._by_default: tuple[str, ...] = ()  # What is compared where no reducers are named
        self._named = [str(value) for value in base.values()]  # Files that the command named may be anywhere

    @classmethod
    def of_sweep(cls, folder: Path) -> "Explorer":
        """Return the explorer of the study that a folder was last used for."""
        store = SweepStore(folder / FILE, create=False)
        study, planned = store.planned()
        columns = zip(study.axis_names(), *(axes for _, axes in planned), strict=True)
        # Values that are lists themselves cannot be hashed.
        controls = [Control.of(name, [*{json.dumps(one): one for one in values}.values()]) for name, *values in columns]
        made = cls(store, study.what, study.base_fields(), controls, f"{folder}: {len(planned)} cells")
        made._planned = {json.dumps(axes): key for key, axes in planned}
        return made

    @classmethod
    def of_spec(cls, spec: RunSpec, folder: Path) -> "Explorer":
        """Return the explorer of a cluster and a job, with its store in a folder."""
        given, workers, by_default = spec.topologies, spec.workers, not spec.reducers
        # What cannot be is told before anything is asked.
        _, spec = resolve_named(replace(spec, topology=given[0], workers=workers[:1]))
        kept = [each for each in spec.overrides if overridden_field(each) != RATE]
        rate = next((each.partition("=")[2].strip() for each in spec.overrides if each not in kept), None)
        controls = [
            Control.of("topology", [*dict.fromkeys([*given, *shipped_topologies()])], given[0]),
            Control.of(RATE, [None, *dict.fromkeys([*_RATES, rate or _RATES[0]])], rate),
            Control.of("workers", sorted({*_WORKERS, *workers} if len(workers) == 1 else workers), workers[0]),
        ]
        if any(with_density(name, 0.5) != with_density(name, 0.25) for name in spec.reducers):
            controls.append(Control.of(DENSITY, [None, *_DENSITIES]))
        if spec.profile is not None:
            controls.append(Control.of("batch", [None, *{spec.batch or 32, *_BATCHES}], spec.batch))
            disciplines = [*dict.fromkeys([None, spec.discipline, *DISCIPLINES.names()])]
            controls.append(Control.of("discipline", disciplines, spec.discipline))
        controls.append(Control(REDUCERS_ASKED, (), " ".join(spec.reducers)))
        names = {"topology", "workers", "batch", "discipline", REDUCERS_ASKED, "overrides"}
        base = {
            each.name: value
            for each in fields(spec)
            if each.name not in names and (value := getattr(spec, each.name)) != each.default
        }
        title = f"{spec.profile or spec.model or spec.trace} on a cluster"
        made = cls(SweepStore(folder / FILE), "run", {**base, "overrides": tuple(kept)}, controls, title)
        made._named += [*given, *spec.reducers, *spec.overrides]
        made._by_default = spec.reducers if by_default else ()
        return made

    def cell(self, question: Mapping[str, str]) -> Cell:
        """Return the cell that a question is about, or with the reason why there is none."""
        point: dict[str, Any] = {}
        try:
            for name in question.keys() - self.controls.keys():
                raise OptionError(f"{name} cannot be asked here{suggest_nearest(name, self.controls)}")
            for name, control in self.controls.items():
                text = question.get(name, control.chosen)
                if control.values:
                    point[name] = control.value(text)
                    continue
                point[name] = _reducers(text)
                check_inside(point[name], self._named)
            stated = {name: value for name, value in point.items() if value is not None}
            if (density := stated.pop(DENSITY, None)) is not None:
                named = (with_density(name, density) for name in stated[REDUCERS_ASKED])
                stated[REDUCERS_ASKED] = tuple(dict.fromkeys(named))
            return Cell(0, point, make_spec(self.what, self._base | stated))
        except S2SimError as error:
            return Cell(0, point, None, str(error))

    def key(self, cell: Cell) -> str:
        """Return the key under which the store has a cell."""
        return self._planned.get(json.dumps([*cell.axes.values()])) or cell_key(cell)

    def job(self, cell: Cell) -> Job:
        """Return what computes a cell that has a spec."""
        assert cell.spec is not None
        return Job(((self.key(cell), cell.spec),))

    def command(self, cell: Cell) -> str:
        """Return the command line that answers the question of a cell with a spec."""
        spec = cell.spec
        assert spec is not None
        if isinstance(spec, RunSpec) and spec.reducers == self._by_default:
            spec = replace(spec, reducers=())
        return command_of(spec) + (f" --size {spec.size_bytes}B" if isinstance(spec, CollectiveSpec) else "")

    def over(self, name: str | None) -> Control | None:
        """Return a slider by name, by default that of the rate, or the first that varies; None without sliders."""
        sliders = {each.name: each for each in self.controls.values() if each.numbers is not None}
        return sliders.get(name or RATE) or next(iter(sliders.values()), None)

    def _along(self, question: Mapping[str, str], over: Control) -> Iterator[tuple[float, Cell, list[dict[str, Any]]]]:
        for number, text in zip(over.numbers or (), over.texts, strict=True):
            cell = self.cell({**question, over.name: text})
            if number is not None and cell.spec is not None:
                yield number, cell, self.store.lines(self.key(cell))

    def curve(self, question: Mapping[str, str], over: Control) -> tuple[Points, int]:
        """Return what is known along a slider, all else as in the question, and how many cells are not known."""
        found = [(number, lines) for number, _, lines in self._along(question, over)]
        known = [(number, lines) for number, lines in found if lines]
        return known, len(found) - len(known)

    def missing(self, cell: Cell, question: Mapping[str, str], over: Control | None) -> list[Cell]:
        """Return the cell of a question if it is not known, else those of the curve along a slider that are not."""
        if cell.spec is None or self.store.answer(self.key(cell)) is None:
            return [] if cell.spec is None else [cell]
        return [] if over is None else [each for _, each, lines in self._along(question, over) if not lines]


@lru_cache(maxsize=32)
def _reducers(text: str) -> tuple[str, ...]:
    for each in text.split():
        make_reducer(each)
    return tuple(text.split())


def with_density(text: str, density: float) -> str:
    """Return the option string of a reducer with a density, unchanged if it takes none.

    >>> with_density("topk:density=0.01,ef=true", 0.1), with_density("union", 0.1)
    ('topk:density=0.1,ef=true', 'union')
    """
    name, options = split_option_string(text)
    taken = {each.name for each in fields(REDUCERS.get(resolved_options(text)[0]))}
    return join_option_string(name, options | {"density": f"{density:g}"}) if "density" in taken else text
