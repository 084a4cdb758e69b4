"""Tables of flows, as lists or as arrays, and identical transfers merged into one flow."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from s2sim.topology.graph import Routes

Reals = MutableSequence[float]
Wholes = MutableSequence[int]
Flags = MutableSequence[bool]

_REALS = {"weight", "limit", "rate", "was", "left", "capacity", "level", "load", "wide", "key", "limits", "size"}
_FLAG_COLUMNS = {"held", "marked"}


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


def merge_identical_flows(
    routes: Routes, arrive_ps: NDArray[np.int64], sizes_bytes: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], MemberQueues]:
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
    kinds = {**dict.fromkeys(_REALS, np.float64), **dict.fromkeys(_FLAG_COLUMNS, np.bool_)}
    columns: dict[str, Any] = table._asdict()
    arrays: dict[str, Any] = {name: np.array(column, kinds.get(name, np.int64)) for name, column in columns.items()}
    return type(table)(**arrays)
