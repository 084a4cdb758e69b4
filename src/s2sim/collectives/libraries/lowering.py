"""From what is asked of a communication library to what it executes, by its table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.launches import SIZES, Local, Lowered, Step
from s2sim.collectives.schedules.blocks import blocks_of, exchange
from s2sim.collectives.schedules.demand import Demand
from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.collectives.libraries.launches import Asked
    from s2sim.collectives.libraries.library import Entry, Library

SIZE_BYTES = 8
"""A rank's size, as it is exchanged: an int64."""


def _as_asked(asked: Asked, entry: Entry) -> Lowered:
    return Lowered((Step((asked.demand,)),), Local(), asked.text, asked.text, entry.why)


def _carried(asked: Asked, entry: Entry) -> Lowered:
    """Another type stands in: of the same width it needs no work, a wider one a pass before and one after."""
    demand = replace(asked.demand, itemsize=np.dtype(entry.carrier).itemsize)
    widen, narrow = Local(), Local()
    if demand.itemsize != asked.demand.itemsize:
        widen = Local(asked.demand.buffer_bytes + demand.buffer_bytes, 1)
        narrow = Local(result_bytes(asked.demand) + result_bytes(demand), 1)
    executes = f"{demand.kind} {asked.op} {entry.carrier}"
    return Lowered((Step((demand,), widen),), narrow, asked.text, executes, entry.why)


def _or_as_bytes(asked: Asked, entry: Entry) -> Lowered:
    """Return one launch of a byte for every bit: unpack, reduce with max, pack."""
    demand = asked.demand
    flags = replace(demand, elements=tuple(8 * count * demand.itemsize for count in demand.elements), itemsize=1)
    unpack = Local(demand.buffer_bytes + flags.buffer_bytes, 1)
    pack = Local(result_bytes(demand) + result_bytes(flags), 1)
    return Lowered((Step((flags,), unpack),), pack, asked.text, f"{demand.kind} max uint8, one byte a bit", entry.why)


def _or_gathered(asked: Asked, entry: Entry) -> Lowered:
    """Every rank gets all P bitmaps; one kernel reads them and writes their OR."""
    packed, ranks = asked.demand.buffer_bytes, asked.demand.ranks
    gathered = Demand("all_gather", (packed,) * ranks, 1)
    merge = Local((ranks + 1) * packed, 1)
    return Lowered((Step((gathered,)),), merge, asked.text, f"all_gather uint8, {ranks} bitmaps merged", entry.why)


