"""Random-k sparsification: k elements drawn at random, by all ranks the same ones, or by each its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32, Ints
from s2sim.errors import OptionError
from s2sim.reducers.rank import Traits
from s2sim.reducers.shared.selection import Granularity, RandomSelecting, Seed, Segments


@dataclass(slots=True)
class RandomK(RandomSelecting):
    """An all-reduce of k elements drawn without replacement, or an all-gather of those that each rank has drawn.

    C(x) keeps k of n elements: E ||x - C(x)||^2 = (1 - k/n) ||x||^2, a contraction, so that error feedback mends what
    is lost (Stich et al., section 2). Times n/k, C(x) is unbiased and has n/k times the second moment.

    As implemented: GRACE shares the seed but draws with replacement, so that an element may travel twice; MLBench gives
    ranks seeds of their own and sends indices as float32. Here draws are without replacement, as Stich et al. define
    them, and indices are uint32. ``seed=shared`` with ``granularity=layer`` is ``RandomSparseReducer`` of
    epfml/powersgd.

    Attributes
    ----------
    seed : {"shared", "own"}
        With ranks' own seeds, pairs are gathered: 8k(P-1) bytes.
    scale : bool
        Send the values times n/k, which makes the mean unbiased, in place of error feedback.
    send : {"indices", "seed"}
        What of ranks' own draws travels beside the values: 4 bytes an index, or the 8 bytes of the seed, from which the
        others draw again: (4k+8)(P-1) bytes.
    """

    density: float = 0.01
    seed: Seed = "shared"
    granularity: Granularity = "layer"
    scale: bool = False
    send: Literal["indices", "seed"] = "indices"

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
