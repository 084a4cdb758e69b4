"""1-bit SGD: which elements are negative, and the means of those that are and of those that are not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats32
from s2sim.options import check_options
from s2sim.reducers.rank import Traits
from s2sim.reducers.shared.gathered import Aggregate, Gathered, Message, NumberFormat, read_numbers, write_signs


@dataclass(slots=True)
class OneBitSgd(Gathered):
    """Every element becomes the mean of the elements of its sign; what is lost belongs into a residual (``ef=true``).

    F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
    Speech DNNs", Interspeech 2014, recalled: each rank owns a part of the elements, adds up what it gets of it, and
    sends the sum in one bit again. Both losses belong into residuals.

    Attributes
    ----------
    column : int
        Neighbours in a tensor that have their own means: the paper has two a column of the weight matrix. 0 (default)
        for those of the whole tensor, or of the part of it that an owner gets.
    wire : {"packed", "byte"}
        A bit an element, or a byte, as implemented in GRACE.
    aggregate : {"gather", "two-phase", "server"}
        All messages go to all; or chunks to their owners, or all to rank 0, who add up, encode the sums and send these
        to all.
    """

    column: int = 0
    wire: NumberFormat = "packed"
    aggregate: Aggregate = "two-phase"

    about = Traits(
        name="onebit-sgd",
        summary="the sign of each element, and two means a tensor; owners add up and send one bit again",
        source="Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014; github.com/sands-lab/grace",
        feedback="needed",
        formula="2(n/(8P) + 8L)(P-1)",
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        check_options(self, "onebit-sgd", column=0)

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the means of negative and other elements of every column, shape (2, columns), and the signs."""
        first = np.arange(0, len(vector), self.column or len(vector))
        negative = vector < 0
        counts = np.add.reduceat(negative, first, dtype=np.int64)
        below = np.add.reduceat(np.minimum(vector, 0), first, dtype=np.float64)
        above = np.add.reduceat(np.maximum(vector, 0), first, dtype=np.float64)
        others = np.diff(first, append=len(vector)) - counts
        means = np.stack((below / np.maximum(counts, 1), above / np.maximum(others, 1)))
        return means.astype(np.float32), write_signs(vector, self.wire)

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return the mean of each element's sign."""
        means, signs = message
        positive = read_numbers(signs, 1, self.wire, elements).view(np.bool_)
        if means.shape[1] > 1:
            means = means.repeat(self.column, axis=1)[:, :elements]
        decoded: Floats32 = np.where(positive, means[1], means[0])
        return decoded
