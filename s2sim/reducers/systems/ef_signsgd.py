"""EF-signSGD: signs, and the mean magnitude of each tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats32
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.rank import Traits
from s2sim.reducers.shared.gathered import (
    Aggregate,
    Gathered,
    Message,
    NumberFormat,
    layer_vectors,
    read_signs,
    write_signs,
)


@dataclass(slots=True)
class EfSignSgd(Gathered):
    """C(p) = ||p||_1 / n sign(p), for each tensor; what it loses belongs into a residual (``ef=true``).

    S. P. Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019,
    algorithm 1; read in github.com/epfml/error-feedback-SGD. Without ``ef=true`` nothing is kept of what is lost. Bits,
    32 to a word, as in PowerSGD's and ChocoSGD's code; zeros count as positive, as one bit has no third value, and the
    paper's bound holds as it stands: ||C(p) - p||^2 <= (1 - ||p||_1^2 / (n ||p||_2^2)) ||p||_2^2 (lemma 8, recalled).

    Attributes
    ----------
    wire : {"packed", "byte"}
        A bit an element, or a byte, as implemented in GRACE.
    aggregate : {"gather", "two-phase", "server"}
        All messages go to all; or chunks to their owners, or all to rank 0, who add up, encode the sums and send these
        to all.
    """

    wire: NumberFormat = "packed"
    aggregate: Aggregate = "gather"

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
        wide = [vector.astype(np.float64) for vector in layer_vectors(gradient) if vector.any()]
        return min((np.abs(each).sum() ** 2 / (each.size * np.square(each).sum()) for each in wide), default=1.0)

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the mean magnitude and the signs."""
        magnitude = np.abs(vector).mean(dtype=np.float64)
        return np.array([magnitude], np.float32), write_signs(vector, self.wire)

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return the mean magnitude with every sign."""
        ((magnitude,), signs) = message
        return read_signs(signs, self.wire, elements, negative=-magnitude, positive=magnitude)
