"""Elements chosen by chance, blocks or single ones, or by a mask that all ranks know (PacTrain)."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self, TypeAlias

import numpy as np

from s2sim.arrays import Array, Floats32, Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
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
    """A reducer that sends elements drawn by a generator."""

    __slots__ = ()
    seed: Seed
    granularity: Granularity

    scattered: ClassVar[bool] = True
    """Whether the GPU samples elements one by one, and reads memory at random addresses."""

    @abstractmethod
    def draw(self, word: int, parts: Segments) -> Ints:
        """Return the elements for a random 64-bit word, int64, increasing."""

    @abstractmethod
    def address(self, word: int, chosen: Ints, parts: Segments) -> Array:
        """Return the array from which other ranks know the elements ``chosen`` by a rank."""

    @abstractmethod
    def addressed(self, address: Array, parts: Segments) -> Ints:
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
            came = yield from rank.all_reduce(values, label="values of the same elements")
        else:
            came = yield from rank.all_gather((self.address(word, chosen, parts), values), label="drawn elements")
        messages = 1 if shared else rank.size
        if self.redraws and not shared:
            rank.work(cost.draw_cost(messages * len(chosen), messages * len(parts), "decode"))
        rank.work(cost.scatter_cost(gradient.nbytes, messages * len(chosen), scattered=self.scattered))

        def mean() -> Gradient:
            vector = np.zeros(gradient.size, np.float32)
            if shared:
                vector[chosen] = widen(came)
            else:
                for address, received in came:
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
    seed: Seed = "shared"
    granularity: Granularity = "layer"

    scattered: ClassVar[bool] = False

    def draw(self, word: int, parts: Segments) -> Ints:
        """Draw the first element of a block in every segment: any, or of ranks' own blocks a multiple of k."""
        draw, shared = np.random.default_rng(word).integers, self.seed == "shared"
        return _blocks([int(draw(n)) if shared else k * int(draw(n // k)) for _, n, k in parts], parts)

    def address(self, word: int, chosen: Ints, parts: Segments) -> Array:
        firsts = np.cumsum([0, *(k for _, _, k in parts)])[:-1]
        starts: Ints = chosen[firsts] - np.array([start for start, _, _ in parts], np.int64)
        return starts.astype(np.uint32)

    def addressed(self, address: Array, parts: Segments) -> Ints:
        return _blocks(address.tolist(), parts)

    @property
    def traits(self) -> Traits:
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
    seed: Seed = "shared"
    granularity: Granularity = "layer"
    scale: bool = False
    needs: ClassVar = {"send": "seed=own"}
    send: Literal["indices", "seed"] = "indices"

    def draw(self, word: int, parts: Segments) -> Ints:
        generator = np.random.default_rng(word)
        drawn = [start + np.sort(generator.choice(n, k, replace=False, shuffle=False)) for start, n, k in parts]
        return np.concatenate([np.empty(0, np.int64), *drawn])

    def address(self, word: int, chosen: Ints, parts: Segments) -> Array:
        return np.array([word], np.uint64) if self.redraws else chosen.astype(np.uint32)

    def addressed(self, address: Array, parts: Segments) -> Ints:
        return self.draw(int(address[0]), parts) if self.redraws else address.astype(np.int64)

    @property
    def redraws(self) -> bool:
        return self.send == "seed"

    def factors(self, parts: Segments) -> Floats32 | np.float32:
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
    training is no error. Nothing of it is fed back, nor needs to be.
    """

    compresses_all = True
    intervals: ClassVar = {"pruned": "[0, 1)"}
    pruned: float = 0.8
    mask: Literal["random", "magnitude"] = "random"
    ternary: bool = False

    kept: Ints | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """The mask of largest magnitude, once it is fitted."""

    @property
    def traits(self) -> Traits:
        """Ternary values take a byte each; all of it is for a training that prunes."""
        formula = "2(1-s)n(P-1)/P, and 4 for the scale" if self.ternary else self.about.formula
        assumes = f"{self.pruned:.0%} of the weights are pruned, and those of this mask" if self.pruned else ""
        return replace(self.about, formula=formula, assumes=assumes)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
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

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        """Return the same with the mask of what is largest in the mean of these gradients."""
        if self.mask == "random":
            return self
        with refuse_overflow():
            total = sum((flat_vector(gradient) for gradient in gradients), np.zeros(gradients[0].size, np.float32))
        return self.variant(kept=select_top_k(total, elements_kept(len(total), 1 - self.pruned)))

    def notes(self) -> tuple[str, ...]:
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
