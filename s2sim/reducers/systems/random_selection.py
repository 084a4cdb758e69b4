"""Elements chosen by chance, blocks or single ones, or by a mask that all ranks know (PacTrain)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector
from s2sim.reducers.shared.pairs import Pairs
from s2sim.reducers.shared.selection import Granularity, Selecting, segments, smallest_kept_share
from s2sim.reducers.systems.dense import Dense, all_reduce_scaled
from s2sim.seeds import named_generator

Seed: TypeAlias = Literal["shared", "own"]

Segments: TypeAlias = "Sequence[tuple[int, int, int]]"
"""Where each range of elements that the density applies to begins, its length n, and how many of it are sent, k."""


class RandomSelecting(Selecting):
    """A reducer that sends elements drawn by a generator.

    Attributes
    ----------
    seed : {"shared", "own"}
        With a seed that all ranks share they draw the same elements: values alone travel, in an all-reduce. With a seed
        of their own they draw different ones, and gather values with what tells where they belong.
    granularity : {"layer", "global"}
        Whether the density is that of each layer or of the whole gradient. The values of all layers are packed into one
        message in both.
    """

    __slots__ = ()
    seed: Seed
    granularity: Granularity

    scattered: ClassVar[bool] = True
    """Whether the GPU samples elements one by one, and reads memory at random addresses."""

    @abstractmethod
    def draw(self, word: int, parts: Segments) -> Ints:
        """Return the elements for a random 64-bit word, int64, increasing."""

    @abstractmethod
    def address(self, word: int, chosen: Ints, parts: Segments) -> NDArray[Any]:
        """Return the array from which other ranks know the elements ``chosen`` by a rank."""

    @abstractmethod
    def addressed(self, address: NDArray[Any], parts: Segments) -> Ints:
        """Return the elements of an `address`."""

    @property
    def redraws(self) -> bool:
        """Whether receivers have to repeat the sampling of the other ranks."""
        return False

    def factors(self, parts: Segments) -> Floats32 | np.float32:
        """Return the factors of the values that are sent."""
        return np.float32(1)

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n, the probability that an element is sent, unless values are scaled."""
        sent_as_is = np.isscalar(self.factors(()))
        return smallest_kept_share(gradient, self.density, self.granularity) if sent_as_is else None

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Sample; then sum the values of the same elements, or gather those of different ones."""
        check_key_space(0, gradient.size)
        ranges = segments(gradient, self.granularity)
        parts = [(start, stop - start, elements_kept(stop - start, self.density)) for start, stop in ranges]
        shared = self.seed == "shared"
        generator = named_generator(rank.seed, self.about.name, "shared" if shared else rank.index, rank.step)
        word = int(generator.integers(2**64, dtype=np.uint64))
        chosen = rank.replicated(lambda: self.draw(word, parts)) if shared else self.draw(word, parts)
        if self.scattered:
            rank.work(cost.draw_cost(len(chosen), len(parts), "encode"))
        rank.work(cost.copy_out_cost(len(chosen), scattered=self.scattered))
        own: Floats32 = flat_vector(gradient)[chosen] * self.factors(parts)
        values = round_to_dtype(own, self.held)

        if shared:
            posted, messages = rank.all_reduce(values, label="values of the same elements"), 1
        else:
            message = self.address(word, chosen, parts), values
            posted, messages = rank.all_gather(message, label="drawn elements"), rank.size
        yield posted
        if self.redraws and not shared:
            rank.work(cost.draw_cost(messages * len(chosen), messages * len(parts), "decode"))
        rank.work(cost.scatter_cost(gradient.nbytes, messages * len(chosen), scattered=self.scattered))

        def mean() -> Gradient:
            vector = np.zeros(gradient.size, np.float32)
            if shared:
                vector[chosen] = widen(posted.value)
            else:
                for address, received in posted.value:
                    vector[self.addressed(address, parts)] += widen(received)
            return from_flat_vector(vector / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, Pairs(chosen, own)))


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
        """Draw the first element of a block in every segment: any, or of ranks' own blocks a multiple of k."""
        draw, shared = np.random.default_rng(word).integers, self.seed == "shared"
        return _blocks([int(draw(n)) if shared else k * int(draw(n // k)) for _, n, k in parts], parts)

    def address(self, word: int, chosen: Ints, parts: Segments) -> NDArray[Any]:
        """Send where each block begins."""
        firsts = np.cumsum([0, *(k for _, _, k in parts)])[:-1]
        starts: Ints = chosen[firsts] - np.array([start for start, _, _ in parts], np.int64)
        return starts.astype(np.uint32)

    def addressed(self, address: NDArray[Any], parts: Segments) -> Ints:
        """Read where each block begins."""
        return _blocks(address.tolist(), parts)

    @property
    def traits(self) -> Traits:
        """Bytes are those of the collective in use."""
        starts = "4" if self.granularity == "global" else "4L"
        return self.about if self.seed == "shared" else replace(self.about, formula=f"(4k+{starts})(P-1)")


def _blocks(firsts: Sequence[int], parts: Segments) -> Ints:
    """Return the elements of one block in each segment, which may go round its end."""
    blocks = [np.empty(0, np.int64)]
    for first, (start, n, k) in zip(firsts, parts, strict=True):
        blocks += [start + np.arange(max(0, first + k - n)), start + np.arange(first, min(first + k, n))]
    return np.concatenate(blocks)


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
        for start, n, k in parts:
            drawn.append(start + np.sort(generator.choice(n, k, replace=False, shuffle=False)))
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
        return np.repeat(np.array([n / k for _, n, k in parts], np.float32), [k for _, _, k in parts])

    @property
    def traits(self) -> Traits:
        """What is unbiased needs no feedback; bytes are those of the collective in use."""
        own = "(4k+8)(P-1)" if self.redraws else "8k(P-1)"
        formula = self.about.formula if self.seed == "shared" else own
        return replace(self.about, feedback="no" if self.scale else "needed", formula=formula)


@dataclass(slots=True)
class PacTrain(Reducer):
    """An all-reduce of the gradients of those weights that are not pruned, packed by a mask that all ranks know.

    Wang et al., arXiv:2505.18563, by its abstract and a summary; costs are derived. A mask costs no bytes: it changes
    rarely, by n/8 bytes. What the paper's training does, pruned weights without a gradient, the gradients of a trace
    have not been through: all that they hold outside of the mask is lost here and shows as error, which in such a
    training is no error. Nothing of it is fed back.
    """

    compresses_all = True
    pruned: float = option(0.8, "Share of the weights that is pruned, from 0 and below 1.")
    mask: Literal["random", "magnitude"] = option(
        "random",
        "Which weights are left, as a trace has no weights: any, drawn once by the shared seed, or those whose mean "
        "gradient is largest in the first step, which is the smallest error that any mask can have there.",
    )
    ternary: bool = option(
        False,
        "Send what is left as -1, 0 or 1 times the largest magnitude over ranks, drawn at random without bias, summed "
        "in a byte, or two from 128 ranks on. ceil(log2(2P + 1)) bits would do in a network that adds them.",
    )

    kept: Ints | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """The mask of largest magnitude, once it is fitted."""

    about = Traits(
        name="pactrain",
        summary="an all-reduce of the gradients of weights that are not pruned, by a mask that all know",
        source="Wang, Wu, Li and Kutscher, PacTrain, arXiv:2505.18563",
        feedback="own",
        formula="8(1-s)n(P-1)/P",
        certainty="summary read",
    )

    def __post_init__(self) -> None:
        Reducer.__post_init__(self)
        if not 0 <= self.pruned < 1:
            raise OptionError(f"pactrain: pruned={self.pruned} is not a share from 0 and below 1")

    @property
    def traits(self) -> Traits:
        """Ternary values take a byte each; all of it is for a training that prunes."""
        formula = "2(1-s)n(P-1)/P, and 4 for the scale" if self.ternary else self.about.formula
        assumes = f"{self.pruned:.0%} of the weights are pruned, and those of this mask" if self.pruned else ""
        return replace(self.about, formula=formula, assumes=assumes)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Pack what is not pruned, sum it, put it back."""
        kept = rank.replicated(lambda: self._mask(rank.seed, gradient.size))
        rank.work(cost.copy_out_cost(len(kept), scattered=True))
        values = flat_vector(gradient)[kept]
        packed = Gradient(("not pruned",), (values,))
        if self.ternary:
            reduced = yield from all_reduce_scaled(rank, packed, [values], levels=1)
        else:
            reduced = yield from Dense().with_dtype(self.held).reduce(rank, packed)
        rank.work(cost.scatter_cost(gradient.nbytes, len(kept), scattered=True))

        def put_back(packed: Gradient) -> Gradient:
            vector = np.zeros(gradient.size, np.float32)
            vector[kept] = flat_vector(packed)
            return from_flat_vector(vector, gradient)

        return Reduced(rank.replicated(lambda: put_back(reduced.mean)), sent=lambda: put_back(reduced.sent()))

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> PacTrain:
        """Return the same with the mask of what is largest in the mean of these gradients."""
        if self.mask == "random":
            return self
        with refuse_overflow():
            total = sum((flat_vector(gradient) for gradient in gradients), np.zeros(gradients[0].size, np.float32))
        return self.variant(kept=select_top_k(total, elements_kept(len(total), 1 - self.pruned)))

    def notes(self) -> tuple[str, ...]:
        """Return what is assumed."""
        return (
            f"{self.pruned:.0%} of the weights are taken to be pruned ({self.mask} mask); a trace has their gradients",
        )

    def _mask(self, seed: int, elements: int) -> Ints:
        if self.mask == "random":
            random = named_generator(seed, "pactrain")
            drawn = random.choice(elements, elements_kept(elements, 1 - self.pruned), replace=False, shuffle=False)
            return np.sort(drawn)
        if self.kept is None:
            raise OptionError("pactrain: mask=magnitude is found on gradients first: see Reducer.fitted")
        return self.kept
