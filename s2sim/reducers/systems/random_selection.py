"""Elements chosen by chance: blocks, single ones, and by size (Wangni et al.)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError
from s2sim.options import check_options, check_shares, option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Traits
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import Message, Scattered
from s2sim.reducers.shared.selection import Granularity, RandomSelecting, Seed, Segments


@dataclass(slots=True)
class RandomBlock(RandomSelecting):
    """An all-reduce of one block of k neighbours from each layer, at a place that a shared seed draws.

    Of the paper only the abstract was read, which names random blocks and three parameters without saying which. The
    block is that of the same lab's ``RandomSparseBlockReducer`` (epfml/powersgd): in each tensor a start uniform in
    [0, n), the same on all ranks, the block going round the end; the values of all tensors packed into one all-reduce.
    That the three parameters are which coordinates are picked and whether ranks share them, layer or whole gradient,
    and feedback, is inferred: here they are the selectors ``topk``, ``random-k`` and ``random-block`` with ``seed=``,
    ``granularity=`` and ``ef=true``.

    Every element is in the block with probability k/n: E ||x - C(x)||^2 = (1 - k/n) ||x||^2, as of random-k, but memory
    is copied in one run, and the host draws where it begins.
    """

    density: float = 0.01
    seed: Seed = option(
        "shared",
        "With ranks' own seeds, an all-gather of a number and k values for each block, (4k+4)(P-1) bytes with "
        "``granularity=global``, as in the first author's code for MLBench: there the block is one of floor(n/k) "
        "that do not overlap, so that the last n mod k elements are never sent. It sends the number as float32, "
        "here it is uint32.",
    )
    granularity: Granularity = "layer"

    scattered: ClassVar[bool] = False

    about = Traits(
        name="random-block",
        summary="an all-reduce of one block of k neighbours a layer, where a shared seed draws it",
        source="Eghlidi and Jaggi, Sparse Communication for Training Deep Networks, arXiv:2009.09271; "
        "github.com/epfml/powersgd, github.com/mlbench/mlbench-core",
        feedback="needed",
        formula="8k(P-1)/P",
        certainty="code read",
        size_only=True,
    )

    def draw(self, word: int, parts: Segments) -> Ints:
        """Draw a start in every segment."""
        generator = np.random.default_rng(word)
        return self._blocks([self._start(generator, stop - start, k) for (start, stop), k in self._sized(parts)], parts)

    def address(self, word: int, chosen: Ints, parts: Segments) -> NDArray[Any]:
        """Send where each block begins."""
        firsts = np.cumsum([0, *self.counts(parts)])[:-1]
        starts: Ints = chosen[firsts] - np.array([start for start, _ in parts], np.int64)
        return starts.astype(np.uint32)

    def addressed(self, address: NDArray[Any], parts: Segments) -> Ints:
        """Read where each block begins."""
        return self._blocks(address.tolist(), parts)

    def _start(self, generator: np.random.Generator, n: int, k: int) -> int:
        """Return the first element of the block: any, or of ranks' own blocks a multiple of k."""
        return int(generator.integers(n)) if self.seed == "shared" else k * int(generator.integers(n // k))

    def _blocks(self, starts: list[int], parts: Segments) -> Ints:
        """Return the elements of one block in each segment, which may go round its end."""
        blocks = [np.empty(0, np.int64)]
        for at, ((start, stop), k) in zip(starts, self._sized(parts), strict=True):
            n = stop - start
            round_the_end = np.arange(max(0, at + k - n), dtype=np.int64)
            blocks += [start + round_the_end, start + np.arange(at, min(at + k, n), dtype=np.int64)]
        return np.concatenate(blocks)

    def _sized(self, parts: Segments) -> list[tuple[tuple[int, int], int]]:
        return list(zip(parts, self.counts(parts), strict=True))

    @property
    def traits(self) -> Traits:
        """Bytes are those of the collective in use."""
        starts = "4" if self.granularity == "global" else "4L"
        return self.about if self.seed == "shared" else replace(self.about, formula=f"(4k+{starts})(P-1)")


@dataclass(slots=True)
class RandomK(RandomSelecting):
    """An all-reduce of k elements drawn without replacement, or an all-gather of those that each rank has drawn.

    C(x) keeps k of n elements: E ||x - C(x)||^2 = (1 - k/n) ||x||^2, a contraction, so that error feedback mends what
    is lost (Stich et al., section 2). Times n/k, C(x) is unbiased and has n/k times the second moment.

    As implemented: GRACE shares the seed but draws with replacement, so that an element may travel twice; MLBench gives
    ranks seeds of their own and sends indices as float32. Here draws are without replacement, as Stich et al. define
    them, and indices are uint32. ``seed=shared`` with ``granularity=layer`` is ``RandomSparseReducer`` of
    epfml/powersgd.
    """

    density: float = 0.01
    seed: Seed = option("shared", "With ranks' own seeds, pairs are gathered: 8k(P-1) bytes.")
    granularity: Granularity = "layer"
    scale: bool = option(False, "Send the values times n/k, which makes the mean unbiased, in place of error feedback.")
    send: Literal["indices", "seed"] = option(
        "indices",
        "What of ranks' own draws travels beside the values: 4 bytes an index, or the 8 bytes of the seed, from "
        "which the others draw again: (4k+8)(P-1) bytes.",
    )

    about = Traits(
        name="random-k",
        summary="an all-reduce of k elements that a shared seed draws, or an all-gather of ranks' own draws",
        source="Stich et al., Sparsified SGD with Memory, NeurIPS 2018; GRACE (randomk); github.com/epfml/powersgd",
        feedback="needed",
        formula="8k(P-1)/P",
        certainty="code read",
        size_only=True,
    )

    def __post_init__(self) -> None:
        RandomSelecting.__post_init__(self)
        if self.send == "seed" and self.seed == "shared":
            raise OptionError("random-k: send=seed changes nothing where ranks share a seed: give seed=own too")

    def draw(self, word: int, parts: Segments) -> Ints:
        """Draw k different elements of every segment."""
        generator = np.random.default_rng(word)
        drawn = [np.empty(0, np.int64)]
        for (start, stop), k in zip(parts, self.counts(parts), strict=True):
            drawn.append(start + np.sort(generator.choice(stop - start, k, replace=False, shuffle=False)))
        return np.concatenate(drawn)

    def address(self, word: int, chosen: Ints, parts: Segments) -> NDArray[Any]:
        """Send the indices, or the seed."""
        return np.array([word], np.uint64) if self.redraws else chosen.astype(np.uint32)

    def addressed(self, address: NDArray[Any], parts: Segments) -> Ints:
        """Read the indices, or draw again."""
        return self.draw(int(address[0]), parts) if self.redraws else address.astype(np.int64)

    @property
    def redraws(self) -> bool:
        """Whether seeds travel."""
        return self.send == "seed"

    def factors(self, parts: Segments) -> Floats32 | np.float32:
        """Return n/k of each segment if asked for."""
        if not self.scale:
            return np.float32(1)
        counts = self.counts(parts)
        scales = [(stop - start) / k for (start, stop), k in zip(parts, counts, strict=True)]
        return np.repeat(np.array(scales, np.float32), counts)

    @property
    def traits(self) -> Traits:
        """What is unbiased needs no feedback; bytes are those of the collective in use."""
        own = "(4k+8)(P-1)" if self.redraws else "8k(P-1)"
        formula = self.about.formula if self.seed == "shared" else own
        return replace(self.about, feedback="no" if self.scale else "needed", formula=formula)


# With fewer bits than a byte has, the number of indices would not follow from their bytes.
_MIN_INDEX_BITS = 8


@dataclass(slots=True)
class Wangni(Scattered):
    """Element i is kept with probability p_i = min(lambda |g_i|, 1), and then sent as g_i / p_i: unbiased.

    J. Wangni, J. Wang, J. Liu, T. Zhang, "Gradient Sparsification for Communication-Efficient Distributed
    Optimization", NeurIPS 2018, algorithm 3, recalled but for its number of rounds: lambda is such that ``density`` of
    the elements are kept on average, found by giving what is cut at 1 to the others, a few times. Elements that are
    certain travel as index and value; all others have the magnitude 1 / lambda, so that an index and a sign will do.
    Indices have ceil(log2 n) bits.
    """

    density: float = option(
        0.02, "Expected share of a tensor's elements that is kept, in (0, 1]; fewer where many are cut at 1."
    )
    rounds: int = option(2, "How often what is cut is given to the others.")

    bits: int | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """Of an index, where it runs on small copies: those that most elements of the layers themselves need."""

    aggregate = "gather"

    about = Traits(
        name="wangni",
        summary="each element kept with a probability that suits its magnitude, and scaled to be unbiased",
        source="Wangni et al., Gradient Sparsification, NeurIPS 2018",
        formula="(A(4 + log2(n)/8) + B(log2(n) + 1)/8 + 4L)(P-1), A certain and B drawn",
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        check_options(self, "wangni", rounds=0)
        check_shares(self, "wangni", "density")

    def sized(self, elements: Mapping[str, int]) -> Wangni:
        """Return one whose indices are as long as those of layers of this size."""
        whole = sum(elements.values())
        bits = sum(count * _index_bits(count) for count in elements.values())
        return self.variant(bits=round(bits / whole) if whole else None)

    def inverse_lambda(self, vector: Floats32) -> np.float32:
        """Return 1 / lambda, the magnitude from which on elements are certain; 0 where all that are not zero are."""
        magnitudes = np.abs(vector)
        kept = self.density * len(vector)
        inverse = magnitudes.sum(dtype=np.float64) / kept
        for _ in range(self.rounds):
            free = magnitudes < inverse
            # What is left for those that are not certain, and their magnitudes, which share it.
            left = kept - (len(vector) - np.count_nonzero(free))
            total = magnitudes.sum(dtype=np.float64, where=free)
            if left <= 0 or total / left >= inverse:
                break
            inverse = total / left
        return np.float32(min(inverse, np.finfo(np.float32).max))

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return indices and values of what is certain, and of what is drawn indices with signs, and 1 / lambda."""
        inverse = self.inverse_lambda(vector)
        draws = random.random(len(vector), dtype=np.float32)
        draws *= inverse
        kept = np.flatnonzero(np.abs(vector) > draws)
        values = vector[kept]
        certain = np.abs(values) >= inverse
        drawn = kept[~certain].astype(np.uint64) << np.uint64(1) | (values[~certain] < 0)
        bits = self.bits or _index_bits(len(vector))
        return (
            pack_integers(kept[certain].astype(np.uint32), bits),
            round_to_dtype(values[certain], self.held),
            pack_integers(drawn, bits + 1),
            np.array([inverse], np.float32),
        )

    def read(self, message: Message, elements: int) -> tuple[NDArray[Any], Floats32]:
        """Return the places of what is certain and what was drawn, and values and 1 / lambda with signs."""
        indices, values, packed, (inverse,) = message
        bits = self.bits or _index_bits(elements)
        certain = unpack_integers(indices, bits, len(values))
        drawn = unpack_integers(packed, bits + 1, 8 * len(packed) // (bits + 1))
        at = np.concatenate((certain, drawn >> 1))
        return at, np.concatenate((widen(values), np.where(drawn & 1, -inverse, inverse)))

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        """Return the cost of adding every element that is kept where it belongs."""
        return cost.add_pairs(cost.VALUE_BYTES * elements, messages * elements_kept(elements, self.density))


def _index_bits(elements: int) -> int:
    return max(_MIN_INDEX_BITS, (elements - 1).bit_length())
