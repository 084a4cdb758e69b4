"""Random-block sparsification: one run of k neighbours, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Ints
from s2sim.reducers.rank import Traits
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

    Attributes
    ----------
    seed : {"shared", "own"}
        With ranks' own seeds, an all-gather of a number and k values for each block, (4k+4)(P-1) bytes with
        ``granularity=global``, as in the first author's code for MLBench: there the block is one of floor(n/k) that do
        not overlap, so that the last n mod k elements are never sent. It sends the number as float32, here it is
        uint32.
    """

    density: float = 0.01
    seed: Seed = "shared"
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
