"""Sums, maxima and ORs over real processes, as the library's table executes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.bridge.processes.members import Flight
from s2sim.codecs.bfloat16 import NARROW, narrow, widen
from s2sim.collectives.libraries.launches import Request
from s2sim.collectives.libraries.lowering import entry_for
from s2sim.collectives.schedules.demand import Demand
from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.bridge.processes.members import Members
    from s2sim.collectives.kinds import Kind


def reduce_arrays(
    members: Members, kind: Kind, parts: Sequence[NDArray[Any]], op: str, root: int = 0
) -> Flight[NDArray[Any] | None]:
    """Post an all-reduce, a reduce or a reduce-scatter of arrays, 1-D and of one type.

    A reduce-scatter has a part for each member, the others a single one. The result is the combination of all, of what
    is for this member, or None.
    """
    dtype = parts[0].dtype
    name = dtype.names[0] if dtype.names else dtype.name
    sizes = tuple(len(part) for part in parts)
    elements = sizes if kind == "reduce_scatter" else sizes * members.size
    demand = Demand(kind, elements, dtype.itemsize)
    entry = entry_for(Request(demand, op, name, False), members.library)
    carrier = np.dtype(entry.carrier) if entry.does == "carried" else dtype
    data = _carried(np.concatenate(parts), carrier)
    if entry.does == "or_as_bytes":
        found = _posted(members, kind, np.unpackbits(data.view(np.uint8)), "max", root)
        return Flight(found.works, lambda: _packed(found.finish(), dtype))
    if entry.does == "all_reduced":
        whole = members.all_reduce(data, op)
        begin = sum(sizes[: members.index])
        return Flight(whole.works, lambda: whole.finish()[begin : begin + sizes[members.index]])
    if entry.does == "reduces":
        return _each_to_its_owner(members, np.split(data, np.cumsum(sizes)[:-1]), op)
    if entry.does not in ("as_asked", "carried"):
        raise S2SimError(f"{members.library.name} executes {kind} as {entry.does}, which no process does")
    found = _posted(members, kind, data, op, root)
    return Flight(found.works, lambda: _carried_back(found.finish(), dtype))


def _posted(members: Members, kind: str, data: NDArray[Any], op: str, root: int) -> Flight[NDArray[Any] | None]:
    """Post what the library has as it is."""
    if kind == "reduce":
        return members.reduce(data, op, root)
    return members.reduce_scatter(data, op) if kind == "reduce_scatter" else members.all_reduce(data, op)


def _each_to_its_owner(members: Members, parts: Sequence[NDArray[Any]], op: str) -> Flight[NDArray[Any] | None]:
    flights = [members.reduce(part, op, root) for root, part in enumerate(parts)]
    works = tuple(work for flight in flights for work in flight.works)
    return Flight(works, flights[members.index].finish)


def _carried(data: NDArray[Any], carrier: np.dtype[Any]) -> NDArray[Any]:
    """Return values in another type: by their bits where it is as wide."""
    if data.dtype == carrier:
        return data
    if data.dtype in NARROW.values() or carrier in NARROW.values():
        return widen(data) if carrier == np.float32 else narrow(data, carrier)
    if data.dtype.itemsize == carrier.itemsize:
        return data.view(carrier)
    return data.astype(carrier)


def _carried_back(data: NDArray[Any] | None, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    return None if data is None else _carried(data, dtype)


def _packed(bits: NDArray[Any] | None, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    return None if bits is None else np.packbits(bits).view(dtype)
