"""What all ranks know to be zero is left out: PacTrain and AG-Sparse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from s2sim.arrays import Ints
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.options import check_options
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.shared import row_sparse as coo
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector
from s2sim.reducers.shared.quantized_values import Signed, all_reduce_scaled
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient
from s2sim.reducers.systems.dense import Dense
from s2sim.reducers.systems.exact_rows import Sparse
from s2sim.seeds import named_generator


@dataclass(slots=True)
class PacTrain(Reducer):
    """An all-reduce of the gradients of those weights that are not pruned, packed by a mask that all ranks know.

    Wang et al., arXiv:2505.18563, by its abstract and a summary; costs are derived. A mask costs no bytes: it changes
    rarely, by n/8 bytes. What the paper's training does, pruned weights without a gradient, the gradients of a trace
    have not been through: all that they hold outside of the mask is lost here and shows as error, which in such a
    training is no error. Nothing of it is fed back.

    Attributes
    ----------
    pruned : float
        Share of the weights that is pruned, from 0 and below 1.
    mask : {"random", "magnitude"}
        Which weights are left, as a trace has no weights: any, drawn once by the shared seed, or those whose mean
        gradient is largest in the first step, which is the smallest error that any mask can have there.
    ternary : bool
        Send what is left as -1, 0 or 1 times the largest magnitude over ranks, drawn at random without bias, summed in
        a byte, or two from 128 ranks on. ceil(log2(2P + 1)) bits would do in a network that adds them.
    kept : int64 array or None
        The mask of largest magnitude, once it is fitted.
    """

    compresses_all = True
    pruned: float = 0.8
    mask: Literal["random", "magnitude"] = "random"
    ternary: bool = False

    kept: Ints | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})

    about = Traits(
        name="pactrain",
        summary="an all-reduce of the gradients of weights that are not pruned, by a mask that all know",
        source="Wang, Wu, Li and Kutscher, PacTrain, arXiv:2505.18563",
        feedback="own",
        formula="8(1-s)n(P-1)/P",
        certainty="summary read",
    )

    def __post_init__(self) -> None:
        check_options(self, "pactrain")
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
            dtype: Signed = "int8" if rank.size <= np.iinfo(np.int8).max else "int16"
            reduced = yield from all_reduce_scaled(rank, packed, [values], levels=1, dtype=dtype)
        else:
            reduced = yield from Dense().held_in(self.held).reduce(rank, packed)
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


@dataclass(slots=True)
class AgSparse(Sparse):
    """Three all-gathers, one after the other: counts, coordinates, values; exact, 20 bytes for each non-zero element.

    What S2 is compared with in its authors' code (``Exact_Embed_Reducer``). `s2sim.reducers.systems.exact_rows` sends
    the same with one number a row: about a fifth. Where there are several tables, that their counts, coordinates and
    values travel together is inferred.
    """

    layers: Layers = "sparse"

    about = Traits(
        name="ag-sparse",
        summary="an all-gather of elements with row and column, padded to the longest: exact, 20 bytes an element",
        source="github.com/GeKeShi/Sparse_Sketch_Reducer (Exact_Embed_Reducer)",
        lossless=True,
        granularity="element, with row and column",
        formula="(P-1)(8L + 20 nnz_max)",
        certainty="code read",
    )

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Gather counts, then coordinates, then values; add them up."""
        own = [coo.to_coordinates(table, split.held) for table in split.tables]
        rank.work(coo.encode_coordinates_cost(split.tables, own))
        counts = yield from coo.agree_on_lengths(rank, own)
        most = counts.max(axis=0).tolist()

        messages = [coo.pad_coordinates(table, length) for table, length in zip(own, most, strict=True)]
        places = rank.all_gather(tuple(at for at, _ in messages), label="coordinates", size_from_data=True)
        yield places
        values = rank.all_gather(tuple(held for _, held in messages), label="values")
        yield values
        dense = split.post_dense(rank)
        rank.work(coo.decode_coordinates_cost(split.tables, rank.size * sum(most), rank.size))

        def sums() -> list[RowSparse]:
            by_table = zip(zip(*places.value, strict=True), zip(*values.value, strict=True), strict=True)
            return [
                coo.sum_coordinates(list(zip(at, held, strict=True)), lengths, table.shape)
                for (at, held), lengths, table in zip(by_table, counts.T, split.tables, strict=True)
            ]

        total = rank.replicated(sums)
        if dense is not None:
            yield dense
        return Reduced(rank.replicated(lambda: split.mean(total, dense, rank.size)), sent=lambda: split.gradient)
