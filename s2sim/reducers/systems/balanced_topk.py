"""Sparse all-reduce with balanced parts: Ok-Topk and SparDL."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Literal

import numpy as np

from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options, option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Pending, Program, Rank, Reduced, Traits
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.blocks import TruncatedBlocks
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.reducers.shared.owners import LEAST, agree_on_regions, balance_pairs, send_to_owners, threshold_of_sums
from s2sim.reducers.shared.pairs import (
    Pairs,
    concatenate_pairs,
    intersect_pairs,
    merge_pairs,
    pairs_to_gradient,
    pairs_to_mean,
    read_pairs,
    select_pairs,
)
from s2sim.reducers.shared.selection import Selecting, select_above, select_largest

# The authors' settings for VGG and LSTM: for how many steps thresholds and regions are kept, and by what thresholds are
# nudged once what they select is no longer between these shares of k.
_RECOMPUTE_EVERY, _REGIONS_EVERY = 32, 64
_LOCAL_NUDGE, _LOCAL_BAND = 1.012, (2 / 3, 5 / 4)
_GLOBAL_NUDGE, _GLOBAL_BAND = 1.008, (2 / 3, 4 / 3)

# How many times its share an owner may hold before sums are moved.
_SKEW = 4


@dataclass(slots=True)
class OkTopK(Selecting):
    """A split-and-reduce of pairs to the owners of regions, and a balanced all-gather of the largest sums.

    S. Li and T. Hoefler, PPoPP 2022, algorithms 1 and 2 by a detailed summary and the authors' code. Every
    ``recompute`` steps both thresholds are exact, and so is the result: the k largest of the sums of all ranks' k
    largest. In between a step selects by the last thresholds, which are nudged when they select too few or too many.
    As implemented, indices of the sums travel as float32 (VGG, LSTM), and the first steps of training are dense
    (neither is done here).

    A rank counts as sent what it selected and the result keeps.
    """

    density: float = option(
        0.01, "Fraction of the elements, zeros included, that each rank selects and the result keeps, in (0, 1]."
    )
    recompute: int = option(
        _RECOMPUTE_EVERY, "Steps for which thresholds hold, tau' in the paper; 32 for VGG and LSTM, 128 for BERT."
    )
    sums: Literal["large", "all"] = option(
        "large",
        "What owners gather when they look for the exact threshold: all sums, as the code does, or little more than "
        "the k largest, after they have told each other the magnitudes at some places of their order.",
    )
    balance: Literal["skewed", "always", "never"] = option(
        "skewed",
        "When sums are moved before they are gathered, so that ranks gather as many each: where one has four times "
        "its share, as in the paper (recalled); as the code does for BERT; or as it does for VGG.",
    )

    steps: int = field(init=False, repr=False, default=0)
    cuts: list[int] | None = field(init=False, repr=False, default=None)
    """Where the ranks' regions begin and end."""
    local: float = field(init=False, repr=False, default=LEAST)
    """Least magnitude that this rank selects."""
    overall: float = field(init=False, repr=False, default=LEAST)
    """Least magnitude of a sum that is kept."""
    whole: int | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """Elements of the gradient of which those at hand are a small copy."""

    about = Traits(
        name="ok-topk",
        summary="pairs to the owners of balanced regions, and the largest sums to all",
        source="Li and Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP 2022; "
        "github.com/Shigangli/Ok-Topk",
        carries=True,
        feedback="needed",
        formula="8k(P-1)/P to 24k(P-1)/P",
        certainty="summary read",
        scope="gradient",
    )

    def __post_init__(self) -> None:
        Selecting.__post_init__(self)
        check_options(self, "ok-topk", recompute=1)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Select, add up by regions, keep the largest sums, gather them."""
        k = max(1, elements_kept(gradient.size, self.density))
        exact = self.steps % self.recompute == 0
        own = self._select(rank, gradient, k, exact=exact)
        if self.cuts is None or self.steps % _REGIONS_EVERY == 0:
            self.cuts = yield from agree_on_regions(rank, own, gradient.size)
        self.steps += 1

        # Split and reduce: every pair to the owner of its region, who adds them up.
        came = yield from send_to_owners(rank, own.split(self.cuts), self.held, size_from_data=True)
        sums = merge_pairs([read_pairs(message) for message in came]).shifted(self.cuts[rank.index])
        rank.work(cost.merge_pairs_cost(sum(len(indices) for indices, _ in came), len(sums), rank.size))

        # Balance and gather: those of the sums that are large enough.
        if exact:
            whole = k if self.whole is None else max(k, elements_kept(self.whole, self.density))
            self.overall = (yield from threshold_of_sums(rank, sums, k, whole)) if self.sums == "large" else LEAST
        large = select_pairs(sums, np.abs(sums.values) >= self.overall)
        if self.balance != "never":
            large = yield from balance_pairs(rank, large, self.held, skew=_SKEW if self.balance == "skewed" else 1)
        gathered = rank.all_gather(large.message(self.held), label="largest sums", size_from_data=True)
        yield gathered

        found = rank.replicated(lambda: concatenate_pairs([read_pairs(message) for message in gathered.value]))
        rank.work(cost.add_pairs(gradient.nbytes, len(found)))
        kept = found
        if exact:
            rank.work(cost.select(len(found), k))
            kept = rank.replicated(lambda: found.largest(k))
            self.overall = _smallest_magnitude(kept)
        else:
            self.overall = _adjust_threshold(self.overall, len(kept), k, _GLOBAL_NUDGE, _GLOBAL_BAND)
        mean = rank.replicated(lambda: pairs_to_mean(kept, rank.size, gradient))
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, intersect_pairs(own, kept)))

    def sized(self, elements: Mapping[str, int]) -> OkTopK:
        """Return one that looks for its threshold as closely as in layers of this size."""
        return self.variant(whole=sum(elements.values()))

    def later_options(self) -> tuple[str, ...]:
        """Return ``recompute`` if it was given: the first step is exact."""
        return () if self.recompute == _RECOMPUTE_EVERY else ("recompute",)

    def _select(self, rank: Rank, gradient: Gradient, k: int, *, exact: bool) -> Pairs:
        """Return the k largest elements that are not zero, or those that reach the last threshold."""
        if exact:
            own = select_largest(rank, gradient, self.density)
            own = select_pairs(own, own.values != 0)
            self.local = _smallest_magnitude(own)
        else:
            own = select_above(rank, gradient, self.local)
            self.local = _adjust_threshold(self.local, len(own), k, _LOCAL_NUDGE, _LOCAL_BAND)
        return own


def _smallest_magnitude(pairs: Pairs) -> float:
    return float(np.abs(pairs.values).min(initial=np.inf)) if len(pairs) else LEAST


def _adjust_threshold(threshold: float, found: int, k: int, by: float, band: tuple[float, float]) -> float:
    """Return a threshold that selects more if it selected too few, or fewer if it selected too many."""
    if found < band[0] * k:
        return max(LEAST, threshold / by)
    return threshold * by if found > band[1] * k else threshold


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

    density: float = option(0.01, "Fraction of each block's elements, zeros included, that is kept, in (0, 1].")
    teams: int = option(1, "How many teams there are; they divide the ranks.")
    local: Literal["all", "selected"] = option(
        "all",
        "What a rank adds to what comes: all of its own block, as the code does, or that block's k largest alone.",
    )

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
