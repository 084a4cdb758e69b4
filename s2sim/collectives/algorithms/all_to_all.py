"""All-to-all exchanges: pairs in rounds, or grouped sends and receives to many partners concurrently."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.collectives import Kind
from s2sim.collectives.schedules import groups as node_groups
from s2sim.collectives.schedules.demand import Blocks, Demand
from s2sim.collectives.schedules.exchange import Hops, require_uniform_routes
from s2sim.collectives.schedules.schedule import LazySteps, Pattern, Pieces, Round, Schedule, Stage, Step
from s2sim.errors import ContendedError, OptionError
from s2sim.options import option_text
from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Direct(node_groups.OverGroups):
    """One round each way: least latency, P - 1 messages of every rank at once."""

    def stage(self, kind: Kind, groups: node_groups.Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part; member i owns chunk i."""
        members = groups.members
        node_groups.check_at_once(self.name, len(groups.ranks) * members * (members - 1), "ring or halving-doubling")
        sender = np.repeat(np.arange(members), members - 1)
        receiver = (sender + 1 + np.tile(np.arange(members - 1), members)) % members
        pattern = node_groups.pattern_of_members(groups.ranks, sender, receiver)
        stages = []
        if kind in ("all_reduce", "reduce_scatter"):
            stages.append(_owner_round(groups, pattern, chunk=receiver, adds=True))
        if kind in ("all_reduce", "all_gather"):
            stages.append(_owner_round(groups, pattern, chunk=sender, adds=False))
        return node_groups.joined(stages)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time on a full mesh, where every pair of ranks has links of its own.

        R rounds, 2 for an all-reduce and 1 else, of L + b/B; b = D/P, or the largest contribution. Where a rank sends
        all its messages through one port they share it and this form does not hold: with more than two ranks on every
        fabric of switches.
        """
        if demand.ranks == 1:
            return 0.0
        if demand.shared:
            return 2 * hops.round_s(demand.buffer_bytes / demand.ranks)
        if len(set(demand.sizes_bytes.tolist())) > 1 and len((*hops.inside, *hops.across)) > 1:
            raise ContendedError(
                f"{self.name} with unequal contributions has no closed form where ways differ: simulate it instead"
            )
        return hops.round_s(demand.sizes_bytes.max())


def _owner_round(groups: node_groups.Groups, pattern: Pattern, *, chunk: Ints, adds: bool) -> Stage:
    """Return one round in which each message has the chunk of this member of its group."""
    sent = Round(pattern, groups.bytes[:, chunk].reshape(-1))
    pieces = Pieces.one_each(groups.begin[:, chunk], groups.end[:, chunk], adds)
    return Stage((Step(sent),), lambda _step, _time: pieces)


@dataclass(frozen=True, slots=True)
class Pairwise(node_groups.DescribedAlgorithm):
    """One partner a round, P - 1 rounds: every port carries one block at a time."""

    # Whom rank r sends to in round k: (r + k) mod P, or r XOR k, which needs a power of two and lets the two ranks of a
    # pair send to each other
    partners: Literal["shift", "xor"] = "shift"
    # When a round starts: once the one before has arrived, or once its last byte has left
    release: Literal["delivered", "sent"] = "delivered"

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; rounds are created on access, because there are P - 1 of P pairs each."""
        ranks = demand.ranks
        if self.partners == "xor" and ranks & (ranks - 1):
            raise OptionError(
                f"pairwise: partners=xor needs a power of two of ranks, found {ranks}: take partners=shift"
            )
        source = np.arange(ranks)
        blocks = Blocks(demand)

        def step(index: int) -> Step:
            target = self._targets(source, index + 1)
            sent = Round(Pattern(source, target), blocks.bytes(source, target))
            if self.release == "delivered" or index == 0:
                return Step(sent)
            return Step(sent, after=(), after_sent=(index - 1,))

        def pieces(index: int, _time: int) -> Pieces:
            return Pieces.one_each(*blocks.bounds(source, self._targets(source, index + 1)), adds=False)

        stage = Stage(LazySteps(ranks - 1, step), pieces, chain=self.release == "delivered")
        return node_groups.schedule_of(demand, option_text(self), stage)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time on a fabric where messages share nothing, b_k the largest block of round k.

        The sum of L + b_k/B over the P - 1 rounds, or L + the sum of b_k/B where a round follows the last byte of the
        one before. Blocks that are cut evenly count their rank's contribution over P.
        """
        if demand.ranks == 1:
            return 0.0
        require_uniform_routes(self.name, hops)
        source, blocks = np.arange(demand.ranks), Blocks(demand)
        *others, last = (float(blocks.bytes(source, self._targets(source, k)).max()) for k in range(1, demand.ranks))
        clocked_s = hops.round_s if self.release == "delivered" else hops.sending_s
        return sum(map(clocked_s, others)) + hops.round_s(last)

    def _targets(self, source: Ints, k: int) -> Ints:
        return source ^ k if self.partners == "xor" else (source + k) % len(source)


# Libraries throttle too: MPICH has 32 sends and receives of an alltoallv outstanding (MPIR_CVAR_ALLTOALL_THROTTLE).
# At the end of every block of a different size all rates are solved again: with 64 ranks this takes seconds for all
# partners at once, and a tenth of it for 16; durations are within 2 % of each other on fat trees and 30 % elsewhere.
_UNEQUAL_PARTNERS = 16


@dataclass(frozen=True, slots=True)
class SpreadOut(node_groups.DescribedAlgorithm):
    """All messages in one round: they share every port, and the fluid network divides it.

    With fewer ``partners`` at once, ranks in the order of their nodes are cut into groups of that many. In round k
    every rank of group i sends to all of group i + k, and a round follows the last byte of the one before. Unless
    given, all are partners; or 16 where blocks differ in size from pair to pair.

    With ``turns`` one of any two ranks sends to the other first, and gets what is for it then: so it goes where both
    ways are one connection, on which a rank's word that it is ready to receive waits behind what it sends.
    """

    minimums: ClassVar = {"partners": 1}
    partners: int | None = None
    turns: bool = False

    def __post_init__(self) -> None:
        node_groups.DescribedAlgorithm.__post_init__(self)
        if self.turns and self.partners is not None:
            raise OptionError(f"spread: partners={self.partners} beside turns=true: leave one out")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule: each rank sends its stretch to the next, or each of its blocks to its owner."""
        if demand.kind == "send_recv":
            if self.partners is not None or self.turns:
                given = "turns=true" if self.turns else f"partners={self.partners}"
                raise OptionError(f"spread: {given} changes nothing in send_recv: leave it out")
            source, pieces = np.arange(demand.ranks), Pieces.one_each(*demand.stretches(), adds=False)
            step = Step(Round(Pattern(source, (source + 1) % demand.ranks), demand.sizes_bytes))
            return node_groups.schedule_of(demand, self.name, Stage((step,), lambda _step, _time: pieces))
        if self.turns:
            return node_groups.schedule_of(demand, option_text(self), _alternating_rounds(demand))
        partners = self.partners
        if partners is None and demand.blocks and _has_block(demand).sum(axis=1).max() > _UNEQUAL_PARTNERS:
            partners = _UNEQUAL_PARTNERS
        text = option_text(replace(self, partners=partners))
        return node_groups.schedule_of(
            demand, text, _grouped_rounds(demand, cluster.node_of_rank, partners or demand.ranks)
        )

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where every pair has links of its own: L + b/B, b the largest message.

        On any fabric where a rank has one port, the blocks of an all_to_all share it and this form does not hold.
        """
        if demand.ranks == 1:
            return 0.0
        if demand.blocks or len(set(demand.elements)) > 1:
            require_uniform_routes(self.name, hops)
        if demand.kind == "send_recv":
            return hops.round_s(float(demand.sizes_bytes.max()))
        if self.partners is not None and self.partners < demand.ranks:
            raise ContendedError(
                f"{self.name} of {self.partners} partners at once has no closed form: simulate it instead"
            )
        source, target = _partner_pairs(np.arange(demand.ranks), 1, 0)
        if self.turns:
            first = _goes_first(source, target, demand.ranks)
            sizes = Blocks(demand).bytes(source, target)
            # A turn in which nobody has a block is no round.
            turns = [each for each in (sizes[first], sizes[~first]) if not demand.blocks or each.any()]
            return sum(hops.round_s(float(each.max())) for each in turns)
        return hops.round_s(float(Blocks(demand).bytes(source, target).max()))


def _grouped_rounds(demand: Demand, node_of_rank: Ints, partners: int) -> Stage:
    """Return the rounds in which each rank sends its blocks to the others, a group of ``partners`` per round."""
    # Empty blocks, which are most if only some ranks are peers, are not sent.
    ranks = demand.ranks
    held = _has_block(demand) if demand.blocks else None
    node_groups.check_at_once("spread", ranks * (ranks - 1) if held is None else int(held.sum()), "pairwise")
    groups = -(-ranks // partners)
    order = np.arange(ranks) if groups == 1 else np.argsort(node_of_rank[:ranks], kind="stable")
    blocks = Blocks(demand)
    if held is not None and groups == 1:
        source, target = np.nonzero(held)
        first_after = np.lexsort(((target - source) % ranks, source))
        patterns = [Pattern(source[first_after], target[first_after])]
    else:
        patterns = [_held_part(each, held) for each in _partner_patterns(order.tobytes(), groups)]
    first, *others = [Round(each, blocks.bytes(each.src, each.dst)) for each in patterns]
    steps = (Step(first), *(Step(each, after=(), after_sent=(number,)) for number, each in enumerate(others)))
    return Stage(steps, _block_pieces(blocks, [(each.src, each.dst) for each in patterns]), chain=groups == 1)


@lru_cache(maxsize=1)
def _partner_patterns(order: bytes, groups: int) -> tuple[Pattern, ...]:
    """Return the messages between the ranks of each round, which demands of several sizes share."""
    ranks = np.frombuffer(order, np.int64)
    return tuple(Pattern(*_partner_pairs(ranks, groups, shift)) for shift in range(groups))


def _held_part(pattern: Pattern, held: Mask | None) -> Pattern:
    """Return the messages that have a block: the pattern itself where all have."""
    sent = None if held is None else held[pattern.src, pattern.dst]
    return pattern if sent is None or sent.all() else Pattern(pattern.src[sent], pattern.dst[sent])


def _alternating_rounds(demand: Demand) -> Stage:
    """Return two rounds: each rank sends to some of the others, then to those that have sent to it."""
    node_groups.check_at_once("spread", demand.ranks * (demand.ranks - 1), "pairwise")
    source, target = _partner_pairs(np.arange(demand.ranks), 1, 0)
    if demand.blocks:
        held = _has_block(demand)[source, target]
        source, target = source[held], target[held]
    first, blocks = _goes_first(source, target, demand.ranks), Blocks(demand)
    rounds = [(source[turn], target[turn]) for turn in (first, ~first) if turn.any()]
    steps = tuple(Step(Round(Pattern(*pairs), blocks.bytes(*pairs))) for pairs in rounds)
    return Stage(steps, _block_pieces(blocks, rounds))


def _block_pieces(blocks: Blocks, rounds: Sequence[tuple[Ints, Ints]]) -> Callable[[int, int], Pieces]:
    return lambda step, _time: Pieces.one_each(*blocks.bounds(*rounds[step]), adds=False)


def _goes_first(source: Ints, target: Ints, ranks: int) -> Mask:
    """Return a mask of the pairs whose first rank sends first: to ranks less than half of the ring ahead."""
    further = (target - source) % ranks
    first: Mask = (2 * further < ranks) | ((2 * further == ranks) & (source < target))
    return first


def _has_block(demand: Demand) -> Mask:
    """Return a mask of the non-empty blocks for other ranks, bool of shape (ranks, ranks)."""
    assert demand.blocks
    held: Mask = demand.blocks.dense > 0
    np.fill_diagonal(held, val=False)
    return held


def _partner_pairs(order: Ints, groups: int, shift: int) -> tuple[Ints, Ints]:
    """Return (source, target) of all pairs from each of ``groups`` sections of ``order`` to the one ``shift`` ahead."""
    # Every rank begins with the target after its own position.
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
