"""The law that says how the union of the ranks' rows grows beyond the ranks that were recorded.

Every row of a table has a probability of its own with which a rank holds it: high for a common word, low for a rare
one, 1 for what all ranks share (the negatives of a sampled softmax). In how many of R ranks a row was seen is then
binomial, and the counts of all rows together tell how the probabilities are spread over the table. This mixture is
fitted by maximum likelihood without assuming a shape (N. Laird, "Nonparametric maximum likelihood estimation of a
mixing distribution", JASA 1978); species counts are extrapolated in the same way (C. X. Mao, R. K. Colwell and
J. Chang, "Estimating the species accumulation curve using mixtures", Biometrics 2005). Because the size of the table is
known, rows that nobody held count as well, and the union can never exceed the table.

Assuming a shape does worse on the shipped traces: with a beta distribution the union of 64 ranks, predicted from 32, is
10 to 14 % too small on word tables; Zipf's law fits these but is 6 % too large on the users of ``ncf``.

Gradients of more ranks than were recorded, drawn on demand by a fitted law.

The reducers then run on real arrays for every rank, so that whatever a reducer does with sizes, overlaps or values is
done and not guessed. A rank beyond the recorded ones has one of them, drawn by chance, as its parent:

- Of each row-sparse layer it holds as many rows as its parent. Which, is drawn by the law
  (`s2sim.gradients.law`): each row has a probability that fits the number of recorded ranks that hold
  it, and rows are drawn with these probabilities without replacement (B. Rosén, "On sampling with probability
  proportional to size", JSPI 1997).
- The values of a row are what the recorded ranks have in common there, plus or minus what one of them has beside it.
  In common is their mean, shrunk by as much as chance alone would leave of it (W. James and C. Stein, "Estimation with
  quadratic loss", 1961): a mere copy would count the chance of a recorded rank twice, so that a sum over ranks grew too
  fast where they do not agree. A row that no recorded rank holds takes what one of the rarest rows has, either sign.
- Dense layers are its parent's. Zeros in them do not thin out with more ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from s2sim.arrays import Array, Floats, Ints
from s2sim.errors import TraceError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse
from s2sim.gradients.manifest import Manifest
from s2sim.gradients.statistics import GradientSource, check_place, count_holders, occupancy
from s2sim.seeds import named_generator

LAW = "each row has a probability of its own to be held by a rank: binomial mixture fitted to the recorded ranks"

MIN_RANKS = 4
"""Recorded ranks without which nothing can be extrapolated: a law needs two, and another two to be checked on."""

# Probabilities that the mixture may have: 0, 1, and between them equal ratios from a thousandth of what one rank in R
# shows. Rarer rows look like rows that nobody ever holds, whatever the ranks asked for.
_SMALLEST = 1e-3
_PROBABILITIES = 150
# Steps of expectation and maximisation; the union at twice the ranks has settled to 0.3 % by then.
_FIT_STEPS = 5000

# Times the recorded ranks, ahead and back.
_AHEAD = (2, 4, 16)
_BACK = (2, 4, 8)


@dataclass(frozen=True, slots=True, eq=False)
class LayerLaw:
    """How the rows of one table spread over ranks, in float64 arrays of shape (m,).

    ``probabilities`` with which a rank holds a row increase from 0 to 1; ``weights`` are the shares of the table's rows
    that have each of them.
    """

    probabilities: Floats
    weights: Floats

    def union_density(self, ranks: int) -> float:
        """Return the expected share of the table's rows that at least one of ``ranks`` ranks holds."""
        return float(self.weights @ (1 - (1 - self.probabilities) ** ranks))

    def draw(self, counts: Ints, ranks: int, generator: np.random.Generator) -> Floats:
        """Return a probability for each row, drawn given how many of ``ranks`` ranks hold it, int64 (rows,)."""
        drawn = np.empty(len(counts))
        for count, likelihood in zip(*_likelihoods(np.unique(counts), ranks, self.probabilities), strict=True):
            posterior = self.weights * likelihood
            chosen = counts == count
            # The largest double below 1 keeps a rounded sum from pointing beyond the last probability.
            points = generator.random(int(chosen.sum())) * np.nextafter(1, 0)
            shares = np.cumsum(posterior)
            drawn[chosen] = self.probabilities[np.searchsorted(shares, points * shares[-1], side="right")]
        return drawn


