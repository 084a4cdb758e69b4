"""signSGD with majority vote: every rank's signs, and the sign of most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from s2sim.arrays import Floats32
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared.gathered import Aggregate, Gathered, Message, read_signs, write_signs

_ONE = np.float32(1)


@dataclass(slots=True)
class SignSgdVote(Gathered):
    """Every element becomes 1 or -1: the sign that most ranks have; a bit to whoever counts, a bit back.

    J. Bernstein et al., "signSGD: compressed optimisation for non-convex problems", ICML 2018, algorithm 3, and
    "signSGD with majority vote is communication efficient and fault tolerant", ICLR 2019; recalled. The paper's
    parameter server is spread over the ranks by default: each counts a part of every tensor. A bit has no third value:
    zeros vote for 1, as do all rows of a table that a batch does not hold, and ties are 1. What ranks end with is no
    gradient but the direction of a step, whose length is the learning rate.

    Attributes
    ----------
    aggregate : {"two-phase", "server", "gather"}
        Parts of every tensor counted by their owners, all by rank 0, or by everybody.
    wire : {"packed", "int8"}
        Bits; or 1, 0 and -1 as one byte each, summed by an all-reduce, as implementations without a server do. Then
        zeros do not vote, ties are 0, and more than 127 ranks overflow, which is refused.
    """

    aggregate: Aggregate = "two-phase"
    wire: Literal["packed", "int8"] = "packed"

    about = Traits(
        name="signsgd-vote",
        summary="every element's sign, a bit to its owner; the sign of most, a bit to all",
        source="Bernstein et al., signSGD, ICML 2018; signSGD with majority vote, ICLR 2019",
        estimates="sign",
        formula="2(n/8)(P-1)/P; n/8 up and n/8 down with a server",
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        check_options(self, "signsgd-vote")
        if self.wire == "int8" and self.aggregate != "two-phase":
            raise OptionError(
                f"signsgd-vote: wire=int8 is summed by an all-reduce: leave aggregate={self.aggregate} out"
            )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Send signs, count, send the sign of most."""
        if self.wire == "int8":
            return (yield from self._all_reduce(rank, gradient))
        return (yield from Gathered.reduce(self, rank, gradient))

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return signs: of the elements, or of the votes."""
        return (write_signs(vector, "packed"),)

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return 1 and -1."""
        return read_signs(message[0], "packed", elements, negative=-_ONE, positive=_ONE)

    def decided(self, total: Floats32, ranks: int) -> Floats32:
        """Return the sign of most."""
        return np.where(total >= 0, _ONE, -_ONE)

    def lost_again(self, messages: Sequence[Message], sums: Sequence[Floats32]) -> list[Floats32]:
        """Return zeros: a vote that is lost is not given again."""
        return [np.zeros_like(total) for total in sums]

    def _all_reduce(self, rank: Rank, gradient: Gradient) -> Program:
        if rank.size > np.iinfo(np.int8).max:
            raise OptionError(f"signsgd-vote: {rank.size} ranks' votes do not fit into wire=int8: leave it out")
        rank.work(cost.write_codes(gradient.size, gradient.size))
        own = gradient.map(lambda values: np.sign(values).astype(np.int8))
        total = rank.all_reduce(own, label="votes")
        yield total
        rank.work(cost.add_codes(gradient.size, 1, gradient.size))
        mean = rank.replicated(lambda: total.value.map(lambda votes: np.sign(votes).astype(np.float32)))
        return Reduced(mean, sent=lambda: own.map(lambda signs: signs.astype(np.float32)))
