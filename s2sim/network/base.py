"""The interface of networks, actions at a simulated time, and the table of flows in flight."""

from abc import ABC, abstractmethod
from collections.abc import Callable, MutableSequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
from simpy.core import Environment
from simpy.events import NORMAL, Event, EventPriority

from s2sim.arrays import Floats, Ints
from s2sim.topology.graph import Routes

OnDelivered: TypeAlias = Callable[[Ints], None]

# SimPy processes smaller numbers first: 0 is urgent and 1 normal.
_LAST = cast("EventPriority", 2)


class _Action(Event):
    """An event that has already happened, as `simpy.Timeout` has, and calls a function when it is processed."""

    def __init__(self, env: Environment, action: Callable[[], None], priority: EventPriority, delay_ps: int) -> None:
        self.env = env
        self._ok = True
        self._value = None
        self.callbacks = [lambda _: action()]
        env.schedule(self, priority, delay_ps)


def at_end_of_timestep(env: Environment, action: Callable[[], None]) -> None:
    """Call ``action`` at the present simulated time, after every event that is already due then."""
    _Action(env, action, _LAST, 0)


def call_after(env: Environment, delay_ps: int, action: Callable[[], None]) -> None:
    """Call ``action`` in ``delay_ps`` picoseconds of simulated time."""
    _Action(env, action, NORMAL, delay_ps)


def call_now_or_after(env: Environment, delay_ps: int, action: Callable[[], None]) -> None:
    """Call ``action`` in ``delay_ps`` picoseconds of simulated time, before this returns if that is zero."""
    if delay_ps:
        call_after(env, delay_ps, action)
    else:
        action()


