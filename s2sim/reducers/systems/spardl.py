"""SparDL: a reduce-scatter of blocks that are cut to a fixed number of pairs before each hop."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Traits
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.reducers.shared.pairs import (
    NO_PAIRS,
    Pairs,
    PairsMessage,
    add_pairs,
    concatenate_pairs,
    intersect_pairs,
    merge_pairs,
    pairs_to_gradient,
    pairs_to_mean,
    read_padded_pairs,
    read_pairs,
)
from s2sim.reducers.shared.selection import Selecting


class TruncatedBlocks:
    """One rank's blocks of a vector, and the pairs that it has received and sent.

    ``sizes`` are the pairs that each block is truncated to: the density's share of its elements.
    """

    def __init__(self, vector: Floats32, cuts: Ints, density: float, held: GradientDtype) -> None:
        # Copies, so that a block is freed once it has been sent.
        self._parts = [vector[start:stop].copy() for start, stop in pairwise(cuts)]
        self._cuts = cuts
        self._held = held
        self._moved: list[Pairs] = []
        self.sizes = [elements_kept(len(part), density) for part in self._parts]

    def select(self, rank: Rank) -> None:
        """Truncate all blocks, before any has been sent."""
        for part, size in zip(self._parts, self.sizes, strict=True):
            kept = select_top_k(part, size)
            values = part[kept]
            part[:] = 0
            part[kept] = values
        rank.work(cost.select(sum(map(len, self._parts)), sum(self.sizes)))

    def hand_out(
        self, rank: Rank, which: Sequence[int], *, length: int | None = None, share: float = 1.0
    ) -> PairsMessage:
        """Return the largest pairs of some blocks as one message, of each its size or ``length``; the rest is dropped.

        If other ranks send the same, a ``share`` of it counts as this rank's.
        """
        messages = [NO_PAIRS.message(self._held)]
        selected_from = 0
        for block in which:
            part, self._parts[block] = self._parts[block], np.empty(0, np.float32)
            kept = select_top_k(part, self.sizes[block] if length is None else length)
            messages.append(Pairs(kept, part[kept]).message(self._held))
            self._move(block, read_pairs(messages[-1]), share)
            selected_from += len(part)
        indices, values = map(np.concatenate, zip(*messages, strict=True))
        # The same kernels select from all blocks of a round.
        rank.work(cost.select(selected_from, len(indices)))
        return indices, values

    def take_in(self, rank: Rank, which: Sequence[int], message: PairsMessage) -> None:
        """Add the blocks of another rank's message to this rank's."""
        ends = np.cumsum([self.sizes[block] for block in which])[:-1]
        for block, part in zip(which, zip(*(np.split(array, ends) for array in message), strict=True), strict=True):
            received = read_padded_pairs(part)
            with refuse_overflow():
                self._parts[block][received.indices] += received.values
            self._move(block, received, -1)
        rank.work(cost.add_pairs(0, len(message[0])))

    def replace(self, rank: Rank, block: int, messages: Sequence[PairsMessage], share: float) -> int:
        """Set a block that was sent to the sum of its messages; return the sum's number of non-zero elements.

        If other ranks get the same, a ``share`` of it counts as received by this rank.
        """
        size = int(self._cuts[block + 1] - self._cuts[block])
        with refuse_overflow():
            self._parts[block] = total = add_pairs(np.zeros(size, np.float32), messages)
        non_zeros = np.flatnonzero(total)
        self._move(block, Pairs(non_zeros, total[non_zeros]), -share)
        rank.work(cost.add_pairs(total.nbytes, sum(len(indices) for indices, _ in messages)))
        return len(non_zeros)

    def own_share(self, kept: Pairs) -> Pairs:
        """Return this rank's contribution to the sums of the elements ``kept``: sent less received pairs.

        These are its own values except for the dropped ones.
        """
        return intersect_pairs(merge_pairs(self._moved), kept)

    def _move(self, block: int, pairs: Pairs, share: float) -> None:
        self._moved.append(Pairs(pairs.indices + self._cuts[block], pairs.values * np.float32(share)))


@dataclass(slots=True)
class SparDL(Selecting):
    """A Spar-Reduce-Scatter of ceil(log2 P) rounds and an all-gather, of blocks that keep their share of elements.

    B. Zhao et al., ICDE 2024, by the authors' code. Block b of a team of T ranks belongs to its rank b. In a round of
    distance g every rank sends the blocks of those 2g - 1 to g ranks on to the one g on, for g = 2^(l-1), ..., 1. A
    block is cut to its k just before it is sent, not when something is added to it. The code sends a message a block,
    here one message carries all of a round; its second half is a Bruck all-gather, here that of the cluster. Sizes are
    fixed: zeros fill up.

    With ``teams`` of neighbouring ranks, ranks in the same place of all teams then gather h pairs of their block each
    (Spar-All-Gather), cut the sum to k, and go on inside their teams; h moves so that sums have about k.

    What a rank cuts off stays with it, of what all teams cut an equal part. It counts as sent what it has put into the
    elements that the result keeps, so that all ranks' add up to P times the mean (global residual collection).
    """

    minimums: ClassVar = {"teams": 1}
    density: float = option(0.01, "Fraction of each block's elements, zeros included, that is kept, in (0, 1].")
    teams: int = option(1, "How many teams there are; they divide the ranks.")
    local: Literal["all", "selected"] = option(
        "all",
        "What a rank adds to what comes: all of its own block, as the code does, or that block's k largest alone.",
    )

    gathered: float = field(init=False, repr=False, default=0.0)
    """Pairs that each team contributes to the sum of a block; 0 before the first step."""
    stride: float = field(init=False, repr=False, default=0.0)  # By how much that was changed last

    about = Traits(
        name="spardl",
        summary="a reduce-scatter of sparse blocks, cut to size at every hop, and an all-gather",
        source="Zhao et al., SparDL: Distributed Deep Learning Training with Efficient Sparse Communication, ICDE 2024",
        feedback="needed",
        formula="16k(P-1)/P; with d teams 16k(P-d)/P and up to 8k d(d-1)/P",
        certainty="code read",
        scope="gradient",
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Scatter and reduce inside teams, gather between teams, gather inside teams."""
        if rank.size % self.teams:
            raise OptionError(f"spardl: teams={self.teams} does not divide {rank.size} ranks: give a divisor")
        check_key_space(0, gradient.size)
        members = rank.size // self.teams
        first = rank.index - rank.index % members
        team = rank.subgroup(range(first, first + members))
        cuts = chunk_bounds(gradient.size, members)
        blocks = TruncatedBlocks(flat_vector(gradient), cuts, self.density, self.held)
        if self.local == "selected":
            blocks.select(rank)

        # Spar-Reduce-Scatter: every rank ends with the sum of its own block.
        gap = 1 << (members - 1).bit_length() >> 1
        while gap:
            ahead = range(gap, min(2 * gap, members))
            leaving = [(team.index + distance) % members for distance in ahead]
            coming = [(team.index + distance - gap) % members for distance in ahead]
            message = blocks.hand_out(rank, leaving)
            arrived = team.exchange({(team.index + gap) % members: message}, label=f"blocks, {gap} ranks on")
            yield arrived
            blocks.take_in(rank, coming, *arrived.value.values())
            gap //= 2
        if self.teams > 1:
            yield from self._sum_over_teams(rank.subgroup(range(team.index, rank.size, members)), team.index, blocks)

        message = blocks.hand_out(rank, [team.index], share=1 / self.teams)
        sums = team.all_gather(message, label="sums of blocks", unequal=True)
        yield sums
        parts = zip(map(read_padded_pairs, sums.value), cuts.tolist(), strict=False)
        kept = rank.replicated(lambda: concatenate_pairs([part.shifted(begin) for part, begin in parts]))
        rank.work(cost.add_pairs(gradient.nbytes, len(kept)))

        def sent() -> Gradient:
            rank.work(cost.keep_pairs(gradient.nbytes, len(kept)))
            return pairs_to_gradient(blocks.own_share(kept), gradient)

        return Reduced(rank.replicated(lambda: pairs_to_mean(kept, rank.size, gradient)), sent)

    @property
    def traits(self) -> Traits:
        """How many pairs teams gather changes from step to step."""
        return replace(self.about, carries=self.teams > 1)

    def _sum_over_teams(self, across: Rank, block: int, blocks: TruncatedBlocks) -> Generator[Pending, None, None]:
        """Spar-All-Gather: make a block the sum of some pairs of each team, and move their number for the next step."""
        most = blocks.sizes[block]
        least = most / self.teams
        if not self.gathered:
            self.gathered, self.stride = least, (most - least) / 100
        pairs = blocks.hand_out(across, [block], length=min(most, ceil(self.gathered)))
        gathered = across.all_gather(pairs, label="pairs of all teams", unequal=True)
        yield gathered
        found = blocks.replace(across, block, gathered.value, 1 / self.teams)
        # On in the same direction, in strides twice as long, or back in half of them.
        self.stride *= 2 if (found < most) == (self.stride > 0) else -1 / 2
        self.gathered = min(max(self.gathered + self.stride, least), most)
