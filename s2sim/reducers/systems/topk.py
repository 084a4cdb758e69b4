"""Top-k, and the selection by sampled thresholds of deep gradient compression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from s2sim.codecs.cardinality import decode_distances, encode_distances
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.top_k import to_pairs
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared.gathered import from_flat_vector
from s2sim.reducers.shared.pairs import add_pairs
from s2sim.reducers.shared.selection import (
    Granularity,
    Selecting,
    count_kept,
    select_approximately,
    select_largest,
    smallest_kept_share,
)


@dataclass(slots=True)
class TopK(Selecting):
    """An all-gather of (index, value) pairs of the k elements of largest magnitude, of the gradient or of each layer.

    k is known in advance and the same on all ranks, so that no size is exchanged and no host waits for one. Pairs
    (0, 0.0) fill up where a rank stores fewer values.
    """

    density: float = 0.01
    granularity: Granularity = option(
        "global",
        "Whether the largest are those of each layer (``TopKReducer`` of github.com/epfml/powersgd, GRACE) or of "
        "the whole gradient (``GlobalTopKReducer``). The pairs of all layers are packed into one message in both. "
        "Where training exchanges gradients in buckets, those of a layer leave with their bucket; those of the "
        "whole gradient wait for it, as no bucket by itself knows which they are.",
    )

    about = Traits(
        name="topk",
        summary="an all-gather of each rank's k largest elements as index and value",
        source="Aji and Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017",
        feedback="needed",
        formula="8k(P-1)",
        certainty="code read",
        size_only=True,
        scope="gradient",
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Select, gather, add all pairs up."""
        k = count_kept(gradient, self.density, self.granularity)
        pairs = select_largest(rank, gradient, self.density, self.granularity)
        gathered = rank.all_gather(pairs.message(self.held, length=k), label="largest elements")
        yield gathered
        rank.work(cost.add_pairs(gradient.nbytes, rank.size * k))

        def mean() -> Gradient:
            total = add_pairs(np.zeros(gradient.size, np.float32), gathered.value)
            return from_flat_vector(total / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, pairs))

    @property
    def traits(self) -> Traits:
        """With what it is defined over, which the granularity decides."""
        return self.about if self.granularity == "global" else replace(self.about, scope="bucket")

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n: no k elements have a larger square (Stich et al., NeurIPS 2018, section 2)."""
        return smallest_kept_share(gradient, self.density, self.granularity)


_BYTES = {"int32": 8, "int64": 12, "distance16": 6}


@dataclass(slots=True)
class DgcSelect(Selecting):
    """An all-gather of the elements of largest magnitude of each layer, with 0.001 of them as default.

    Y. Lin et al., "Deep gradient compression", ICLR 2018, algorithm 4 less momentum, as recalled; the authors'
    repository was read. There vectors, such as biases, travel densely beside it, which is not done here.
    """

    density: float = 0.001
    coding: Literal["int32", "int64", "distance16"] = option(
        "int32",
        "How an element's place travels beside its four bytes: in four bytes, which nobody published, in eight, as "
        "the authors' code has it, or as its distance to the one before in two, as the paper counts.",
    )
    threshold: Literal["exact", "sampled"] = option(
        "exact",
        "The exactly largest, or about as many: those over a threshold that one element in a hundred tells, as the "
        "authors' code has it, see `s2sim.reducers.shared.selection`.",
    )

    about = Traits(
        name="dgc-select",
        summary="an all-gather of the largest elements of each layer, in one of three codings",
        source="Lin et al., Deep Gradient Compression, ICLR 2018; github.com/synxlin/deep-gradient-compression",
        feedback="needed",
        certainty="code read",
    )

    @property
    def traits(self) -> Traits:
        """Bytes depend on the coding."""
        return replace(self.about, formula=f"{_BYTES[self.coding]}k(P-1)")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Select in each layer, code, gather, add up."""
        find = select_largest if self.threshold == "exact" else select_approximately
        pairs = find(rank, gradient, self.density, "layer")
        known, coded = self.threshold == "exact", self.coding == "distance16"
        if coded:
            message = encode_distances(pairs.indices, round_to_dtype(pairs.values, self.held))
        else:
            # Where the size is fixed, zeros fill up.
            k = count_kept(gradient, self.density, "layer") if known else len(pairs)
            padded = to_pairs(pairs.indices, pairs.values, k)
            dtype = np.int64 if self.coding == "int64" else np.uint32
            message = padded["indices"].astype(dtype), round_to_dtype(padded["values"], self.held)
        gathered = rank.all_gather(message, label="largest elements", size_from_data=coded or not known)
        yield gathered
        rank.work(cost.add_pairs(gradient.nbytes, sum(len(values) for _, values in gathered.value)))

        def mean() -> Gradient:
            total = np.zeros(gradient.size, np.float32)
            for places, values in gathered.value:
                indices = decode_distances(places, gradient.size) if coded else places.astype(np.int64)
                np.add.at(total, indices, widen(values))
            return from_flat_vector(total / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, pairs))

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n of the layer that keeps least, where selection is exact."""
        return smallest_kept_share(gradient, self.density, "layer") if self.threshold == "exact" else None
