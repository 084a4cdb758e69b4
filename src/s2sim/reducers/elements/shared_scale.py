"""Elements as whole multiples of a step that all ranks share, so that a plain all-reduce of integers sums them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from s2sim.codecs.levels import from_levels, largest_magnitude, to_levels
from s2sim.errors import S2SimError
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.elements.flat import from_layer_vectors
from s2sim.reducers.rank import Reduced
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank

Rounding: TypeAlias = Literal["stochastic", "nearest"]
Signed: TypeAlias = Literal["int8", "int16"]


def levels_for(ranks: int, dtype: Signed, owner: str) -> int:
    """Return how many levels on either side of zero a sum over ranks has room for; `S2SimError` if there is none."""
    levels = int(np.iinfo(dtype).max) // ranks
    if not levels:
        raise S2SimError(f"{owner}: a sum over {ranks} ranks has no room in {dtype} for one level each: take int16")
    return levels


def reduce_shared(
    rank: Rank,
    gradient: Gradient,
    vectors: Sequence[Floats32],
    *,
    levels: int,
    dtype: Signed,
    rounding: Rounding = "stochastic",
) -> Program:
    """All-reduce the largest magnitude in each of the layers' ``vectors``, then sum multiples of its share.

    An element is rounded to one of ``levels`` on either side of zero, of which the last is the scale. What is random is
    drawn for each rank and step.
    """
    sizes = [len(vector) for vector in vectors]
    rank.work(cost.find_scale(sum(sizes)))
    largest = np.array([largest_magnitude(vector) for vector in vectors], np.float32)
    scales = rank.all_reduce(largest, "max", label="scales")
    yield scales
    random = named_generator(rank.seed, "shared scale", rank.step, rank.index) if rounding == "stochastic" else None
    each_scale = [scales.value[index : index + 1] for index in range(len(sizes))]
    own = tuple(
        _signed(to_levels(vector, scale, max(1, len(vector)), levels, random), levels, dtype)
        for vector, scale in zip(vectors, each_scale, strict=True)
    )
    rank.work(cost.write_codes(sum(sizes), sum(part.nbytes for part in own)))
    total = rank.all_reduce(own, label="levels")
    yield total
    rank.work(cost.add_codes(sum(sizes), 1, sum(part.nbytes for part in own)))

    def decoded(parts: Sequence[NDArray[np.signedinteger]], most: int) -> list[Floats32]:
        """Return the share of its scale that every number has of ``most``."""
        return [
            from_levels(part.astype(np.int32) + most, scale, max(1, len(part)), most)
            for part, scale in zip(parts, each_scale, strict=True)
        ]

    mean = rank.replicated(lambda: from_layer_vectors(decoded(total.value, levels * rank.size), gradient))
    return Reduced(mean, sent=lambda: from_layer_vectors(decoded(own, levels), gradient))


def _signed(numbers: NDArray[np.unsignedinteger], levels: int, dtype: Signed) -> NDArray[np.signedinteger]:
    return (numbers.astype(np.int32) - levels).astype(dtype)
