"""Signs: majority vote, with error feedback, and 1-bit SGD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Floats32
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared import gathered

_ONE = np.float32(1)


@dataclass(slots=True)
class SignSgdVote(gathered.Gathered):
    """Every element becomes 1 or -1: the sign that most ranks have; a bit to whoever counts, a bit back.

    J. Bernstein et al., "signSGD: compressed optimisation for non-convex problems", ICML 2018, algorithm 3, and
    "signSGD with majority vote is communication efficient and fault tolerant", ICLR 2019; recalled. The paper's
    parameter server is spread over the ranks by default: each counts a part of every tensor. A bit has no third value:
    zeros vote for 1, as do all rows of a table that a batch does not hold, and ties are 1. What ranks end with is no
    gradient but the direction of a step, whose length is the learning rate.
    """

    aggregate: gathered.Aggregate = option(
        "two-phase", "Parts of every tensor counted by their owners, all by rank 0, or by everybody."
    )
    wire: Literal["packed", "int8"] = option(
        "packed",
        "Bits; or 1, 0 and -1 as one byte each, summed by an all-reduce, as implementations without a server do. "
        "Then zeros do not vote, ties are 0, and more than 127 ranks overflow, which is refused.",
    )

    about = Traits(
        name="signsgd-vote",
        summary="every element's sign, a bit to its owner; the sign of most, a bit to all",
        source="Bernstein et al., signSGD, ICML 2018; signSGD with majority vote, ICLR 2019",
        estimates="sign",
        formula="2(n/8)(P-1)/P; n/8 up and n/8 down with a server",
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        gathered.Gathered.__post_init__(self)
        if self.wire == "int8" and self.aggregate != "two-phase":
            raise OptionError(
                f"signsgd-vote: wire=int8 is summed by an all-reduce: leave aggregate={self.aggregate} out"
            )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Send signs, count, send the sign of most."""
        if self.wire != "int8":
            return (yield from gathered.Gathered.reduce(self, rank, gradient))
        if rank.size > np.iinfo(np.int8).max:
            raise OptionError(f"signsgd-vote: {rank.size} ranks' votes do not fit into wire=int8: leave it out")
        rank.work(cost.write_codes(gradient.size, gradient.size))
        own = gradient.map(lambda values: np.sign(values).astype(np.int8))
        total = rank.all_reduce(own, label="votes")
        yield total
        rank.work(cost.add_codes(gradient.size, 1, gradient.size))
        mean = rank.replicated(lambda: total.value.map(lambda votes: np.sign(votes).astype(np.float32)))
        return Reduced(mean, sent=lambda: own.map(lambda signs: signs.astype(np.float32)))

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        """Return signs: of the elements, or of the votes."""
        return (gathered.write_signs(vector, "packed"),)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        """Return 1 and -1."""
        return gathered.read_signs(message[0], "packed", elements, negative=-_ONE, positive=_ONE)

    def decided(self, total: Floats32, ranks: int) -> Floats32:
        """Return the sign of most."""
        return np.where(total >= 0, _ONE, -_ONE)

    def lost_again(self, messages: Sequence[gathered.Message], sums: Sequence[Floats32]) -> list[Floats32]:
        """Return zeros: a vote that is lost is not given again."""
        return [np.zeros_like(total) for total in sums]


@dataclass(slots=True)
class EfSignSgd(gathered.Gathered):
    """C(p) = ||p||_1 / n sign(p), for each tensor; what it loses belongs into a residual (``ef=true``).

    S. P. Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019,
    algorithm 1; read in github.com/epfml/error-feedback-SGD. Without ``ef=true`` nothing is kept of what is lost. Bits,
    32 to a word, as in PowerSGD's and ChocoSGD's code; zeros count as positive, as one bit has no third value, and the
    paper's bound holds as it stands: ||C(p) - p||^2 <= (1 - ||p||_1^2 / (n ||p||_2^2)) ||p||_2^2 (lemma 8, recalled).
    """

    wire: gathered.NumberFormat = option("packed", "A bit an element, or a byte, as implemented in GRACE.")
    aggregate: gathered.Aggregate = gathered.aggregate_option("gather")

    about = Traits(
        name="ef-signsgd",
        summary="the sign of each element, and the mean magnitude of each tensor",
        source="Karimireddy et al., Error Feedback Fixes SignSGD, ICML 2019; github.com/epfml/error-feedback-SGD",
        feedback="needed",
        formula="(n/8 + 4L)(P-1)",
        certainty="code read",
    )

    def contraction(self, gradient: Gradient) -> float | None:
        """Return ||p||_1^2 / (n ||p||_2^2), the least of all tensors that are not zero, where one loss is all."""
        if self.aggregate != "gather":
            return None
        wide = [vector.astype(np.float64) for vector in gathered.layer_vectors(gradient) if vector.any()]
        return min((np.abs(each).sum() ** 2 / (each.size * np.square(each).sum()) for each in wide), default=1.0)

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        """Return the mean magnitude and the signs."""
        magnitude = np.abs(vector).mean(dtype=np.float64)
        return np.array([magnitude], np.float32), gathered.write_signs(vector, self.wire)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        """Return the mean magnitude with every sign."""
        ((magnitude,), signs) = message
        return gathered.read_signs(signs, self.wire, elements, negative=-magnitude, positive=magnitude)


@dataclass(slots=True)
class OneBitSgd(gathered.Gathered):
    """Every element becomes the mean of the elements of its sign; what is lost belongs into a residual (``ef=true``).

    F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
    Speech DNNs", Interspeech 2014, recalled: each rank owns a part of the elements, adds up what it gets of it, and
    sends the sum in one bit again. Both losses belong into residuals.
    """

    minimums: ClassVar = {"column": 0}
    column: int = option(
        0,
        "Neighbours in a tensor that have their own means: the paper has two a column of the weight matrix. 0 "
        "(default) for those of the whole tensor, or of the part of it that an owner gets.",
    )
    wire: gathered.NumberFormat = option("packed", "A bit an element, or a byte, as implemented in GRACE.")
    aggregate: gathered.Aggregate = gathered.aggregate_option("two-phase")

    about = Traits(
        name="onebit-sgd",
        summary="the sign of each element, and two means a tensor; owners add up and send one bit again",
        source="Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014; github.com/sands-lab/grace",
        feedback="needed",
        formula="2(n/(8P) + 8L)(P-1)",
        certainty="recalled",
    )

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        """Return the means of negative and other elements of every column, shape (2, columns), and the signs."""
        first = np.arange(0, len(vector), self.column or len(vector))
        negative = vector < 0
        counts = np.add.reduceat(negative, first, dtype=np.int64)
        below = np.add.reduceat(np.minimum(vector, 0), first, dtype=np.float64)
        above = np.add.reduceat(np.maximum(vector, 0), first, dtype=np.float64)
        others = np.diff(first, append=len(vector)) - counts
        means = np.stack((below / np.maximum(counts, 1), above / np.maximum(others, 1)))
        return means.astype(np.float32), gathered.write_signs(vector, self.wire)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        """Return the mean of each element's sign."""
        means, signs = message
        positive = gathered.read_numbers(signs, 1, self.wire, elements).view(np.bool_)
        if means.shape[1] > 1:
            means = means.repeat(self.column, axis=1)[:, :elements]
        decoded: Floats32 = np.where(positive, means[1], means[0])
        return decoded
