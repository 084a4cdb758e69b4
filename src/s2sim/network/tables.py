"""Tables of flows: made for routes, made larger, and handed to the functions of `s2sim.network.flights` that run them.

Small work runs as plain Python over lists. Once there has been enough of it in this process to be worth the second that
it takes to load numba, the same functions run compiled over arrays, where numba is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from s2sim.network import flights
from s2sim.network.flights import NEVER, TALLIES, Table
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from s2sim.topology.routes import Routes

# Visits of links, some ten microseconds each as plain Python.
_WORTH_COMPILING = 50_000
# Visits that a flow which meets others causes, at the least.
_VISITS_A_FLOW = 20
# Places for what is still to be looked at in a tree, more than it has levels.
_DEPTH = 128
_REALS = {"weight", "limit", "rate", "was", "left", "capacity", "level", "load", "wide", "key", "limits"}
_FLAGS = {"held", "marked"}
# What a new crossing and a new flow begin with.
_BY_CROSSING = {"link": 0, "weight": 0, "flow": 0, "after": -1, "before": -1, "held": 0, "limits": 0}
_BY_FLOW = {"first": 0, "last": 0, "limit": 0, "rate": 0, "was": -1, "left": 0, "since": 0, "entered": 0, "moved": 0}


class Functions(NamedTuple):
    """The functions of `s2sim.network.flights` that others call, plain or compiled."""

    take_in: Callable[[Table, Any, int], None]
    take_out: Callable[[Table, int], int]
    next_ps: Callable[[Table], int]
    deliver: Callable[[Table, Any, Any, Any, int], int]


PLAIN = Functions(flights.take_in, flights.take_out, flights.next_ps, flights.deliver)


@cache
def compiled() -> Functions:
    """Return the functions compiled by numba."""
    from numba import njit
    from numba.extending import register_jitable

    for function in flights.INNER:
        register_jitable(function)
    compile_one = njit(cache=True, nogil=True)
    return Functions(*(cast("Any", compile_one(function)) for function in PLAIN))


@dataclass(slots=True)
class Effort:
    """How much has been done as plain Python in this process, to know when compiling pays.

    Attributes
    ----------
    visits : int
        Links visited until now.
    """

    visits: int = 0

    def compiles(self, expected: int = 0) -> bool:
        """Return whether numba is there and worth its loading, with ``expected`` visits to come."""
        return self.visits + expected > _WORTH_COMPILING and has_numba()


@cache
def has_numba() -> bool:
    """Return whether numba is installed, without loading it."""
    return find_spec("numba") is not None


EFFORT = Effort()


def expected_visits(flows: int) -> int:
    """Return how many visits of links some flows may cause at the least."""
    return flows * _VISITS_A_FLOW


def make_table(routes: Routes, sizes_bytes: NDArray[np.float64], capacity: NDArray[np.float64]) -> Table:
    """Return a table of arrays with one flow a route, none of them in flight.

    Parameters
    ----------
    routes : Routes
        One a flow.
    sizes_bytes : float64 array, shape (flows,)
        Bytes of each.
    capacity : float64 array, shape (links,)
        Bytes per picosecond of every link.
    """
    flows, crossings, links = len(sizes_bytes), len(routes.links), len(capacity)
    most = int(np.bincount(routes.links, minlength=1).max(initial=0))
    arrays = {
        "link": routes.links,
        "weight": routes.weights,
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
        "finish": _tree(np.full(flows, NEVER)),
        "tally": np.zeros(TALLIES, np.int64),
    }
    return Table(**cast("Any", arrays))


def _tree(leaves: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the tree of smallest entries above some leaves; see `Table.finish`."""
    half = 1 << max(len(leaves) - 1, 1).bit_length()
    tree = np.full(2 * half, NEVER)
    tree[half : half + len(leaves)] = leaves
    while half > 1:
        half //= 2
        tree[half : 2 * half] = tree[2 * half : 4 * half].reshape(-1, 2).min(axis=1)
    return tree


def larger(table: Table, flows: int, crossings: int) -> Table:
    """Return a table of arrays with room for more flows and crossings, whose entries are still to be written."""
    arrays = as_arrays(table)._asdict()
    for name, value in _BY_CROSSING.items():
        arrays[name] = _padded(arrays[name], crossings, value)
    for name, value in _BY_FLOW.items():
        arrays[name] = _padded(arrays[name], flows, value)
    arrays["stack"] = np.zeros(flows + _DEPTH, np.int64)
    finish = arrays["finish"]
    arrays["finish"] = _tree(_padded(finish[len(finish) // 2 :], flows, NEVER)[:flows])
    return Table(**arrays)


def _padded(column: NDArray[Any], length: int, value: float) -> NDArray[Any]:
    """Return a column with ``value`` after its end, up to a length."""
    return np.concatenate([column, np.full(max(length - len(column), 0), value, column.dtype)])


def as_lists(table: Table) -> Table:
    """Return a table of arrays as lists, which plain Python reads faster."""
    return Table(*(cast("Any", column).tolist() for column in table))


def as_arrays(table: Table) -> Table:
    """Return a table of lists as arrays, which numba wants."""
    kinds = {**dict.fromkeys(_REALS, np.float64), **dict.fromkeys(_FLAGS, np.bool_)}
    columns: dict[str, Any] = table._asdict()
    arrays: dict[str, Any] = {name: np.array(column, kinds.get(name, np.int64)) for name, column in columns.items()}
    return Table(**arrays)
