"""The flows in flight on a network, the table that the solver works on, and the choice of plain or compiled Python.

Small work runs as plain Python over lists. Once there has been enough of it in this process to be worth the second that
it takes to load numba, the same functions run compiled over arrays, where numba is installed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from s2sim.arrays import Array, Floats, Ints, Mask
from s2sim.network import max_min
from s2sim.network.base import COLUMN_TYPES, FlowTable, MemberQueues, as_arrays, as_lists
from s2sim.network.max_min import LOOKS, NEVER, TALLIES, deactivate_flow, mark_link
from s2sim.topology.graph import NO_ROUTES, Routes, concatenate_routes

# Entries of a tree that are still to be visited: more than it has levels.
_DEPTH = 128
# Initial values of a new crossing, of a new flow, and of a link.
_BY_CROSSING = {"link": 0, "weight": 0, "flow": 0, "after": -1, "before": -1, "held": 0, "limits": 0}
_BY_FLOW = {"first": 0, "last": 0, "limit": 0, "rate": 0, "was": -1, "left": 0, "since": 0, "entered": 0, "moved": 0}
_BY_LINK = {"level": np.inf, "head": -1, "load": 0, "wide": 0, "key": -1, "marked": 0, "dirty": 0}
# Initial room: flows, and crossings per flow.
_FLOWS, _CROSSINGS = 64, 8


class TransferBatch(NamedTuple):
    """Transfers that are sent together."""

    routes: Ints  # Numbers of their routes
    sizes_bytes: Floats
    owner: int
    tags: Ints  # Passed to the owner at delivery


class ActiveFlow(NamedTuple):
    """One transfer in flight: the number of its route, its owner and its tag."""

    route: int
    owner: int
    tag: int


class ActiveFlows:
    """Flows in flight by number, in order of arrival; ``capacity`` has the bytes per picosecond of every link."""

    def __init__(self, capacity: Floats) -> None:
        empty = make_flow_table(NO_ROUTES, np.zeros(0), capacity)
        self._table = as_lists(enlarge_table(empty, _FLOWS, _FLOWS * _CROSSINGS))
        self._functions = PLAIN_FUNCTIONS
        self.flows: dict[int, ActiveFlow] = {}
        self._numbers = self._crossings = 0  # ever used
        self._free: dict[int, list[int]] = {}  # numbers to reuse, by their number of crossings

    def enter(self, known: "RouteIndex", arriving: list[TransferBatch], now: int) -> None:
        """Let arriving transfers share links from now on, and give all flows their fair rates."""
        new = []
        for sent in arriving:
            columns = sent.routes.tolist(), sent.sizes_bytes.tolist(), sent.tags.tolist()
            for route, size_bytes, tag in zip(*columns, strict=True):
                new.append(self._add(known.path(route), size_bytes, ActiveFlow(route, sent.owner, tag)))
        table = self._table
        if self._functions is not PLAIN_FUNCTIONS:
            self._functions.add_flows(table, np.array(new, np.int64), now)
            return
        before = table.tally[LOOKS]
        self._functions.add_flows(table, new, now)
        SOLVER_EFFORT.visits += table.tally[LOOKS] - before
        if SOLVER_EFFORT.compiles():
            self._table, self._functions = as_arrays(table), compiled_functions()

    def _add(self, path: "FlowRoute", size_bytes: float, flow: ActiveFlow) -> int:
        free, length = self._free.get(len(path.links)), len(path.links)
        if free:
            number = free.pop()
        else:
            number, begin = self._numbers, self._crossings
            self._numbers, self._crossings = number + 1, begin + length
            if self._numbers > len(self._table.first) or self._crossings > len(self._table.link):
                enlarged = enlarge_table(self._table, 2 * self._numbers, 2 * self._crossings)
                self._table = as_lists(enlarged) if self._functions is PLAIN_FUNCTIONS else enlarged
            self._table.first[number], self._table.last[number] = begin, self._crossings
            self._table.flow[begin : self._crossings] = [number] * length
        self.flows[number] = flow
        table = self._table
        crossings = slice(table.first[number], table.last[number])
        table.link[crossings] = path.links
        table.weight[crossings] = path.weights
        table.limit[number] = path.limit
        table.left[number] = size_bytes
        return number

    def complete(self, now: int) -> list[ActiveFlow]:
        """Remove the flows that end by now and return them."""
        count = self._functions.remove_finished(self._table, now)
        return [self._release(int(number)) for number in self._table.stack[:count]]

    def remove(self, number: int) -> ActiveFlow:
        """Remove a flow before its end."""
        deactivate_flow(self._table, number)
        return self._release(number)

    def _release(self, number: int) -> ActiveFlow:
        crossings = int(self._table.last[number] - self._table.first[number])
        self._free.setdefault(crossings, []).append(number)
        return self.flows.pop(number)

    @property
    def next_ps(self) -> int | None:
        """When the next flows complete, those that tie together; None if nothing is in flight."""
        then = int(self._functions.next_ps(self._table))
        return None if then == NEVER else then

    def finish_ps(self, number: int) -> int:
        """Return the end of a flow if nothing changes."""
        finish = self._table.finish
        return int(finish[len(finish) // 2 + number])

    def left_bytes(self, number: int, now: int) -> float:
        """Return the bytes of a flow that are still to be sent."""
        table = self._table
        return float(max(table.left[number] - table.rate[number] * (now - table.since[number]), 0.0))

    def set_capacity(self, capacity: Floats) -> None:
        """Let links carry other rates, in bytes per picosecond, from the next `enter` on."""
        table = self._table
        for link in np.flatnonzero(np.array(table.capacity) != capacity).tolist():
            table.capacity[link] = float(capacity[link])
            mark_link(table, link)

    def loads(self) -> Floats:
        """Return the present load of every link, float64 bytes per picosecond of shape (links,)."""
        table = self._table
        carried = np.zeros(len(table.capacity))
        for number in self.flows:
            crossings = slice(table.first[number], table.last[number])
            np.add.at(carried, table.link[crossings], np.multiply(table.weight[crossings], table.rate[number]))
        return carried


class FlowRoute(NamedTuple):
    """The route of a flow."""

    links: list[int]
    weights: list[float]  # Share of the flow on each link
    limit: float  # Bytes per picosecond with nothing else in flight


class RouteIndex:
    """Routes by number, to which more are added; ``capacity`` in bytes per picosecond per link."""

    def __init__(self, capacity: Floats) -> None:
        self.routes = NO_ROUTES
        self._capacity, self._limits = capacity, np.zeros(0)
        self._paths: dict[int, FlowRoute] = {}

    def add(self, routes: Routes) -> Ints:
        """Return the numbers of more routes, int64 of shape (routes,)."""
        first = len(self._limits)
        self.routes = concatenate_routes([self.routes, routes])
        self._limits = np.concatenate([self._limits, routes.fastest(self._capacity)])
        return np.arange(first, len(self._limits))

    def path(self, number: int) -> FlowRoute:
        """Return one route as lists."""
        path = self._paths.get(number)
        if path is None:
            crossings = slice(self.routes.offsets[number], self.routes.offsets[number + 1])
            links, weights = self.routes.links[crossings].tolist(), self.routes.weights[crossings].tolist()
            path = self._paths[number] = FlowRoute(links, weights, float(self._limits[number]))
        return path

    def crossing(self, numbers: Ints, links: Ints) -> Mask:
        """Return a mask of the routes that cross any of some links, bool of the shape of ``numbers``."""
        marked = np.zeros(len(self._capacity), np.bool_)
        marked[links] = True
        return self.routes.take(numbers).crossing(marked)


def make_flow_table(routes: Routes, sizes_bytes: Floats, capacity: Floats, members: Ints | None = None) -> FlowTable:
    """Return a table of arrays with one flow per route, none of them in flight.

    ``sizes_bytes`` has the bytes of each flow, ``capacity`` the bytes per picosecond of every link, and ``members`` the
    number of transfers that each flow represents (default: one).
    """
    flows, crossings, links = len(sizes_bytes), len(routes.links), len(capacity)
    most = int(np.bincount(routes.links, minlength=1).max(initial=0))
    arrays: dict[str, Array] = {
        name: np.full(count, value, COLUMN_TYPES.get(name, np.int64))
        for count, initial in ((crossings, _BY_CROSSING), (flows, _BY_FLOW), (links, _BY_LINK))
        for name, value in initial.items()
    }
    arrays |= {
        "link": routes.links,
        "weight": routes.weights if members is None else routes.weights * np.repeat(members, np.diff(routes.offsets)),
        "flow": np.repeat(np.arange(flows), np.diff(routes.offsets)),
        "first": routes.offsets[:-1],
        "last": routes.offsets[1:],
        "limit": routes.fastest(capacity),
        "left": np.array(sizes_bytes, np.float64),
        "capacity": capacity,
        "limits": np.zeros(most),
        "stack": np.zeros(flows + _DEPTH, np.int64),
        "finish": _minimum_tree(np.full(flows, NEVER)),
        "tally": np.zeros(TALLIES, np.int64),
    }
    return FlowTable(**cast("Any", arrays))


def _minimum_tree(leaves: Ints) -> Ints:
    """Return the tree of smallest entries above the leaves; see `FlowTable.finish`."""
    half = 1 << max(len(leaves) - 1, 1).bit_length()
    tree = np.full(2 * half, NEVER)
    tree[half : half + len(leaves)] = leaves
    while half > 1:
        half //= 2
        tree[half : 2 * half] = tree[2 * half : 4 * half].reshape(-1, 2).min(axis=1)
    return tree


def enlarge_table(table: FlowTable, flows: int, crossings: int) -> FlowTable:
    """Return a table of arrays with room for more flows and crossings."""
    arrays = as_arrays(table)._asdict()
    for name, value in _BY_CROSSING.items():
        arrays[name] = _padded(arrays[name], crossings, value)
    for name, value in _BY_FLOW.items():
        arrays[name] = _padded(arrays[name], flows, value)
    arrays["stack"] = np.zeros(flows + _DEPTH, np.int64)
    finish = arrays["finish"]
    arrays["finish"] = _minimum_tree(_padded(finish[len(finish) // 2 :], flows, NEVER)[:flows])
    return FlowTable(**arrays)


def _padded(column: Array, length: int, value: float) -> Array:
    return np.concatenate([column, np.full(max(length - len(column), 0), value, column.dtype)])


# Visits of flows, about three seconds of plain Python: less than compiling, which happens once, and more than loading
# compiled functions.
_WORTH_COMPILING = 1_500_000
# Least visits that a flow causes if it shares links with many; fewer if all have one size, so that many end at once.
_VISITS_PER_FLOW, _VISITS_PER_EQUAL_FLOW = 400, 100


class SolverFunctions(NamedTuple):
    """The entry points of `s2sim.network.max_min`, plain or compiled."""

    add_flows: Callable[[FlowTable, Any, int], None]
    remove_finished: Callable[[FlowTable, int], int]
    next_ps: Callable[[FlowTable], int]
    deliver: Callable[[FlowTable, MemberQueues, Any, Any, Any, int], int]


PLAIN_FUNCTIONS = SolverFunctions(
    max_min.add_flows, max_min.remove_finished, max_min.next_ps, max_min.run_to_completion
)


@cache
def compiled_functions() -> SolverFunctions:
    """Return the functions compiled by numba."""
    from numba import njit
    from numba.extending import register_jitable

    for function in max_min.INNER_FUNCTIONS:
        register_jitable(function)
    try:
        functions = [njit(cache=True, nogil=True)(function) for function in PLAIN_FUNCTIONS]
        forget_moved_types(Path(functions[0].stats.cache_path or ""))
    except RuntimeError:  # no directory to cache compiled functions in
        functions = [njit(nogil=True)(function) for function in PLAIN_FUNCTIONS]
    return SolverFunctions(*cast("Any", functions))


def forget_moved_types(folder: Path) -> None:
    """Remove what an older version compiled for types that are in other files now: numba fails to read it."""
    for index in folder.glob(f"{Path(max_min.__file__).stem}.*.nbi"):
        held = index.read_bytes()
        types = (each for each in (FlowTable, MemberQueues) if each.__name__.encode() in held)
        if any(each.__module__.encode() not in held for each in types):
            index.unlink(missing_ok=True)


@dataclass(slots=True)
class SolverEffort:
    """The work done as plain Python in this process, which determines when compiling pays."""

    visits: int = 0  # Of flows

    def compiles(self, flows: int = 0, *, alike: bool = False) -> bool:
        """Return whether numba is installed and pays, with ``flows`` more to come, of one size if ``alike``."""
        to_come = flows * (_VISITS_PER_EQUAL_FLOW if alike else _VISITS_PER_FLOW)
        return self.visits + to_come > _WORTH_COMPILING and has_numba()


@cache
def has_numba() -> bool:
    """Return whether numba is installed, without loading it."""
    return find_spec("numba") is not None


SOLVER_EFFORT = SolverEffort()
