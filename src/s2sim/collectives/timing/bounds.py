"""Bandwidth lower bounds: what no algorithm can beat on a topology (DESIGN law 4)."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.blocks import blocks_of
from s2sim.units import PS_PER_S, format_bytes, format_rate
from s2sim.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from s2sim.collectives.schedules.demand import Demand
    from s2sim.topology.cuts import CutFamily, Cuts


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The time that bandwidth alone forces.

    Attributes
    ----------
    seconds : float
        No schedule is faster.
    derivation : str
        The cut or partition that forces it, with its bytes and its capacity.
    """

    seconds: float
    derivation: str


@dataclass(frozen=True, slots=True, eq=False)
class _Crossing:
    """Bytes that have to cross the borders of groups of ranks.

    Attributes
    ----------
    out, into : float64 arrays, shape (groups,)
        Out of and into each group at least, however clever the network.
    together_out, together_in : float
        Out of and into all groups together, unless switches or helpers reduce and multicast.
    """

    out: NDArray[np.float64]
    into: NDArray[np.float64]
    together_out: float
    together_in: float


def _crossing(demand: Demand, group: NDArray[np.int64], groups: int) -> _Crossing:
    """Return what a collective has to move over the borders of ``group[r]`` of each rank, int64 of shape (ranks,)."""
    size = float(demand.buffer_bytes)
    own = np.bincount(group, demand.sizes_bytes, groups).astype(np.float64)
    nothing = np.zeros(groups)
    held = np.bincount(group, minlength=groups) > 0
    others = np.flatnonzero(held).size - 1
    every = np.where(held, size, 0.0) if others else nothing
    at_root = np.arange(groups) == group[demand.root]
    if demand.kind == "all_reduce":
        return _Crossing(every, every, 2 * others * size, 2 * others * size)
    if demand.kind == "broadcast":
        return _Crossing(np.where(at_root, every, 0.0), np.where(at_root, 0.0, every), others * size, others * size)
    if demand.kind == "reduce":
        return _Crossing(np.where(at_root, 0.0, every), np.where(at_root, every, 0.0), others * size, others * size)
    if demand.kind == "reduce_scatter":
        out = np.where(held, size - own, 0.0)
        return _Crossing(out, own if others else nothing, float(out.sum()), float(out.sum()))
    if demand.kind in ("all_gather", "barrier"):
        into = np.where(held, size - own, 0.0)
        return _Crossing(own if others else nothing, into, float(into.sum()), float(into.sum()))
    out, into = np.zeros((2, groups))
    for source, target, sizes in _messages(demand):
        leaves = np.where(group[source] != group[target], sizes, 0.0)
        out += np.bincount(group[source], leaves, groups)
        into += np.bincount(group[target], leaves, groups)
    return _Crossing(out, into, float(out.sum()), float(into.sum()))


def _messages(demand: Demand) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
    """Yield (source, target, bytes) of what has to go from rank to rank, a shift of all ranks at a time."""
    source = np.arange(demand.ranks)
    if demand.kind == "send_recv":
        yield source, (source + 1) % demand.ranks, demand.sizes_bytes
        return
    blocks = blocks_of(demand)
    for shift in range(1, demand.ranks):
        target: NDArray[np.int64] = (source + shift) % demand.ranks
        begin, end = blocks.bounds(source, target)
        yield source, target, (end - begin).astype(np.float64) * demand.itemsize


def lower_bound(
    demands: Sequence[Demand],
    cuts: Cuts,
    *,
    assisted: bool = False,
    members: Sequence[Sequence[int]] | None = None,
) -> LowerBound:
    """Return the bound for collectives that run one after another or at once, by the largest of all cuts.

    Over every cut the bytes of all of them are added. An all-reduce of D bytes moves at least D out of and D into every
    set of ranks, and 2(g-1)·D out of all groups of any partition into g together, unless a switch reduces. An
    all-gather moves each set's own bytes out of it and all others into it; and so on for each kind.

    Parameters
    ----------
    demands : sequence of Demand
        Of the first ranks of the cluster, all of as many.
    cuts : Cuts
        The cluster's; where several groups of ranks are beside each other, all of them do what is demanded.
    assisted : bool
        Whether switches reduce and multicast, or servers do, so that only what crosses single groups counts.
    members : sequence of sequence of int, optional
        The ranks of each demand, in its order, where these are not the first ones; none for all.
    """
    places = [np.asarray(ranks, np.int64) for ranks in members] if members else []
    best = LowerBound(0.0, "nothing has to leave a rank")
    for family in cuts.families:
        crossings = []
        for of_rank in family.group_of_rank.reshape(cuts.beside, -1):
            groups = [of_rank[ranks] if len(ranks) else of_rank for ranks in places]
            crossings += [
                _crossing(demand, group[: demand.ranks], family.groups)
                for demand, group in zip(demands, groups or [of_rank] * len(demands), strict=True)
            ]
        for seconds, text in _forced(family, crossings, assisted=assisted):
            # Rounded down to the picosecond, as times are rounded up.
            whole = floor(seconds * PS_PER_S) / PS_PER_S
            if whole > best.seconds:
                best = LowerBound(whole, text)
    return best


def _forced(family: CutFamily, crossings: Sequence[_Crossing], *, assisted: bool) -> Iterator[tuple[float, str]]:
    """Yield the time that each cut of a family forces, and why."""
    ways = (
        ("leave", [each.out for each in crossings], [each.together_out for each in crossings], family.egress_Bps),
        ("enter", [each.into for each in crossings], [each.together_in for each in crossings], family.ingress_Bps),
    )
    for way, by_group, together, rate_Bps in ways:
        needed = np.sum(by_group, axis=0) if by_group else np.zeros(family.groups)
        busy_s = np.divide(needed, rate_Bps, out=np.zeros(family.groups), where=needed > 0)
        worst = int(np.argmax(busy_s))
        one = f"{family.name} {worst} of {family.groups}"
        yield float(busy_s[worst]), _reason(float(needed[worst]), way, one, float(rate_Bps[worst]))
        if not assisted:
            total_bytes, total_Bps = sum(together), float(rate_Bps.sum())
            every = f"the {family.groups} {plural(family.groups, family.name)} together"
            yield total_bytes / total_Bps, _reason(total_bytes, way, every, total_Bps)


def _reason(size_bytes: float, way: str, border: str, rate_Bps: float) -> str:
    return f"{format_bytes(size_bytes)} must {way} {border}, whose links carry {format_rate(rate_Bps)} that way"
