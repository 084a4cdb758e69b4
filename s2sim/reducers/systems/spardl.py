"""SparDL: a reduce-scatter of sparse blocks that are cut to size before every hop, and an all-gather of the sums."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Literal

from s2sim.codecs.hashing import check_key_space
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Pending, Program, Rank, Reduced, Traits
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.blocks import TruncatedBlocks
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.reducers.shared.pairs import pairs_to_gradient, pairs_to_mean
from s2sim.reducers.shared.selection import Selecting


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

    Attributes
    ----------
    density : float
        Fraction of each block's elements, zeros included, that is kept, in (0, 1].
    teams : int
        How many teams there are; they divide the ranks.
    local : {"all", "selected"}
        What a rank adds to what comes: all of its own block, as the code does, or that block's k largest alone.
    """

    density: float = 0.01
    teams: int = 1
    local: Literal["all", "selected"] = "all"

    gathered: float = field(init=False, repr=False, default=0.0)
    """Pairs that each team contributes to the sum of a block; 0 before the first step."""
    stride: float = field(init=False, repr=False, default=0.0)
    """By how much that was changed last."""

    about = Traits(
        name="spardl",
        summary="a reduce-scatter of sparse blocks, cut to size at every hop, and an all-gather",
        source="Zhao et al., SparDL: Distributed Deep Learning Training with Efficient Sparse Communication, ICDE 2024",
        feedback="needed",
        formula="16k(P-1)/P; with d teams 16k(P-d)/P and up to 8k d(d-1)/P",
        certainty="code read",
        scope="gradient",
    )

    def __post_init__(self) -> None:
        Selecting.__post_init__(self)
        check_options(self, "spardl", teams=1)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Scatter and reduce inside teams, gather between teams, gather inside teams."""
        if rank.size % self.teams:
            raise OptionError(f"spardl: teams={self.teams} does not divide {rank.size} ranks: give a divisor")
        check_key_space(0, gradient.size)
        members = rank.size // self.teams
        first = rank.index - rank.index % members
        team = rank.subgroup(range(first, first + members))
        blocks = TruncatedBlocks(flat_vector(gradient), chunk_bounds(gradient.size, members), self.density, self.held)
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
        kept = rank.replicated(lambda: blocks.read_all(sums.value))
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
