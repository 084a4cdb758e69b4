"""From what is asked of a communication library to what it executes, by its table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from s2sim.collectives.libraries.launches import SIZES, Local, Lowered, Step
from s2sim.collectives.schedules.blocks import blocks_of, exchange
from s2sim.collectives.schedules.demand import Demand
from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.collectives.kinds import Kind
    from s2sim.collectives.libraries.launches import Request
    from s2sim.collectives.libraries.library import Entry, Library

SIZE_BYTES = 8
"""A rank's size, as it is exchanged: an int64."""


Executed: TypeAlias = tuple[tuple[Step, ...], Local, str]
"""Steps, the work after the last of them, and what is executed, for people."""


def _as_asked(request: Request) -> Executed:
    return (Step((request.demand,)),), Local(), request.text


def _carried(request: Request, carrier: str) -> Executed:
    """Another type stands in: of the same width it needs no work, a wider one a pass before and one after."""
    demand = replace(request.demand, itemsize=np.dtype(carrier).itemsize)
    widen, narrow = Local(), Local()
    if demand.itemsize != request.demand.itemsize:
        widen = Local(request.demand.buffer_bytes + demand.buffer_bytes, 1)
        narrow = Local(result_bytes(request.demand) + result_bytes(demand), 1)
    return (Step((demand,), widen),), narrow, f"{demand.kind} {request.op} {carrier}"


def _or_as_bytes(request: Request) -> Executed:
    """One launch of a byte for every bit: unpack, reduce with max, pack."""
    demand = request.demand
    flags = replace(demand, elements=tuple(8 * count * demand.itemsize for count in demand.elements), itemsize=1)
    unpack = Local(demand.buffer_bytes + flags.buffer_bytes, 1)
    pack = Local(result_bytes(demand) + result_bytes(flags), 1)
    return (Step((flags,), unpack),), pack, f"{demand.kind} max uint8, one byte a bit"


def _or_gathered(request: Request) -> Executed:
    """Every rank gets all P bitmaps; one kernel reads them and writes their OR."""
    packed, ranks = request.demand.buffer_bytes, request.demand.ranks
    gathered = Demand("all_gather", (packed,) * ranks, 1)
    return (Step((gathered,)),), Local((ranks + 1) * packed, 1), f"all_gather uint8, {ranks} bitmaps merged"