@dataclass(frozen=True, slots=True)
class LayerForecast:
    """The law of one table."""

    # Ranks, more than recorded, to the share of rows that at least one of them holds, by the law
    union_density: dict[int, float]
    # For fewer ranks than recorded: what a law fitted to the first of them says of the union of all recorded ranks,
    # over what was recorded, less 1
    errors: dict[int, float]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The law of a trace: what it assumes, the ranks that it was fitted to, and one forecast a row-sparse layer."""

    law: str
    ranks: int
    layers: dict[str, LayerForecast]


def fit_law(source: GradientSource, ranks: int | None = None) -> tuple[LayerLaw | None, ...]:
    """Fit the law of each table, None for a dense layer, to the first ``ranks`` ranks (two or more), or to all."""
    ranks = source.world_size if ranks is None else ranks
    if ranks < 2:
        raise TraceError(f"{ranks} rank tells nothing of how the union grows with ranks: record at least {MIN_RANKS}")
    return tuple(None if counts is None else fit_layer(counts) for counts in occupancy(source, ranks))


def fit_layer(rows_by_count: Ints) -> LayerLaw:
    """Fit the law of one table, of which so many rows are held by exactly k ranks, int64 of shape (ranks + 1,)."""
    ranks = len(rows_by_count) - 1
    probabilities = np.concatenate([[0.0], np.geomspace(_SMALLEST / ranks, 1 - _SMALLEST / ranks, _PROBABILITIES), [1]])
    seen, likelihoods = _likelihoods(np.flatnonzero(rows_by_count), ranks, probabilities)
    shares = rows_by_count[seen] / rows_by_count.sum()
    weights = np.full(len(probabilities), 1 / len(probabilities))
    for _ in range(_FIT_STEPS):
        weights *= (shares / (likelihoods @ weights)) @ likelihoods
    return LayerLaw(probabilities, weights / weights.sum())


def _likelihoods(counts: Ints, ranks: int, probabilities: Floats) -> tuple[Ints, Floats]:
    """Return counts and, for each, the likelihood of all probabilities over the greatest, shape (counts, m)."""
    from scipy.special import xlog1py, xlogy

    logs = xlogy(counts[:, None], probabilities) + xlog1py((ranks - counts)[:, None], -probabilities)
    return counts, np.exp(logs - logs.max(axis=1, keepdims=True))


def forecast(source: GradientSource) -> Forecast | None:
    """Fit the law to a trace and to parts of it; None for fewer ranks than a law and its check need."""
    ranks = source.world_size
    if ranks < MIN_RANKS:
        return None
    whole = fit_law(source)
    parts = {ranks // factor: fit_law(source, ranks // factor) for factor in _BACK if ranks // factor >= 2}
    layers = {}
    for index, (name, counts) in enumerate(zip(source.gradient(0, 0).names, occupancy(source, ranks), strict=True)):
        law = whole[index]
        if law is None or counts is None:
            continue
        recorded = float(1 - counts[0] / counts.sum())
        layers[name] = LayerForecast(
            {factor * ranks: law.union_density(factor * ranks) for factor in _AHEAD},
            {
                few: part.union_density(ranks) / recorded - 1
                for few, fitted in parts.items()
                if (part := fitted[index]) is not None and recorded
            },
        )
    return Forecast(LAW, ranks, layers)


@dataclass(frozen=True, slots=True, eq=False)
class ExtrapolatedRanks:
    """A recorded trace, whose ranks come first as they are, and as many more as asked for, which hold rows by a law.

    ``seed`` is the root of what is drawn; a rank's gradient does not depend on how many there are.
    """

    name: str
    manifest: Manifest
    source: GradientSource
    law: tuple[LayerLaw | None, ...]
    world_size: int
    seed: int
    _kept: dict[int, tuple[list[Gradient], list[_RowPool | None]]] = field(default_factory=dict, init=False, repr=False)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.source.steps

    def gradient(self, step: int, rank: int) -> Gradient:
        """Return one rank's gradient of one step: recorded, or drawn by the law."""
        check_place(self.name, self, step, rank)
        if rank < self.source.world_size:
            return self.source.gradient(step, rank)
        if step not in self._kept:
            gradients = [self.source.gradient(step, other) for other in range(self.source.world_size)]
            self._kept[step] = gradients, self._make_pools(step, gradients)
        recorded, pools = self._kept[step]
        generator = named_generator(self.seed, "extrapolated rank", step, rank)
        parent = recorded[int(generator.integers(len(recorded)))]
        layers: list[Layer] = [
            pool.draw(len(layer.rows), layer.shape, generator) if isinstance(layer, RowSparse) and pool else layer
            for layer, pool in zip(parent.layers, pools, strict=True)
        ]
        return Gradient(parent.names, tuple(layers))

    def _make_pools(self, step: int, recorded: Sequence[Gradient]) -> list[_RowPool | None]:
        pools: list[_RowPool | None] = []
        for index, (law, counts) in enumerate(zip(self.law, count_holders(recorded), strict=True)):
            if law is None or counts is None:
                pools.append(None)
                continue
            generator = named_generator(self.seed, "row probabilities", step, index)
            probabilities = law.draw(counts, len(recorded), generator)
            layers = [layer for gradient in recorded if isinstance(layer := gradient.layers[index], RowSparse)]
            pools.append(_RowPool.of(layers, counts, probabilities))
        return pools