def _or_by_owners(asked: Asked, entry: Entry) -> Lowered:
    """Stretches of ceil(n/P) bytes, alike for all: to their owner, who merges P of them, and from there to all."""
    ranks = asked.demand.ranks
    own = -(-asked.demand.buffer_bytes // ranks)
    out = Step((Demand("all_to_all", (own * ranks,) * ranks, 1),), what="stretches to their owners")
    back = Step((Demand("all_gather", (own,) * ranks, 1),), Local((ranks + 1) * own, 1), "merged stretches")
    return Lowered((out, back), Local(), asked.text, "all_to_all and all_gather uint8, by owners", entry.why)


def result_bytes(demand: Demand) -> int:
    """Return the bytes that the rank with most ends with."""
    if demand.kind == "all_to_all":
        return int(blocks_of(demand).sizes().sum(axis=0).max())
    return max(demand.elements) * demand.itemsize if demand.kind == "reduce_scatter" else demand.buffer_bytes


def _sizes(asked: Asked) -> tuple[Step, ...]:
    """Return the exchange of sizes where only data tells them.

    Of a rank with all, of each block with its target, of a root's payload with those that it comes to.
    """
    if not asked.size_from_data:
        return ()
    demand = asked.demand
    counts = Demand(demand.kind, (1,) * demand.ranks, SIZE_BYTES, demand.root)
    if asked.op == "peers":
        counts = exchange((blocks_of(demand).sizes() > 0).astype(np.int64), SIZE_BYTES)
    elif demand.kind == "all_to_all":
        counts = replace(counts, elements=(demand.ranks,) * demand.ranks)
    return (Step((counts,), what=SIZES),)


def _then(asked: Asked, text: str) -> str:
    return f"{asked.demand.kind} of sizes, then {text}" if asked.size_from_data else text


def _padded(asked: Asked, entry: Entry) -> Lowered:
    """All contribute as much as the largest: copy into a padded buffer, gather, copy the padding out."""
    demand, sizes = asked.demand, _sizes(asked)
    largest = Demand("all_gather", (max(demand.elements),) * demand.ranks, demand.itemsize)
    fill = Local(2 * max(demand.elements) * demand.itemsize, 1, host_syncs=len(sizes))
    executes = _then(asked, f"all_gather {asked.dtype} padded to the largest")
    return Lowered((*sizes, Step((largest,), fill)), Local(2 * demand.buffer_bytes, 1), asked.text, executes, entry.why)


def _broadcasts(asked: Asked, entry: Entry) -> Lowered:
    """One broadcast a rank, all in one launch, each to its place in the result."""
    demand, sizes = asked.demand, _sizes(asked)
    group = tuple(
        Demand("broadcast", (size,) * demand.ranks, demand.itemsize, root) for root, size in enumerate(demand.elements)
    )
    step = Step(group, Local(host_syncs=len(sizes)))
    executes = _then(asked, f"{demand.ranks} broadcasts {asked.dtype} in one group")
    return Lowered((*sizes, step), Local(), asked.text, executes, entry.why)


def _exact(asked: Asked, entry: Entry) -> Lowered:
    """Exact sizes; the exchange of them is between hosts, which know their own since the program synchronised."""
    executes = _then(asked, f"{asked.demand.kind} {asked.dtype} of exact sizes")
    return Lowered((*_sizes(asked), Step((asked.demand,))), Local(), asked.text, executes, entry.why)


def _sends(asked: Asked, entry: Entry) -> Lowered:
    """Exact sizes by grouped sends and receives: counts come to GPUs, and the host waits for them to post receives."""
    return replace(_told(asked, entry), executes=_then(asked, f"grouped sends and receives of {asked.dtype}"))


def _told(asked: Asked, entry: Entry) -> Lowered:
    """Sizes that only data tells come to GPUs first; the host waits for them before it launches the rest."""
    sizes = _sizes(asked)
    step = Step((asked.demand,), Local(host_syncs=len(sizes)))
    return Lowered((*sizes, step), Local(), asked.text, _then(asked, f"{asked.demand.kind} {asked.dtype}"), entry.why)


def _reduces(asked: Asked, entry: Entry) -> Lowered:
    """One reduce a rank, all in one launch, each of that rank's part."""
    demand = asked.demand
    group = tuple(
        Demand("reduce", (size,) * demand.ranks, demand.itemsize, root) for root, size in enumerate(demand.elements)
    )
    executes = f"{demand.ranks} reduces {asked.op} {asked.dtype} in one group"
    return Lowered((Step(group),), Local(), asked.text, executes, entry.why)


def _all_reduced(asked: Asked, entry: Entry) -> Lowered:
    """Copy the whole buffer and all-reduce it; every rank keeps its own part."""
    whole = Demand("all_reduce", (asked.demand.buffer_elements,) * asked.demand.ranks, asked.demand.itemsize)
    keep = Local(2 * result_bytes(asked.demand), 1)
    executes = f"all_reduce {asked.op} {asked.dtype}, of which each keeps its part"
    return Lowered((Step((whole,), Local(2 * whole.buffer_bytes, 1)),), keep, asked.text, executes, entry.why)


WAYS: dict[str, Callable[[Asked, Entry], Lowered]] = {
    "as_asked": _as_asked,
    "carried": _carried,
    "or_as_bytes": _or_as_bytes,
    "or_gathered": _or_gathered,
    "or_by_owners": _or_by_owners,
    "padded": _padded,
    "broadcasts": _broadcasts,
    "exact": _exact,
    "sends": _sends,
    "told": _told,
    "reduces": _reduces,
    "all_reduced": _all_reduced,
}


def lower(asked: Asked, library: Library) -> Lowered:
    """Return what ``library`` executes for what is asked.

    Raises
    ------
    S2SimError
        Where its table has no line for it.
    """
    if asked.demand.ranks == 1:
        return Lowered((Step((asked.demand,)),), Local(), asked.text, asked.text, "one rank has nothing to send")
    entry = _find(asked, library)
    lowered = WAYS[entry.does](asked, entry)
    options = {entry.when[0]} if entry.when else set()
    if library.staged:
        options.add("buffers")
    return replace(_staged(lowered) if library.through_host else lowered, options=frozenset(options))


def _find(asked: Asked, library: Library) -> Entry:
    for entry in library.table:
        if (
            asked.demand.kind in entry.kinds
            and asked.row in entry.ops
            and (not entry.dtypes or asked.dtype in entry.dtypes)
            and (entry.when is None or entry.when in library.chosen)
        ):
            return entry
    raise S2SimError(f"{asked.text} was asked for, which {library.name} has no way to execute: use another --library")


def _staged(lowered: Lowered) -> Lowered:
    """Return it with the payload copied to host memory and back; the host waits until the copy out is complete."""
    *sizes, step = lowered.steps
    (demand,) = step.demands
    handed_in = sum(demand.elements) if demand.kind == "reduce_scatter" else max(demand.elements)
    out = Local(host_syncs=1, to_host_bytes=handed_in * demand.itemsize)
    back = Local(to_gpu_bytes=result_bytes(demand))
    return replace(
        lowered,
        steps=(*sizes, replace(step, before=step.before + out)),
        after=back + lowered.after,
        executes=f"{lowered.executes}, through host memory",
    )
