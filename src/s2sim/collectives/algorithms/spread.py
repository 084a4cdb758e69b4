"""Everything at once, or many partners at once: grouped sends and receives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.algorithms.pairwise import block_pieces
from s2sim.collectives.schedules.blocks import blocks_of
from s2sim.collectives.schedules.doubling import require_one_way
from s2sim.collectives.schedules.groups import check_at_once, schedule_of
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Stage, Step
from s2sim.errors import ContendedError, OptionError
from s2sim.options import check_options, option_text

if TYPE_CHECKING:
    from s2sim.arrays import Ints, Mask
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.topology.cluster import Cluster

# Libraries throttle too: MPICH has 32 sends and receives of an alltoallv outstanding (MPIR_CVAR_ALLTOALL_THROTTLE).
# Every block of a size of its own ends at a moment of its own, at which all rates are solved again: with 64 ranks this
# takes seconds for all at once, and a tenth of it for 16, which come within 2 % of it on fat trees and 30 % elsewhere.
_UNEQUAL_PARTNERS = 16


@dataclass(frozen=True, slots=True)
class Spread:
    """All messages in one round: they share every port, and the fluid network divides it.

    With fewer ``partners`` at once, ranks in the order of their nodes are cut into groups of that many. In round k
    every rank of group i sends to all of group i + k, and a round follows the last byte of the one before. Unless
    given, all are partners; or 16 where blocks differ in size from pair to pair.

    With ``turns`` one of any two ranks sends to the other first, and gets what is for it then: so it goes where both
    ways are one connection, on which a rank's word that it is ready to receive waits behind what it sends.
    """

    name: ClassVar[str] = "spread"
    source: ClassVar[str] = "NVIDIA, NCCL user guide, point-to-point communication: grouped sends and receives"
    kinds: ClassVar[tuple[str, ...]] = ("all_to_all", "send_recv")
    auto: ClassVar[tuple[str, ...]] = ("all_to_all", "send_recv")
    partners: int | None = None
    turns: bool = False

    def __post_init__(self) -> None:
        check_options(self, self.name, partners=1)
        if self.turns and self.partners is not None:
            raise OptionError(f"spread: partners={self.partners} beside turns=true: leave one out")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule: each rank sends its stretch to the next, or each of its blocks to its owner."""
        if demand.kind == "send_recv":
            if self.partners is not None or self.turns:
                given = "turns=true" if self.turns else f"partners={self.partners}"
                raise OptionError(f"spread: {given} changes nothing in send_recv: leave it out")
            return schedule_of(demand, self.name, _shift(demand))
        if self.turns:
            return schedule_of(demand, option_text(self), _taking_turns(demand))
        partners = self.partners
        if partners is None and demand.blocks and _held(demand).sum(axis=1).max() > _UNEQUAL_PARTNERS:
            partners = _UNEQUAL_PARTNERS
        text = option_text(replace(self, partners=partners))
        return schedule_of(demand, text, _exchange(demand, cluster.node_of_rank, partners or demand.ranks))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where every pair has links of its own: L + b/B, b the largest message.

        On any fabric where a rank has one port, the blocks of an all_to_all share it and this form does not hold.
        """
        if demand.ranks == 1:
            return 0.0
        if demand.blocks or len(set(demand.elements)) > 1:
            require_one_way(self.name, hops)
        if demand.kind == "send_recv":
            return hops.round_s(float(demand.sizes_bytes.max()))
        if self.partners is not None and self.partners < demand.ranks:
            raise ContendedError(
                f"{self.name} of {self.partners} partners at once has no closed form: simulate it instead"
            )
        source, target = _pairs(np.arange(demand.ranks), 1, 0)
        if self.turns:
            first = _goes_first(source, target, demand.ranks)
            sizes = blocks_of(demand).bytes(source, target)
            return sum(hops.round_s(float(sizes[turn].max())) for turn in (first, ~first))
        return hops.round_s(float(blocks_of(demand).bytes(source, target).max()))


def _shift(demand: Demand) -> Stage:
    """Return the round in which each rank sends its whole stretch to the next."""
    source = np.arange(demand.ranks)
    begin, end = demand.stretches()
    pattern = Pattern(source, (source + 1) % demand.ranks)
    step = Step(Round(pattern, demand.sizes_bytes))
    return Stage((step,), lambda _step, _time: Pieces(source, begin, end, np.zeros(demand.ranks, bool)))


def _exchange(demand: Demand, node_of_rank: Ints, partners: int) -> Stage:
    """Return the rounds in which each rank sends its blocks to the others, a group of ``partners`` a round.

    What is empty is not sent: most pairs are, where only some ranks are peers.
    """
    ranks = demand.ranks
    held = _held(demand) if demand.blocks else None
    check_at_once("spread", ranks * (ranks - 1) if held is None else int(held.sum()), "pairwise")
    groups = -(-ranks // partners)
    order = np.arange(ranks) if groups == 1 else np.argsort(node_of_rank[:ranks], kind="stable")
    blocks = blocks_of(demand)
    if held is not None and groups == 1:
        source, target = np.nonzero(held)
        first_after = np.lexsort(((target - source) % ranks, source))
        rounds = [(source[first_after], target[first_after])]
    else:
        rounds = [_pairs(order, groups, shift) for shift in range(groups)]
        if held is not None:
            rounds = [(source[held[source, target]], target[held[source, target]]) for source, target in rounds]
    sent = [Round(Pattern(source, target), blocks.bytes(source, target)) for source, target in rounds]
    first, *others = sent
    steps = (Step(first), *(Step(each, after=(), after_sent=(number,)) for number, each in enumerate(others)))
    return Stage(steps, lambda step, _time: block_pieces(blocks, *rounds[step]), chain=groups == 1)


def _taking_turns(demand: Demand) -> Stage:
    """Return two rounds, in which each rank sends to some of the others, and then to those that have sent to it."""
    check_at_once("spread", demand.ranks * (demand.ranks - 1), "pairwise")
    source, target = _pairs(np.arange(demand.ranks), 1, 0)
    if demand.blocks:
        held = _held(demand)[source, target]
        source, target = source[held], target[held]
    first, blocks = _goes_first(source, target, demand.ranks), blocks_of(demand)
    rounds = [(source[turn], target[turn]) for turn in (first, ~first) if turn.any()]
    steps = tuple(Step(Round(Pattern(*pairs), blocks.bytes(*pairs))) for pairs in rounds)
    return Stage(steps, lambda step, _time: block_pieces(blocks, *rounds[step]))


def _goes_first(source: Ints, target: Ints, ranks: int) -> Mask:
    """Return which of two ranks sends first: the one from which the other is less than half of the way around."""
    further = (target - source) % ranks
    first: Mask = (2 * further < ranks) | ((2 * further == ranks) & (source < target))
    return first


def _held(demand: Demand) -> Mask:
    """Return who has something for whom, bool of shape (ranks, ranks)."""
    held: Mask = np.asarray(demand.blocks) > 0
    np.fill_diagonal(held, val=False)
    return held


def _pairs(order: Ints, groups: int, shift: int) -> tuple[Ints, Ints]:
    """Return (source, target) of all pairs from each of ``groups`` stretches of ``order`` to that ``shift`` further.

    Everybody begins with the one after its own place.
    """
    cuts = np.arange(groups + 1) * len(order) // groups
    group = np.repeat(np.arange(groups), np.diff(cuts))
    place = np.arange(len(order)) - cuts[group]
    begin = cuts[(group + shift) % groups]
    size = cuts[(group + shift) % groups + 1] - begin
    source = np.repeat(np.arange(len(order)), size)
    turn = np.arange(len(source)) - np.repeat(np.cumsum(size) - size, size)
    target = begin[source] + (place[source] + 1 + turn) % size[source]
    others = source != target
    return order[source[others]], order[target[others]]
