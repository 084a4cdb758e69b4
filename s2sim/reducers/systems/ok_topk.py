"""Ok-Topk: pairs to the owners of balanced regions, and the largest sums to all."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import log, sqrt
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Ints
from s2sim.codecs.top_k import elements_kept
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Traits
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.pairs import (
    Pairs,
    concatenate_pairs,
    intersect_pairs,
    merge_pairs,
    pairs_to_mean,
    read_pairs,
    select_pairs,
    send_to_owners,
)
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
    cuts: list[int] | None = field(init=False, repr=False, default=None)  # Where the ranks' regions begin and end
    local: float = field(init=False, repr=False, default=LEAST)  # Least magnitude that this rank selects
    overall: float = field(init=False, repr=False, default=LEAST)  # Least magnitude of a sum that is kept
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

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Select, add up by regions, keep the largest sums, gather them."""
        k = max(1, elements_kept(gradient.size, self.density))
        exact = self.steps % self.recompute == 0
        if exact:
            own = select_largest(rank, gradient, self.density)
            own = select_pairs(own, own.values != 0)
            self.local = _smallest_magnitude(own)
        else:
            own = select_above(rank, gradient, self.local)
            self.local = _adjust_threshold(self.local, len(own), k, _LOCAL_NUDGE, _LOCAL_BAND)
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


def _smallest_magnitude(pairs: Pairs) -> float:
    return float(np.abs(pairs.values).min(initial=np.inf)) if len(pairs) else LEAST


def _adjust_threshold(threshold: float, found: int, k: int, by: float, band: tuple[float, float]) -> float:
    """Return a threshold that selects more if it selected too few, or fewer if it selected too many."""
    if found < band[0] * k:
        return max(LEAST, threshold / by)
    return threshold * by if found > band[1] * k else threshold


def agree_on_regions(rank: Rank, own: Pairs, n: int) -> Generator[Pending, None, list[int]]:
    """Return the bounds of the ranks' regions of ``n`` elements: ranks + 1 positions.

    Each is the mean over ranks of the ends of equal shares of their own pairs, which are sent as fractions of n.
    """
    shares = chunk_bounds(len(own) or n, rank.size)[1:-1]
    ends = own.indices[shares] if len(own) else shares
    fractions = rank.all_reduce((ends / max(n, 1)).astype(np.float32), label="ends of equal shares")
    yield fractions
    means = np.rint(fractions.value.astype(np.float64) * (n / rank.size)).astype(np.int64)
    return [0, *np.minimum(means, n).tolist(), n]


def threshold_of_sums(rank: Rank, sums: Pairs, k: int, whole: int) -> Generator[Pending, None, float]:
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
    gathered = rank.all_gather(probes, label="magnitudes of sums")
    yield gathered

    def least() -> float:
        magnitudes = np.concatenate(gathered.value)
        counts = np.tile(np.diff(positions, prepend=0), rank.size)
        order = np.argsort(-magnitudes, kind="stable")
        reached = np.flatnonzero(np.cumsum(counts[order]) >= k)
        return max(LEAST, float(magnitudes[order[reached[0]]])) if len(reached) else LEAST

    return rank.replicated(least)


def balance_pairs(rank: Rank, held: Pairs, dtype: GradientDtype, *, skew: float) -> Generator[Pending, None, Pairs]:
    """Return this rank's equal share of all owners' pairs, in order, if one has ``skew`` times that; else its own."""
    numbers = rank.all_gather(np.array([len(held)], np.int32), label="numbers of sums")
    yield numbers
    counts = np.concatenate(numbers.value).astype(np.int64)
    if counts.max() * rank.size <= skew * counts.sum():
        return held
    begin = counts[: rank.index].sum()
    cuts = np.clip(chunk_bounds(int(counts.sum()), rank.size) - begin, 0, len(held))
    parts = [Pairs(held.indices[a:b], held.values[a:b]) for a, b in pairwise(cuts)]
    handed = {to: part.message(dtype) for to, part in enumerate(parts) if to != rank.index and len(part)}
    moved = rank.exchange(handed, label="sums to those who hold few", size_from_data=True)
    yield moved
    received = {source: read_pairs(message) for source, message in moved.value.items()}
    received[rank.index] = parts[rank.index]
    return concatenate_pairs([received[source] for source in sorted(received)])


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
