"""Gradients of more ranks than were recorded, drawn on demand by a fitted law.

The reducers then run on real arrays for every rank, so that whatever a reducer does with sizes, overlaps or values is
done and not guessed. A rank beyond the recorded ones has one of them, drawn by chance, as its parent:

- Of each row-sparse layer it holds as many rows as its parent. Which, is drawn by the law
  (`s2sim.gradients.extrapolation.law`): each row has a probability that fits the number of recorded ranks that hold
  it, and rows are drawn with these probabilities without replacement (B. Rosén, "On sampling with probability
  proportional to size", JSPI 1997).
- The values of a row are what the recorded ranks have in common there, plus or minus what one of them has beside it.
  In common is their mean, shrunk by as much as chance alone would leave of it (W. James and C. Stein, "Estimation with
  quadratic loss", 1961): a mere copy would count the chance of a recorded rank twice, so that a sum over ranks grew too
  fast where they do not agree. A row that no recorded rank holds takes what one of the rarest rows has, either sign.
- Dense layers are its parent's. Zeros in them do not thin out with more ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.statistics import check_place, holders
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Floats, Ints
    from s2sim.gradients.extrapolation.law import RankLaw
    from s2sim.gradients.gradient import Layer
    from s2sim.gradients.statistics import GradientSource
    from s2sim.gradients.traces.manifest import Manifest


@dataclass(frozen=True, slots=True, eq=False)
class SomeRanks:
    """The first ranks of a source of gradients, each gradient changed in the same way."""

    source: GradientSource
    world_size: int
    change: Callable[[Gradient], Gradient]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.source.steps

    def gradient(self, step: int, rank: int) -> Gradient:
        """Return one rank's gradient of one step."""
        return self.change(self.source.gradient(step, rank))


