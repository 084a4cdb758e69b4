"""Changes of a cluster or a job with their prices, and the cheapest that meet a target, by branch and bound.

Along monotone axes, the dearer levels of which are never slower, a box has no solution if its dearest corner misses the
target, and none cheaper than its cheapest corner if that meets it. Axes count as monotone until measured times
contradict that; then the search is repeated without them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise, product
from math import inf
from pathlib import Path
from typing import Any

from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.choice import WORTHWHILE
from s2sim.experiment.cluster_spec import merged_overrides
from s2sim.experiment.spec import RunSpec
from s2sim.files import StrictFields, read_toml, validated
from s2sim.sweeps.study import canonical_field, flat_fields, make_spec
from s2sim.topology.fields import plain_field
from s2sim.topology.shape import parse_money

REDUCER, _SETS, _PRICE = "reducers", "overrides", "price"
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
class _Table(StrictFields):
    name: str
    options: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _File(StrictFields):
    change: list[_Table]


@dataclass(frozen=True, slots=True)
class Changes:
    """All that can be changed, independently of each other."""

    changes: tuple[Change, ...]
    currency: str | None  # Three letters; None where nothing costs anything

    @classmethod
    def load(cls, source: Path | str | Mapping[str, Any], nodes: int, workers: int) -> "Changes":
        """Return the changes of a TOML file or dictionary (else `S2SimError`), priced by ``nodes`` and ``workers``."""
        value = dict(source) if isinstance(source, Mapping) else read_toml(Path(source), S2SimError)
        origin = "the changes" if isinstance(source, Mapping) else str(source)
        tables = validated(_File, value, f"{origin} has no changes").change
        found, currencies, taken = list[Change](), set[str](), set[str]()
        for table in tables:
            options = []
            for given in table.options:
                price, currency = _price(given.get(_PRICE), nodes, workers, f"{origin}: {table.name}")
                currencies |= {currency} if currency else set()
                fields = flat_fields({name: item for name, item in given.items() if name != _PRICE})
                if not fields:
                    raise OptionError(f"{origin}: {table.name}: an option changes nothing: {given}")
                named = {canonical_field("run", name): item for name, item in fields.items()}
                options.append(Option(_with_sets_as_fields(named), price))
                for name in filter(lambda name: "." in name, options[-1].fields):
                    plain_field(name, origin)
            names = {name for option in options for name in option.fields}
            if again := names & taken:
                raise OptionError(f"{origin}: two changes have {min(again)}: make them options of one")
            taken |= names
            found.append(Change(table.name, (AS_IT_IS, *sorted(options, key=lambda option: option.price))))
        if len(currencies) > 1:
            several = " and ".join(sorted(currencies))
            raise OptionError(f"{origin}: prices in {several} are not converted: give one currency")
        return cls(tuple(found), next(iter(currencies), None))


def _with_sets_as_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with what ``set`` gives to one with a dot as that one; what else it gives stays."""
    given = fields.pop(_SETS, [])
    left = []
    for each in map(str, given if isinstance(given, list | tuple) else [given]):
        name, _, value = (part.strip() for part in each.partition("="))
        if "." in name and name not in fields:
            fields[name] = value
        else:
            left.append(each)
    return fields | ({_SETS: left} if left else {})


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
    own = {name: value for name, value in base.to_json().items() if value is not None}
    added = [*fields.get(_SETS, ()), *(f"{name}={value}" for name, value in fields.items() if "." in name)]
    plain = {name: value for name, value in fields.items() if "." not in name}
    made = make_spec("run", own | plain | {_SETS: merged_overrides(base.overrides, added)})
    assert isinstance(made, RunSpec)
    return made


Point = tuple[int, ...]
"""The level of each axis."""

# Relative: times are rounded up to whole picoseconds, round by round.
_EQUAL = 1e-6


