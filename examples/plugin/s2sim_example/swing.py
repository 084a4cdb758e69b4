"""The collective algorithm swing: recursive halving and doubling with partners that lie near on a ring.

Source: D. De Sensi, T. Bonato, D. Saam, T. Hoefler, "Swing: Short-cutting Rings for Higher Bandwidth Allreduce", NSDI
2024. This is its bandwidth-optimal variant in one dimension, over one port at a time, for a power of two of ranks.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from s2sim.arrays import Array, Ints
from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hops, require_uniform_routes
from s2sim.collectives.schedules.groups import Groups, OverGroups, group_of_all, pattern_of_members
from s2sim.collectives.schedules.schedule import Pieces, Round, Stage, Step, traffic_between
from s2sim.errors import OptionError


def swing_partners(members: int) -> list[Ints]:
    """Return the partner of each member in each round, int64 of shape (members,): to one side and the other in turn.

    In round s even members meet the one ``(1 - (-2)^(s+1)) / 3`` further on, odd ones the one as far back: at distances
    1, 1, 3, 5, 11, ..., a third less in the long run than the 1, 2, 4, 8, 16, ... of recursive halving.

    >>> [partner.tolist() for partner in swing_partners(4)]
    [[1, 0, 3, 2], [3, 2, 1, 0]]
    """
    if members & (members - 1):
        raise OptionError(f"swing: {members} ranks are no power of two: take ring, or halving-doubling")
    member = np.arange(members, dtype=np.int64)
    side = np.where(member % 2 == 0, 1, -1)
    rounds = members.bit_length() - 1
    return [(member + side * ((1 - (-2) ** (number + 1)) // 3)) % members for number in range(rounds)]


def kept_totals(values: Array, partners: list[Ints]) -> list[Array]:
    """Return what each member has still to sum before each round and after the last, by ``values`` of its chunks.

    A member keeps before round s what it and its partner of that round keep behind it. Arrays are of shape (G, p).
    """
    totals = [values]
    for partner in reversed(partners):
        totals.append(totals[-1] + totals[-1][:, partner])
    return totals[::-1]


def kept_chunks(members: int, partners: list[Ints]) -> Ints:
    """Return the chunks that each member keeps before the first of these rounds, int64 of shape (members, chunks)."""
    chunks = np.arange(members, dtype=np.int64)[:, None]
    for partner in reversed(partners):
        chunks = np.concatenate([chunks, chunks[partner]], axis=1)
    return chunks


@dataclass(frozen=True, slots=True)
class Swing(OverGroups):
    """Recursive halving, then doubling, with partners on either side in turn, at 1, 1, 3, 5, 11, ... ranks.

    In a round of the halving each of two partners sends what the other keeps; the doubling is the same backwards. It
    sends as many bytes in as many rounds as halving-doubling, over fewer links of a ring.
    """

    name: ClassVar[str] = "swing"
    source: ClassVar[str] = "De Sensi, Bonato, Saam and Hoefler, NSDI 2024"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce", "reduce_scatter", "all_gather")

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group runs ``kind`` on its part."""
        member, partners = np.arange(groups.members), swing_partners(groups.members)
        patterns = [pattern_of_members(groups.ranks, member, partner) for partner in partners]
        halving = [(number, True) for number in range(len(partners))] if kind != "all_gather" else []
        doubling = [(number, False) for number in reversed(range(len(partners)))] if kind != "reduce_scatter" else []
        rounds = [*halving, *doubling]

        def sent(values: Array) -> list[Array]:
            kept = kept_totals(values, partners)
            return [kept[at + 1][:, partners[at]] if adds else kept[at + 1] for at, adds in rounds]

        def pieces(step: int, _time: int) -> Pieces:
            at, adds = rounds[step]
            chunks = kept_chunks(groups.members, partners[at + 1 :])
            chunks = chunks[partners[at]] if adds else chunks
            begin, end = groups.begin[:, chunks], groups.end[:, chunks]
            message = np.repeat(np.arange(groups.ranks.size), chunks.shape[1])
            return Pieces(message, begin.reshape(-1), end.reshape(-1), np.full(begin.size, adds))

        def volume(ranks: int) -> Ints:
            total = np.zeros((2, ranks), np.int64)
            for (at, _), elements in zip(rounds, sent(groups.end - groups.begin), strict=True):
                total += traffic_between(ranks, patterns[at].src, patterns[at].dst, elements)
            return total

        sizes_bytes = [size_bytes.reshape(-1) for size_bytes in sent(groups.bytes)]
        steps = [Step(Round(patterns[at], size)) for (at, _), size in zip(rounds, sizes_bytes, strict=True)]
        return Stage(steps, pieces, volume)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time without shared links: log2(P)·L + (P-1)/P·D/B, and twice that for an all-reduce.

        Where contributions differ each round takes as long as its largest message.
        """
        require_uniform_routes(self.name, hops)
        kept = kept_totals(group_of_all(demand).bytes, swing_partners(demand.ranks))[1:]
        once_s = sum(hops.round_s(float(size_bytes.max())) for size_bytes in kept)
        return 2 * once_s if demand.kind == "all_reduce" else once_s