@dataclass(frozen=True, slots=True, eq=False)
class _RowPool:
    """The rows of one table as the recorded ranks hold them."""

    odds: Floats  # Probability over its complement that a rank holds a row; infinite for those that all hold
    # What the ranks have in common in each row that any of them holds; the last is 0, for all other rows
    common: Array
    own: Array  # What each rank has beside it, row by row
    # places, starts, counts: which line of ``common`` belongs to a row; where its values begin in ``own``, and how many
    # there are; of a row that none holds, those of the rarest
    places: Ints
    starts: Ints
    counts: Ints

    @classmethod
    def of(cls, layers: Sequence[RowSparse], counts: Ints, probabilities: Floats) -> _RowPool:
        rows = np.concatenate([layer.rows for layer in layers])
        values = np.concatenate([layer.values.reshape(len(layer.rows), layer.width) for layer in layers])
        # The rarest rows come first, where the values of rows that nobody was seen to hold begin as well.
        order = np.argsort(counts, kind="stable")
        starts = np.empty_like(counts)
        starts[order] = np.cumsum(counts[order]) - counts[order]
        rarest = counts[rows] == counts[counts > 0].min(initial=len(layers))
        held = order[counts[order] > 0]
        common, own = _split_common(values[np.lexsort((rows, counts[rows]))], counts[held])
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


def _split_common(values: Array, counts: Ints) -> tuple[Array, Array]:
    """Return what the ranks have in common in each row, and what each has beside it: shapes (rows + 1 | held, width).

    ``values`` are those of all rows, one after the other, each of which has so many lines there. The last line in
    common is 0. What is beside is as large as the spread of the ranks; all of the value where only one rank holds a
    row.
    """
    common = np.zeros((len(counts) + 1, values.shape[1]), values.dtype)
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
    return common, np.where((counts == 1).repeat(counts)[:, None], values, wider * spread).astype(values.dtype)
