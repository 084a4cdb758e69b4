"""Tables of flows: made for routes, made larger, and turned from lists into arrays.

The functions of `s2sim.network.max_min` as they stand, or compiled by numba.

Small work runs as plain Python over lists. Once there has been enough of it in this process to be worth the second that
it takes to load numba, the same functions run compiled over arrays, where numba is installed.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from s2sim.network import max_min as flights
from s2sim.network.max_min import NEVER, TALLIES
from s2sim.topology.graph import Routes
from s2sim.units import PS_PER_S

Reals = MutableSequence[float]
Wholes = MutableSequence[int]
Flags = MutableSequence[bool]


# Flows looked at; as plain Python that takes about three seconds: less than compiling, which happens once, and more
# than loading what has been compiled.
_WORTH_COMPILING = 1_500_000
# Looks that a flow causes where it meets many, at the least; fewer where all have one size, so that many end at once.
_VISITS_PER_FLOW, _VISITS_PER_EQUAL_FLOW = 400, 100


class SolverFunctions(NamedTuple):
    """The functions of `s2sim.network.max_min` that others call, plain or compiled."""

    add_flows: Callable[[FlowTable, Any, int], None]
    remove_finished: Callable[[FlowTable, int], int]
    next_ps: Callable[[FlowTable], int]
    deliver: Callable[[FlowTable, MemberQueues, Any, Any, Any, int], int]


PLAIN_FUNCTIONS = SolverFunctions(
    flights.add_flows, flights.remove_finished, flights.next_ps, flights.run_to_completion
)


@cache
def compiled_functions() -> SolverFunctions:
    """Return the functions compiled by numba."""
    from numba import njit
    from numba.extending import register_jitable

    for function in flights.INNER_FUNCTIONS:
        register_jitable(function)
    try:
        functions = [njit(cache=True, nogil=True)(function) for function in PLAIN_FUNCTIONS]
    except RuntimeError:  # there is nowhere to keep what has been compiled
        functions = [njit(nogil=True)(function) for function in PLAIN_FUNCTIONS]
    return SolverFunctions(*cast("Any", functions))


@dataclass(slots=True)
class SolverEffort:
    """How much has been done as plain Python in this process, to know when compiling pays."""

    visits: int = 0  # Flows looked at until now

    def compiles(self, flows: int = 0, *, alike: bool = False) -> bool:
        """Return whether numba is there and worth its loading, with some flows to come, of one size if ``alike``."""
        to_come = flows * (_VISITS_PER_EQUAL_FLOW if alike else _VISITS_PER_FLOW)
        return self.visits + to_come > _WORTH_COMPILING and has_numba()


@cache
def has_numba() -> bool:
    """Return whether numba is installed, without loading it."""
    return find_spec("numba") is not None


SOLVER_EFFORT = SolverEffort()


# Places for what is still to be looked at in a tree, more than it has levels.
_DEPTH = 128
_REALS = {"weight", "limit", "rate", "was", "left", "capacity", "level", "load", "wide", "key", "limits", "size"}
_FLAG_COLUMNS = {"held", "marked"}
# What a new crossing and a new flow begin with.
_BY_CROSSING = {"link": 0, "weight": 0, "flow": 0, "after": -1, "before": -1, "held": 0, "limits": 0}
_BY_FLOW = {"first": 0, "last": 0, "limit": 0, "rate": 0, "was": -1, "left": 0, "since": 0, "entered": 0, "moved": 0}


class FlowTable(NamedTuple):
    """Flows in flight and their links; lists, or arrays.

    A crossing is one flow on one link. Those of a link are chained in both directions.
    """

    # link, weight, flow: which link, the share of the flow's rate that crosses it, and whose crossing it is
    link: Wholes
    weight: Reals
    flow: Wholes
    # after, before: the next and the last crossing of the link; -1 at the ends
    after: Wholes
    before: Wholes
    held: Flags  # Whether the link holds the flow back: its rate is the link's level
    # first, last: its crossings are those from ``first`` up to ``last``
    first: Wholes
    last: Wholes
    # limit, rate: bytes per picosecond that it cannot exceed, and that it has
    limit: Reals
    rate: Reals
    was: Reals  # Its rate before the event; -1 where the event has not changed it
    # left, since: bytes that it had left at some time, and when
    left: Reals
    since: Wholes
    entered: Wholes  # When its latency had passed
    # capacity, level: bytes per picosecond, and the most that it gives a flow
    capacity: Reals
    level: Reals
    head: Wholes  # Its first crossing, or -1
    # load, wide: bytes per picosecond of those flows that it does not hold back, and the weights of those that it does
    load: Reals
    wide: Reals
    key: Reals  # The level at which it will be put right, or -1 where it agrees with its flows
    marked: Flags  # Whether it is in ``dirty``
    # dirty, moved, limits, stack: links to look at, flows whose rates have changed, limits of the flows of a link,
    # places in the tree
    dirty: Wholes
    moved: Wholes
    limits: Reals
    stack: Wholes
    finish: Wholes  # When each flow ends, in the upper half, each entry below being the smaller of two
    # Entries in ``dirty`` and in ``moved``; until now, flows that have arrived in `deliver`, and flows looked at
    tally: Wholes


class MemberQueues(NamedTuple):
    """Members of flows that take one way and arrive together: they have one rate, and the smallest is done first.

    Such a flow weighs as much as its members that are left, and its bytes are those of the smallest.
    """

    # member, size: which transfer it is, and its bytes
    member: Wholes
    size: Reals
    # place, end: the members that are left are those from ``place`` up to ``end``
    place: Wholes
    end: Wholes


def merge_identical_flows(
    routes: Routes, arrive_ps: NDArray[np.int64], sizes_bytes: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], MemberQueues]:
    """Return which transfer stands for each flow, how many members it has, both int64 (flows,), and the members.

    Parameters
    ----------
    routes : Routes
        One a transfer.
    arrive_ps : int64 array, shape (transfers,)
        When the latency of each has passed.
    sizes_bytes : float64 array, shape (transfers,)
        Bytes of each.
    """
    transfers, lengths = len(sizes_bytes), np.diff(routes.offsets)
    width = int(lengths.max(initial=0))
    limit = np.zeros(transfers) if routes.limit_Bps is None else routes.limit_Bps
    ways = np.full((transfers, 2 * width + 2), -1)
    row = np.repeat(np.arange(transfers), lengths)
    column = np.arange(len(row)) - routes.offsets[row]
    ways[row, column], ways[row, width + column] = routes.links, routes.weights.view(np.int64)
    ways[:, -2], ways[:, -1] = arrive_ps, limit.view(np.int64)
    _, chosen, which, counts = np.unique(ways, axis=0, return_index=True, return_inverse=True, return_counts=True)
    in_order = np.argsort(chosen)
    member = np.lexsort((sizes_bytes, np.argsort(in_order)[which.reshape(-1)]))
    end = np.cumsum(counts[in_order])
    queues = MemberQueues(*(cast("Any", each) for each in (member, sizes_bytes[member], end - counts[in_order], end)))
    return chosen[in_order], counts[in_order], queues


Columns = TypeVar("Columns", FlowTable, MemberQueues)


def make_flow_table(
    routes: Routes,
    sizes_bytes: NDArray[np.float64],
    capacity: NDArray[np.float64],
    members: NDArray[np.int64] | None = None,
) -> FlowTable:
    """Return a table of arrays with one flow a route, none of them in flight.

    Parameters
    ----------
    routes : Routes
        One a flow.
    sizes_bytes : float64 array, shape (flows,)
        Bytes of each.
    capacity : float64 array, shape (links,)
        Bytes per picosecond of every link.
    members : int64 array, shape (flows,), optional
        How many transfers each flow stands for; without it one.
    """
    flows, crossings, links = len(sizes_bytes), len(routes.links), len(capacity)
    most = int(np.bincount(routes.links, minlength=1).max(initial=0))
    arrays = {
        "link": routes.links,
        "weight": routes.weights if members is None else routes.weights * np.repeat(members, np.diff(routes.offsets)),
        "flow": np.repeat(np.arange(flows), np.diff(routes.offsets)),
        "after": np.full(crossings, -1),
        "before": np.full(crossings, -1),
        "held": np.zeros(crossings, np.bool_),
        "first": routes.offsets[:-1],
        "last": routes.offsets[1:],
        "limit": routes.narrowest(capacity)
        if routes.limit_Bps is None
        else np.minimum(routes.narrowest(capacity), routes.limit_Bps / PS_PER_S),
        "rate": np.zeros(flows),
        "was": np.full(flows, -1.0),
        "left": np.array(sizes_bytes, np.float64),
        "since": np.zeros(flows, np.int64),
        "entered": np.zeros(flows, np.int64),
        "capacity": capacity,
        "level": np.full(links, np.inf),
        "head": np.full(links, -1),
        "load": np.zeros(links),
        "wide": np.zeros(links),
        "key": np.full(links, -1.0),
        "marked": np.zeros(links, np.bool_),
        "dirty": np.zeros(links, np.int64),
        "moved": np.zeros(flows, np.int64),
        "limits": np.zeros(most),
        "stack": np.zeros(flows + _DEPTH, np.int64),
        "finish": _minimum_tree(np.full(flows, NEVER)),
        "tally": np.zeros(TALLIES, np.int64),
    }
    return FlowTable(**cast("Any", arrays))


def _minimum_tree(leaves: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the tree of smallest entries above some leaves; see `FlowTable.finish`."""
    half = 1 << max(len(leaves) - 1, 1).bit_length()
    tree = np.full(2 * half, NEVER)
    tree[half : half + len(leaves)] = leaves
    while half > 1:
        half //= 2
        tree[half : 2 * half] = tree[2 * half : 4 * half].reshape(-1, 2).min(axis=1)
    return tree