def _or_by_owners(request: Request) -> Executed:
    """Stretches of ceil(n/P) bytes, alike for all: to their owner, who merges P of them, and from there to all."""
    ranks = request.demand.ranks
    own = -(-request.demand.buffer_bytes // ranks)
    out = Step((Demand("all_to_all", (own * ranks,) * ranks, 1),), what="stretches to their owners")
    back = Step((Demand("all_gather", (own,) * ranks, 1),), Local((ranks + 1) * own, 1), "merged stretches")
    return (out, back), Local(), "all_to_all and all_gather uint8, by owners"


def result_bytes(demand: Demand) -> int:
    """Return the bytes that the rank with most ends with."""
    if demand.kind == "all_to_all":
        return int(blocks_of(demand).sizes().sum(axis=0).max())
    return max(demand.elements) * demand.itemsize if demand.kind == "reduce_scatter" else demand.buffer_bytes


def _sizes(request: Request) -> tuple[Step, ...]:
    """Return the exchange of sizes where only data tells them.

    Of a rank with all, of each block with its target, of a root's payload with those that it comes to.
    """
    if not request.size_from_data:
        return ()
    demand = request.demand
    counts = Demand(demand.kind, (1,) * demand.ranks, SIZE_BYTES, demand.root)
    if request.op == "peers":
        counts = exchange((blocks_of(demand).sizes() > 0).astype(np.int64), SIZE_BYTES)
    elif demand.kind == "all_to_all":
        counts = replace(counts, elements=(demand.ranks,) * demand.ranks)
    return (Step((counts,), what=SIZES),)


def _then(request: Request, text: str) -> str:
    return f"{request.demand.kind} of sizes, then {text}" if request.size_from_data else text


def _padded(request: Request) -> Executed:
    """All contribute as much as the largest: copy into a padded buffer, gather, copy the padding out."""
    demand, sizes = request.demand, _sizes(request)
    largest = Demand("all_gather", (max(demand.elements),) * demand.ranks, demand.itemsize)
    fill = Local(2 * max(demand.elements) * demand.itemsize, 1, host_syncs=len(sizes))
    executes = _then(request, f"all_gather {request.dtype} padded to the largest")
    return (*sizes, Step((largest,), fill)), Local(2 * demand.buffer_bytes, 1), executes


def _one_a_rank(kind: Kind, demand: Demand) -> tuple[Demand, ...]:
    """Return a collective with each rank as its root, of that rank's size."""
    return tuple(
        Demand(kind, (size,) * demand.ranks, demand.itemsize, root) for root, size in enumerate(demand.elements)
    )


def _broadcasts(request: Request) -> Executed:
    """One broadcast a rank, all in one launch, each to its place in the result."""
    demand, sizes = request.demand, _sizes(request)
    step = Step(_one_a_rank("broadcast", demand), Local(host_syncs=len(sizes)))
    executes = _then(request, f"{demand.ranks} broadcasts {request.dtype} in one group")
    return (*sizes, step), Local(), executes


def _reduces(request: Request) -> Executed:
    """One reduce a rank, all in one launch, each of that rank's part."""
    executes = f"{request.demand.ranks} reduces {request.op} {request.dtype} in one group"
    return (Step(_one_a_rank("reduce", request.demand)),), Local(), executes


def _exact(request: Request) -> Executed:
    """Exact sizes; the exchange of them is between hosts, which know their own since the program synchronised."""
    executes = _then(request, f"{request.demand.kind} {request.dtype} of exact sizes")
    return (*_sizes(request), Step((request.demand,))), Local(), executes


def _exchanged(request: Request) -> Executed:
    """Each sends what it has to every other by itself: exact sizes, and no rank passes on what another has."""
    demand = request.demand
    sizes = np.tile(np.array(demand.elements, np.int64)[:, None], demand.ranks)
    executes = _then(request, f"sends and receives of {request.dtype} between all pairs")
    return (*_sizes(request), Step((exchange(sizes, demand.itemsize),))), Local(), executes


def _told(request: Request) -> Executed:
    """Sizes that only data tells come to GPUs first; the host waits for them before it launches the rest."""
    sizes = _sizes(request)
    step = Step((request.demand,), Local(host_syncs=len(sizes)))
    return (*sizes, step), Local(), _then(request, f"{request.demand.kind} {request.dtype}")


def _sends(request: Request) -> Executed:
    """Exact sizes by grouped sends and receives: counts come to GPUs, and the host waits for them to post receives."""
    return *_told(request)[:2], _then(request, f"grouped sends and receives of {request.dtype}")


def _all_reduced(request: Request) -> Executed:
    """Copy the whole buffer and all-reduce it; every rank keeps its own part."""
    whole = Demand("all_reduce", (request.demand.buffer_elements,) * request.demand.ranks, request.demand.itemsize)
    keep = Local(2 * result_bytes(request.demand), 1)
    executes = f"all_reduce {request.op} {request.dtype}, of which each keeps its part"
    return (Step((whole,), Local(2 * whole.buffer_bytes, 1)),), keep, executes


EXECUTIONS: dict[str, Callable[..., Executed]] = {
    "as_asked": _as_asked,
    "carried": _carried,
    "or_as_bytes": _or_as_bytes,
    "or_gathered": _or_gathered,
    "or_by_owners": _or_by_owners,
    "padded": _padded,
    "broadcasts": _broadcasts,
    "exact": _exact,
    "exchanged": _exchanged,
    "sends": _sends,
    "told": _told,
    "reduces": _reduces,
    "all_reduced": _all_reduced,
}


def lower(request: Request, library: Library) -> Lowered:
    """Return what ``library`` executes for what is asked; `S2SimError` where its table has no line for it."""
    if request.demand.ranks == 1:
        return Lowered((Step((request.demand,)),), Local(), request.text, request.text, "one rank has nothing to send")
    entry = entry_for(request, library)
    steps, after, executes = EXECUTIONS[entry.does](request, *filter(None, (entry.carrier,)))
    options = {entry.when[0]} if entry.when else set()
    if library.staged:
        options.add("buffers")
    lowered = Lowered(steps, after, request.text, executes, entry.why, frozenset(options))
    if library.through_host:
        # What goes to every other is one buffer, and crosses to the host once.
        of = request.demand if entry.does == "exchanged" else lowered.steps[-1].demands[0]
        lowered = _staged(lowered, of)
    return lowered


def entry_for(request: Request, library: Library) -> Entry:
    """Return the line of a library's table for what is asked; `S2SimError` where there is none."""
    for entry in library.table:
        if (
            request.demand.kind in entry.kinds
            and request.row in entry.ops
            and (not entry.dtypes or request.dtype in entry.dtypes)
            and (entry.when is None or entry.when in library.chosen)
        ):
            return entry
    raise S2SimError(f"{request.text} was asked for, which {library.name} has no way to execute: use another --library")


def _staged(lowered: Lowered, demand: Demand) -> Lowered:
    """Return it with ``demand`` copied to host memory and back; the host waits until the copy out is complete."""
    *sizes, step = lowered.steps
    out = Local(host_syncs=1, to_host_bytes=demand.handed_in_bytes)
    back = Local(to_gpu_bytes=result_bytes(demand))
    return replace(
        lowered,
        steps=(*sizes, replace(step, before=step.before + out)),
        after=back + lowered.after,
        executes=f"{lowered.executes}, through host memory",
    )