class Network(ABC):
    """A network that transmits transfers in simulated time; the time of ``env`` is integer picoseconds."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.owners: list[OnDelivered] = []

    def add_owner(self, on_delivered: OnDelivered) -> int:
        """Return the number under which transfers report their delivery to ``on_delivered(tags)``."""
        self.owners.append(on_delivered)
        return len(self.owners) - 1

    @abstractmethod
    def add_routes(self, routes: Routes) -> Ints:
        """Make routes known and return their numbers, int64 of shape (routes,)."""

    @abstractmethod
    def send(self, routes: Ints, sizes_bytes: Floats, owner: int, tags: Ints) -> None:
        """Start transfers now; each is reported to ``owner`` under its tag when its last byte has arrived.

        ``routes`` are numbers from `add_routes`, ``sizes_bytes`` the bytes of each transfer (zero takes the latency, or
        an empty packet, alone), ``tags`` the values passed to the owner; all of shape (n,).
        """


Reals = MutableSequence[float]
Wholes = MutableSequence[int]
Flags = MutableSequence[bool]

_REALS = {"weight", "limit", "rate", "was", "left", "capacity", "level", "load", "wide", "key", "limits", "size"}
COLUMN_TYPES: dict[str, Any] = dict.fromkeys(_REALS, np.float64) | dict.fromkeys(("held", "marked"), np.bool_)
"""Of the columns of tables as arrays; of all others int64."""


class FlowTable(NamedTuple):
    """Flows in flight and their links; lists, or arrays.

    A crossing is one flow on one link. Those of a link are chained in both directions. Rates are bytes per picosecond.
    """

    # Of each crossing
    link: Wholes
    weight: Reals  # Share of the flow's rate on the link
    flow: Wholes
    after: Wholes  # Next crossing of the link, or -1
    before: Wholes  # Previous crossing of the link, or -1
    held: Flags  # Whether the link limits the flow: its rate is the link's level
    # Of each flow
    first: Wholes  # Its first crossing
    last: Wholes  # The end of its crossings, exclusive
    limit: Reals  # Largest rate
    rate: Reals
    was: Reals  # Rate before the event; -1 if unchanged by the event
    left: Reals  # Bytes left at the time ``since``
    since: Wholes
    entered: Wholes  # When its latency had passed
    # Of each link
    capacity: Reals
    level: Reals  # Largest rate that it gives a flow
    head: Wholes  # Its first crossing, or -1
    load: Reals  # Rate of the flows that it does not limit
    wide: Reals  # Weights of the flows that it limits
    key: Reals  # The level at which it will be updated, or -1 if it agrees with its flows
    marked: Flags  # Whether it is in ``dirty``
    # Work space of the solver
    dirty: Wholes  # Links to check
    moved: Wholes  # Flows with a changed rate
    limits: Reals  # Of the flows of one link
    stack: Wholes  # Positions in the tree
    finish: (
        Wholes  # End of each flow in the upper half; each entry of the lower half is the smaller of its two children
    )
    tally: Wholes  # Counters, see `s2sim.network.max_min`


class MemberQueues(NamedTuple):
    """Members of flows with one route, arrival time and rate: a flow has their weight and the bytes of the smallest."""

    member: Wholes  # Index of the transfer
    size: Reals  # Its bytes
    place: Wholes  # First remaining member of the flow
    end: Wholes  # End of its members, exclusive


def without_slack_links(routes: Routes, capacity: Floats) -> Routes:
    """Return routes that have the same max-min fair rates, whichever of the transfers are in flight, with fewer links.

    A link is left out if all its transfers cross another that is no faster, with no less of their rate: where the one
    is full, the other is too, so that it limits the same transfers. ``capacity`` has the rate of every link.
    """
    links, weights, lengths = routes.links, routes.weights, np.diff(routes.offsets)
    row = np.repeat(np.arange(len(lengths)), lengths)
    used, first, place, degree = np.unique(links, return_index=True, return_inverse=True, return_counts=True)
    keys = row * len(capacity) + links
    in_order = np.argsort(keys)
    keys_in_order, slack = keys[in_order], np.zeros(len(used), bool)
    starts, ends = routes.offsets[row[first]], routes.offsets[row[first] + 1]
    # A link that all cross is on the route of the first.
    for column in range(int(lengths.max(initial=0))):
        other = np.searchsorted(used, links[np.minimum(starts + column, ends - 1)])
        gains = capacity[used] - capacity[used[other]], degree[other] - degree, np.arange(len(used)) - other
        tried = ~slack & ((gains[0] > 0) | ((gains[0] == 0) & ((gains[1] > 0) | ((gains[1] == 0) & (gains[2] > 0)))))
        crossings = np.flatnonzero(tried[place])
        wanted = row[crossings] * len(capacity) + used[other[place[crossings]]]
        at = np.minimum(np.searchsorted(keys_in_order, wanted), len(keys) - 1)
        covered = (keys_in_order[at] == wanted) & (weights[in_order[at]] >= weights[crossings])
        slack |= tried & (np.bincount(place[crossings[covered]], minlength=len(used)) == degree)
    kept = ~slack[place]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=len(lengths)))])
    return Routes(offsets, links[kept], weights[kept], routes.latency_ps, routes.limit_Bps)


def merge_identical_flows(routes: Routes, arrive_ps: Ints, sizes_bytes: Floats) -> tuple[Ints, Ints, MemberQueues]:
    """Return the transfer that represents each flow and its number of members, both int64 (flows,), and the members.

    There is one route, arrival time (after its latency) and size in bytes per transfer.
    """
    transfers, lengths = len(sizes_bytes), np.diff(routes.offsets)
    width = int(lengths.max(initial=0))
    limit = np.zeros(transfers) if routes.limit_Bps is None else routes.limit_Bps
    keys = np.full((transfers, 2 * width + 2), -1)
    row = np.repeat(np.arange(transfers), lengths)
    column = np.arange(len(row)) - routes.offsets[row]
    keys[row, column], keys[row, width + column] = routes.links, routes.weights.view(np.int64)
    keys[:, -2], keys[:, -1] = arrive_ps, limit.view(np.int64)
    _, chosen, which, counts = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    in_order = np.argsort(chosen)
    member = np.lexsort((sizes_bytes, np.argsort(in_order)[which.reshape(-1)]))
    end = np.cumsum(counts[in_order])
    queues = MemberQueues(*(cast("Any", each) for each in (member, sizes_bytes[member], end - counts[in_order], end)))
    return chosen[in_order], counts[in_order], queues


Columns = TypeVar("Columns", FlowTable, MemberQueues)


def as_lists(table: Columns) -> Columns:
    """Return a table of arrays as lists, which plain Python reads faster."""
    return type(table)(*(cast("Any", column).tolist() for column in table))


def as_arrays(table: Columns) -> Columns:
    """Return a table of lists as arrays, which numba needs."""
    columns: dict[str, Any] = table._asdict()
    arrays: Any = {name: np.array(column, COLUMN_TYPES.get(name, np.int64)) for name, column in columns.items()}
    return type(table)(**arrays)
