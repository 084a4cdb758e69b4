"""Pairs to the owners of regions, and the largest sums to all: Ok-Topk's are balanced, SparDL's blocks of one size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, log, sqrt
from typing import ClassVar, Literal, Self

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.codecs import hashing, top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers import reduction, script
from s2sim.reducers.rank import GradientDtype, Program, Rank, Reduced, Traits, Waits
from s2sim.reducers.shared import pairs as coo
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.reducers.shared.selection import Selecting, select_above, select_largest

# The authors' settings for VGG and LSTM: for how many steps thresholds and regions are kept, and by what thresholds are
# nudged once what they select is no longer between these shares of k.
_RECOMPUTE_EVERY, _REGIONS_EVERY = 32, 64
_LOCAL_NUDGE, _LOCAL_BAND = 1.012, (2 / 3, 5 / 4)
_GLOBAL_NUDGE, _GLOBAL_BAND = 1.008, (2 / 3, 4 / 3)

# How many times its share an owner may hold before sums are moved.
_SKEW = 4

LEAST = float(np.finfo(np.float32).smallest_subnormal)
"""The least non-zero magnitude."""

_FINEST = 1 / 64  # The smallest relative step of `_probe_ranks`


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

    minimums: ClassVar = {"recompute": 1}
    density: float = 0.01
    recompute: int = _RECOMPUTE_EVERY
    sums: Literal["large", "all"] = "large"
    balance: Literal["skewed", "always", "never"] = "skewed"

    steps: int = field(init=False, repr=False, default=0)
    cuts: list[int] | None = field(init=False, repr=False, default=None)  # Where the ranks' regions begin and end
    local: float = field(init=False, repr=False, default=LEAST)  # Least magnitude that this rank selects
    overall: float = field(init=False, repr=False, default=LEAST)  # Least magnitude of a sum that is kept
    whole: int | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """Elements of the gradient of which those at hand are a small copy."""

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        k = max(1, top_k.elements_kept(gradient.size, self.density))
        exact = self.steps % self.recompute == 0
        if exact:
            own = select_largest(rank, gradient, self.density)
            own = coo.select_pairs(own, own.values != 0)
            self.local = _smallest_magnitude(own)
        else:
            own = select_above(rank, gradient, self.local)
            self.local = _adjust_threshold(self.local, len(own), k, _LOCAL_NUDGE, _LOCAL_BAND)
        if self.cuts is None or self.steps % _REGIONS_EVERY == 0:
            self.cuts = yield from agree_on_regions(rank, own, gradient.size)
        self.steps += 1

        # Split and reduce: every pair to the owner of its region, who adds them up.
        came = yield from coo.send_to_owners(rank, own.split(self.cuts), self.held, size_from_data=True)
        sums = coo.merge_pairs([coo.read_pairs(message) for message in came]).shifted(self.cuts[rank.index])
        rank.work(cost.merge_pairs_cost(sum(len(indices) for indices, _ in came), len(sums), rank.size))

        # Balance and gather: those of the sums that are large enough.
        if exact:
            whole = k if self.whole is None else max(k, top_k.elements_kept(self.whole, self.density))
            self.overall = (yield from threshold_of_sums(rank, sums, k, whole)) if self.sums == "large" else LEAST
        large = coo.select_pairs(sums, np.abs(sums.values) >= self.overall)
        if self.balance != "never":
            large = yield from balance_pairs(rank, large, self.held, skew=_SKEW if self.balance == "skewed" else 1)
        gathered = yield from rank.all_gather(large.message(self.held), label="largest sums", size_from_data=True)

        found = rank.replicated(lambda: coo.concatenate_pairs([coo.read_pairs(message) for message in gathered]))
        rank.work(cost.add_pairs(gradient.nbytes, len(found)))
        kept = found
        if exact:
            rank.work(cost.select(len(found), k))
            kept = rank.replicated(lambda: found.largest(k))
            self.overall = _smallest_magnitude(kept)
        else:
            self.overall = _adjust_threshold(self.overall, len(kept), k, _GLOBAL_NUDGE, _GLOBAL_BAND)
        mean = rank.replicated(lambda: coo.pairs_to_mean(kept, rank.size, gradient))
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, coo.intersect_pairs(own, kept)))

    def sized(self, elements: Mapping[str, int]) -> Self:
        """Return one that looks for its threshold as closely as in layers of this size."""
        return self.variant(whole=sum(elements.values()))

    def later_options(self) -> tuple[str, ...]:
        """Return ``recompute`` if it was given: the first step is exact."""
        return () if self.recompute == _RECOMPUTE_EVERY else ("recompute",)


def _smallest_magnitude(pairs: coo.Pairs) -> float:
    return float(np.abs(pairs.values).min(initial=np.inf)) if len(pairs) else LEAST


def _adjust_threshold(threshold: float, found: int, k: int, by: float, band: tuple[float, float]) -> float:
    """Return a threshold that selects more if it selected too few, or fewer if it selected too many."""
    if found < band[0] * k:
        return max(LEAST, threshold / by)
    return threshold * by if found > band[1] * k else threshold


def agree_on_regions(rank: Rank, own: coo.Pairs, n: int) -> Waits[list[int]]:
    """Return the bounds of the ranks' regions of ``n`` elements: ranks + 1 positions.

    Each is the mean over ranks of the ends of equal shares of their own pairs, which are sent as fractions of n.
    """
    shares = script.chunk_bounds(len(own) or n, rank.size)[1:-1]
    ends = own.indices[shares] if len(own) else shares
    fractions = yield from rank.all_reduce((ends / max(n, 1)).astype(np.float32), label="ends of equal shares")
    return [0, *np.minimum(np.rint(fractions.astype(np.float64) * (n / rank.size)).astype(np.int64), n).tolist(), n]


def threshold_of_sums(rank: Rank, sums: coo.Pairs, k: int, whole: int) -> Waits[float]:
    """Return a magnitude that at least the ``k`` largest of all owners' sums reach, and few others.

    Owners gather the magnitudes at some positions of their order: c sums reach that at position c, which bounds the
    number of sums from below. The positions are chosen for ``whole``, which differs from k only if the sums are those
    of a small copy, and are scaled to k.
    """
    positions = np.maximum(1, _probe_ranks(whole, rank.size) * k // whole)
    probes = np.zeros(len(positions), np.float32)
    rank.work(cost.select(len(sums), len(sums)))
    falling = -np.sort(-np.abs(sums.values))
    present = positions <= len(sums)
    probes[present] = falling[positions[present] - 1]
    gathered = yield from rank.all_gather(probes, label="magnitudes of sums")

    def least() -> float:
        magnitudes = np.concatenate(gathered)
        counts = np.tile(np.diff(positions, prepend=0), rank.size)
        order = np.argsort(-magnitudes, kind="stable")
        reached = np.flatnonzero(np.cumsum(counts[order]) >= k)
        return max(LEAST, float(magnitudes[order[reached[0]]])) if len(reached) else LEAST

    return rank.replicated(least)


def balance_pairs(rank: Rank, held: coo.Pairs, dtype: GradientDtype, *, skew: float) -> Waits[coo.Pairs]:
    """Return this rank's equal share of all owners' pairs, in order, if one has ``skew`` times that; else its own."""
    numbers = yield from rank.all_gather(np.array([len(held)], np.int32), label="numbers of sums")
    counts = np.concatenate(numbers).astype(np.int64)
    if counts.max() * rank.size <= skew * counts.sum():
        return held
    cuts = np.clip(script.chunk_bounds(int(counts.sum()), rank.size) - counts[: rank.index].sum(), 0, len(held))
    parts = [coo.Pairs(held.indices[a:b], held.values[a:b]) for a, b in pairwise(cuts)]
    handed = {to: part.message(dtype) for to, part in enumerate(parts) if to != rank.index and len(part)}
    moved = yield from rank.exchange(handed, label="sums to those who hold few", size_from_data=True)
    received = {source: coo.read_pairs(message) for source, message in moved.items()}
    received[rank.index] = parts[rank.index]
    return coo.concatenate_pairs([received[source] for source in sorted(received)])


def _probe_ranks(k: int, ranks: int) -> Ints:
    """Return positions that increase by a relative step, from this part of an equal share of ``k`` to k.

    There are (1 + ln ranks) / step of them, of four bytes each, and up to ``step`` k pairs of eight bytes too many are
    selected; the step is the one for which both take equally many bytes.
    """
    step = min(1.0, max(_FINEST, sqrt((ranks - 1) * (1 + log(ranks)) / k)))
    first = max(1, int(k * step / ranks))
    positions = [min(first, k)]
    while positions[-1] < k:
        positions.append(min(k, max(positions[-1] + first, int(positions[-1] * (1 + step)))))
    return np.array(positions, np.int64)


class TruncatedBlocks:
    """One rank's blocks of a vector, and the pairs that it has received and sent.

    ``sizes`` are the pairs that each block is truncated to: the density's share of its elements.
    """

    def __init__(self, vector: Floats32, cuts: Ints, density: float, held: GradientDtype) -> None:
        # Copies, so that a block is freed once it has been sent.
        self._parts = [vector[start:stop].copy() for start, stop in pairwise(cuts)]
        self._cuts = cuts
        self._held = held
        self.moved: list[coo.Pairs] = []
        self.sizes = [top_k.elements_kept(len(part), density) for part in self._parts]

    def select(self, rank: Rank) -> None:
        """Truncate all blocks, before any has been sent."""
        for part, size in zip(self._parts, self.sizes, strict=True):
            kept = top_k.select_top_k(part, size)
            values = part[kept]
            part[:] = 0
            part[kept] = values
        rank.work(cost.select(sum(map(len, self._parts)), sum(self.sizes)))

    def hand_out(
        self, rank: Rank, which: Sequence[int], *, length: int | None = None, share: float = 1.0
    ) -> coo.PairsMessage:
        """Return the largest pairs of some blocks as one message, of each its size or ``length``; the rest is dropped.

        If other ranks send the same, a ``share`` of it counts as this rank's.
        """
        messages = [coo.NO_PAIRS.message(self._held)]
        selected_from = 0
        for block in which:
            part, self._parts[block] = self._parts[block], np.empty(0, np.float32)
            kept = top_k.select_top_k(part, self.sizes[block] if length is None else length)
            messages.append(coo.Pairs(kept, part[kept]).message(self._held))
            self._move(block, coo.read_pairs(messages[-1]), share)
            selected_from += len(part)
        indices, values = map(np.concatenate, zip(*messages, strict=True))
        # The same kernels select from all blocks of a round.
        rank.work(cost.select(selected_from, len(indices)))
        return indices, values

    def take_in(self, rank: Rank, which: Sequence[int], message: coo.PairsMessage) -> None:
        """Add the blocks of another rank's message to this rank's."""
        ends = np.cumsum([self.sizes[block] for block in which])[:-1]
        for block, part in zip(which, zip(*(np.split(array, ends) for array in message), strict=True), strict=True):
            received = coo.read_padded_pairs(part)
            with reduction.refuse_overflow():
                self._parts[block][received.indices] += received.values
            self._move(block, received, -1)
        rank.work(cost.add_pairs(0, len(message[0])))

    def replace(self, rank: Rank, block: int, messages: Sequence[coo.PairsMessage], share: float) -> int:
        """Set a block that was sent to the sum of its messages; return the sum's number of non-zero elements.

        If other ranks get the same, a ``share`` of it counts as received by this rank.
        """
        size = int(self._cuts[block + 1] - self._cuts[block])
        with reduction.refuse_overflow():
            self._parts[block] = total = coo.add_pairs(np.zeros(size, np.float32), messages)
        non_zeros = np.flatnonzero(total)
        self._move(block, coo.Pairs(non_zeros, total[non_zeros]), -share)
        rank.work(cost.add_pairs(total.nbytes, sum(len(indices) for indices, _ in messages)))
        return len(non_zeros)

    def _move(self, block: int, pairs: coo.Pairs, share: float) -> None:
        self.moved.append(coo.Pairs(pairs.indices + self._cuts[block], pairs.values * np.float32(share)))


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
    density: float = 0.01
    teams: int = 1
    local: Literal["all", "selected"] = "all"

    gathered: float = field(init=False, repr=False, default=0.0)
    """Pairs that each team contributes to the sum of a block; 0 before the first step."""
    stride: float = field(init=False, repr=False, default=0.0)  # By how much that was changed last

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        if rank.size % self.teams:
            raise OptionError(f"spardl: teams={self.teams} does not divide {rank.size} ranks: give a divisor")
        hashing.check_key_space(0, gradient.size)
        members = rank.size // self.teams
        first = rank.index - rank.index % members
        team = rank.subgroup(range(first, first + members))
        cuts = script.chunk_bounds(gradient.size, members)
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
            arrived = yield from team.exchange({(team.index + gap) % members: message}, label=f"blocks, {gap} ranks on")
            blocks.take_in(rank, coming, *arrived.values())
            gap //= 2
        if self.teams > 1:
            yield from self._sum_over_teams(rank.subgroup(range(team.index, rank.size, members)), team.index, blocks)

        message = blocks.hand_out(rank, [team.index], share=1 / self.teams)
        sums = yield from team.all_gather(message, label="sums of blocks", unequal=True)
        parts = zip(map(coo.read_padded_pairs, sums), cuts.tolist(), strict=False)
        kept = rank.replicated(lambda: coo.concatenate_pairs([part.shifted(begin) for part, begin in parts]))
        rank.work(cost.add_pairs(gradient.nbytes, len(kept)))

        def sent() -> Gradient:
            rank.work(cost.keep_pairs(gradient.nbytes, len(kept)))
            # What it has sent less what it has received: its own values but for those that were dropped.
            return coo.pairs_to_gradient(coo.intersect_pairs(coo.merge_pairs(blocks.moved), kept), gradient)

        return Reduced(rank.replicated(lambda: coo.pairs_to_mean(kept, rank.size, gradient)), sent)

    @property
    def traits(self) -> Traits:
        """How many pairs teams gather changes from step to step."""
        return replace(self.about, carries=self.teams > 1)

    def _sum_over_teams(self, across: Rank, block: int, blocks: TruncatedBlocks) -> Waits[None]:
        """Spar-All-Gather: make a block the sum of some pairs of each team, and move their number for the next step."""
        most = blocks.sizes[block]
        least = most / self.teams
        if not self.gathered:
            self.gathered, self.stride = least, (most - least) / 100
        pairs = blocks.hand_out(across, [block], length=min(most, ceil(self.gathered)))
        gathered = yield from across.all_gather(pairs, label="pairs of all teams", unequal=True)
        found = blocks.replace(across, block, gathered, 1 / self.teams)
        # On in the same direction, in strides twice as long, or back in half of them.
        self.stride *= 2 if (found < most) == (self.stride > 0) else -1 / 2
        self.gathered = min(max(self.gathered + self.stride, least), most)