@dataclass(frozen=True, slots=True, eq=False)
class MoreRanks:
    """A recorded trace, whose ranks come first as they are, and as many more as asked for, which hold rows by a law.

    ``seed`` is the root of what is drawn; a rank's gradient does not depend on how many there are.
    """

    name: str
    manifest: Manifest
    source: GradientSource
    law: RankLaw
    world_size: int
    seed: int
    _recorded: dict[int, list[Gradient]] = field(default_factory=dict, init=False, repr=False)
    _pools: dict[int, list[_Pool | None]] = field(default_factory=dict, init=False, repr=False)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.source.steps

    def gradient(self, step: int, rank: int) -> Gradient:
        """Return one rank's gradient of one step: recorded, or drawn by the law."""
        check_place(self.name, self, step, rank)
        if rank < self.source.world_size:
            return self.source.gradient(step, rank)
        if step not in self._recorded:
            self._recorded[step] = [self.source.gradient(step, other) for other in range(self.source.world_size)]
            self._pools[step] = self._make_pools(step, self._recorded[step])
        generator = named_generator(self.seed, "extrapolated rank", step, rank)
        parent = self._recorded[step][int(generator.integers(self.source.world_size))]
        layers: list[Layer] = []
        for layer, pool in zip(parent.layers, self._pools[step], strict=True):
            if isinstance(layer, RowSparse):
                assert pool is not None
                layers.append(pool.draw(len(layer.rows), layer.shape, generator))
            else:
                layers.append(layer)
        return Gradient(parent.names, tuple(layers))

    def _make_pools(self, step: int, recorded: Sequence[Gradient]) -> list[_Pool | None]:
        pools: list[_Pool | None] = []
        for index, (law, counts) in enumerate(zip(self.law.layers, holders(recorded), strict=True)):
            if law is None or counts is None:
                pools.append(None)
                continue
            generator = named_generator(self.seed, "row probabilities", step, index)
            probabilities = law.draw(counts, len(recorded), generator)
            layers = [layer for gradient in recorded if isinstance(layer := gradient.layers[index], RowSparse)]
            pools.append(_Pool.of(layers, counts, probabilities))
        return pools


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """The rows of one table as the recorded ranks hold them.

    Attributes
    ----------
    odds : float64 array, shape (rows,)
        Probability over its complement that a rank holds a row; infinite for those that all hold.
    common : array, shape (held rows + 1, width)
        What the ranks have in common in each row that any of them holds; the last is 0, for all other rows.
    own : array, shape (held, width)
        What each rank has beside it, row by row.
    places, starts, counts : int64 array, shape (rows,)
        Which line of ``common`` belongs to a row; where its values begin in ``own``, and how many there are; of a row
        that none holds, those of the rarest.
    """

    odds: Floats
    common: NDArray[Any]
    own: NDArray[Any]
    places: Ints
    starts: Ints
    counts: Ints

    @classmethod
    def of(cls, layers: Sequence[RowSparse], counts: Ints, probabilities: Floats) -> _Pool:
        rows = np.concatenate([layer.rows for layer in layers])
        values = np.concatenate([layer.values.reshape(len(layer.rows), layer.width) for layer in layers])
        # The rarest rows come first, where the values of rows that nobody was seen to hold begin as well.
        order = np.argsort(counts, kind="stable")
        starts = np.empty_like(counts)
        starts[order] = np.cumsum(counts[order]) - counts[order]
        rarest = counts[rows] == counts[counts > 0].min(initial=len(layers))
        held = order[counts[order] > 0]
        common, own = _split(values[np.lexsort((rows, counts[rows]))], counts[held])
        places = np.full_like(counts, len(held))
        places[held] = np.arange(len(held))
        with np.errstate(divide="ignore"):
            odds = probabilities / (1 - probabilities)
        return cls(odds, common, own, places, starts, np.where(counts == 0, np.count_nonzero(rarest), counts))

    def draw(self, count: int, shape: tuple[int, ...], generator: np.random.Generator) -> RowSparse:
        """Return ``count`` rows with their values; fewer where the law lets fewer be held at all."""
        uniform = generator.random(len(self.odds))
        count = min(count, int(np.count_nonzero(self.odds)))
        with np.errstate(divide="ignore"):
            # Rosén's Pareto sampling: those with the smallest ratio of the odds of a uniform number to their own.
            ratios = uniform / (1 - uniform) / self.odds
        rows = np.sort(np.argpartition(ratios, count - 1)[:count]) if count else np.empty(0, np.int64)
        chosen = self.starts[rows] + generator.integers(self.counts[rows])
        signs = generator.choice(np.array([-1, 1], self.own.dtype), (count, 1))
        values = self.common[self.places[rows]] + signs * self.own[chosen]
        return RowSparse(rows, values.reshape(count, *shape[1:]), shape)


def _split(values: NDArray[Any], counts: Ints) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what the ranks have in common in each row, and what each has beside it: shapes (rows + 1 | held, width).

    ``values`` are those of all rows, one after the other, each of which has so many lines there. The last line in
    common is 0. What is beside is as large as the spread of the ranks; all of the value where only one rank holds a
    row.
    """
    common = np.zeros((len(counts) + 1, values.shape[1]), values.dtype)
    if not len(counts):
        return common, values
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(values, starts) / counts[:, None]
    spread = values - means.repeat(counts, axis=0)
    # Of the squared length of a mean, chance makes up the ranks' variance over their number.
    others = np.maximum(counts - 1, 1)
    chance = np.add.reduceat(np.square(spread).sum(axis=1), starts) / others / counts
    lengths = np.square(means).sum(axis=1)
    kept = np.where((counts > 1) & (lengths > chance), 1 - chance / np.where(lengths > 0, lengths, 1), 0)
    common[:-1] = kept[:, None] * means
    wider = np.sqrt(counts / others).repeat(counts)[:, None]
    own = np.where((counts == 1).repeat(counts)[:, None], values, wider * spread)
    return common, own.astype(values.dtype)