class CheapestSearch:
    """The search over axes, of which level 0 is as things are.

    ``prices`` are those of each level of each axis, which add up; ``times`` returns the time of a combination, infinity
    where it cannot be used, and is called once for each; ``target`` is the longest time that is allowed.
    """

    def __init__(self, prices: Sequence[Sequence[float]], times: Callable[[Point], float], target: float) -> None:
        self.prices = [list(axis) for axis in prices]
        self.target = target
        self.tried: dict[Point, float] = {}
        self._times = times
        self.monotone: set[int] = set()

    def time(self, point: Point) -> float:
        """Return the time of a combination."""
        found = self.tried[point] = self.tried[point] if point in self.tried else self._times(point)
        return found

    def price(self, point: Point) -> float:
        """Return the price of a combination."""
        return sum(axis[level] for axis, level in zip(self.prices, point, strict=True))

    def run(self) -> Point | None:
        """Return the cheapest combination that meets the target; None if none, and see `as_cheap`."""
        start = (0,) * len(self.prices)
        self.monotone = {axis for axis in range(len(self.prices)) if self._falls_along(axis, start)}
        best = self._search()
        while wrong := self._contradicted():
            self.monotone -= wrong
            best = self._search()
        return best

    def as_cheap(self, point: Point) -> list[Point]:
        """Return what costs as much as a combination and meets the target, tried or along the last axis."""
        along = ((*point[:-1], level) for level in range(len(self.prices[-1])))
        every = dict.fromkeys([*self.tried, *along])
        return [each for each in every if self.price(each) == self.price(point) and self.time(each) <= self.target]

    def _falls_along(self, axis: int, start: Point) -> bool:
        """Return whether each level costs more than the one before and is no slower, with all else as it is."""
        if len(self.prices[axis]) == 1 or any(high <= low for low, high in pairwise(self.prices[axis])):
            return False
        times = [self.time((*start[:axis], level, *start[axis + 1 :])) for level in range(len(self.prices[axis]))]
        return times[0] < inf and all(late <= early * (1 + _EQUAL) for early, late in pairwise(times))

    def _contradicted(self) -> set[int]:
        """Return the axes along which one combination that was tried is slower than a cheaper one."""
        wrong: set[int] = set()
        points = list(self.tried)
        for low, high in product(points, points):
            differ = {axis for axis, (one, other) in enumerate(zip(low, high, strict=True)) if one != other}
            above = all(high[axis] > low[axis] for axis in differ)
            if differ and above and differ <= self.monotone and self.tried[high] > self.tried[low] * (1 + _EQUAL):
                wrong |= differ
        return wrong

    def _search(self) -> Point | None:
        levels = [len(axis) for axis in self.prices]
        fixed = [range(1) if axis in self.monotone else range(count) for axis, count in enumerate(levels)]
        boxes: list[tuple[float, Point, Point]] = []
        for low in product(*fixed):
            high = tuple(
                count - 1 if axis in self.monotone else level
                for axis, (level, count) in enumerate(zip(low, levels, strict=True))
            )
            heappush(boxes, (self.price(low), low, high))
        best: tuple[float, float, Point] | None = None
        while boxes:
            price, low, high = heappop(boxes)
            if best is not None and price > best[0]:
                break
            # A refused combination says nothing of those below it.
            if self.time(high) > self.target and (low == high or self.time(high) < inf):
                continue
            if self.time(low) <= self.target:
                best = min(filter(None, [best, (price, self.time(low), low)]))
                continue
            axis = max(range(len(levels)), key=lambda axis: high[axis] - low[axis])
            middle = (low[axis] + high[axis]) // 2
            heappush(boxes, (price, low, (*high[:axis], middle, *high[axis + 1 :])))
            above = (*low[:axis], middle + 1, *low[axis + 1 :])
            heappush(boxes, (self.price(above), above, high))
        return None if best is None else best[2]


def last_that_holds(holds: Callable[[int], bool], most: int) -> int | None:
    """Return a number up to ``most`` where ``holds`` ends, by doubling and bisection; None if not for 1."""
    if not holds(1):
        return None
    low = 1
    while low < most and holds(min(2 * low, most)):
        low = min(2 * low, most)
    high = min(2 * low, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def pareto(points: Sequence[tuple[float, ...]]) -> list[int]:
    """Return the places of points that no other one equals or betters in everything, in increasing order of the first.

    That is a time: times that no model can tell apart are equal, and of what is equal in everything the first stays.

    >>> pareto([(1.0, 3.0), (2.0, 2.0), (2.0, 3.0), (inf, 0.0)])
    [0, 1]
    >>> pareto([(1.0, 3.0), (1.005, 2.0), (1.001, 2.0)])
    [1]
    """
    kept: list[int] = []
    for rest in sorted({point[1:] for point in points if inf not in point}):
        less = [points[place][0] for place in kept if all(a <= b for a, b in zip(points[place][1:], rest, strict=True))]
        ends_s = min(less, default=inf) / WORTHWHILE
        able = {place: point[0] for place, point in enumerate(points) if point[1:] == rest and point[0] < ends_s}
        kept += [place for place, time_s in able.items() if time_s <= min(able.values()) * WORTHWHILE][:1]
    return sorted(kept, key=points.__getitem__)