def enlarge_table(table: FlowTable, flows: int, crossings: int) -> FlowTable:
    """Return a table of arrays with room for more flows and crossings, whose entries are still to be written."""
    arrays = as_arrays(table)._asdict()
    for name, value in _BY_CROSSING.items():
        arrays[name] = _padded(arrays[name], crossings, value)
    for name, value in _BY_FLOW.items():
        arrays[name] = _padded(arrays[name], flows, value)
    arrays["stack"] = np.zeros(flows + _DEPTH, np.int64)
    finish = arrays["finish"]
    arrays["finish"] = _minimum_tree(_padded(finish[len(finish) // 2 :], flows, NEVER)[:flows])
    return FlowTable(**arrays)


def _padded(column: NDArray[Any], length: int, value: float) -> NDArray[Any]:
    """Return a column with ``value`` after its end, up to a length."""
    return np.concatenate([column, np.full(max(length - len(column), 0), value, column.dtype)])


def as_lists(table: Columns) -> Columns:
    """Return a table of arrays as lists, which plain Python reads faster."""
    return type(table)(*(cast("Any", column).tolist() for column in table))


def as_arrays(table: Columns) -> Columns:
    """Return a table of lists as arrays, which numba wants."""
    kinds = {**dict.fromkeys(_REALS, np.float64), **dict.fromkeys(_FLAG_COLUMNS, np.bool_)}
    columns: dict[str, Any] = table._asdict()
    arrays: dict[str, Any] = {name: np.array(column, kinds.get(name, np.int64)) for name, column in columns.items()}
    return type(table)(**arrays)
