"""What comes out of one reduction, whatever reduced it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.gradient import to_dense
from s2sim.reducers.measure import ended, mean_float64, worst_error
from s2sim.reducers.scripts.traffic import ring_bytes
from s2sim.testing.require import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Reduced, Reducer
    from s2sim.reducers.scripts.script import Recording

LOSSLESS_ERROR = 1e-6


def equal(left: Gradient, right: Gradient) -> bool:
    """Return whether two gradients have the same values."""
    return all(np.array_equal(to_dense(a), to_dense(b)) for a, b in zip(left.layers, right.layers, strict=True))


def check_results(results: Sequence[Reduced], gradients: Sequence[Gradient], where: str, *, agrees: bool) -> None:
    """Check that shapes and types are the input's, and that all ranks end with the same if they say so."""
    for gradient, result in zip(gradients, results, strict=True):
        for what, found in (("mean", result.mean), ("sent", result.sent())):
            require(found.names == gradient.names, f"{what} has other layers than the gradient {where}")
            for (name, layer), like in zip(found, gradient.layers, strict=True):
                require(layer.shape == like.shape, f"{what} of {name!r} has shape {layer.shape}, not {like.shape}")
                require(layer.dtype == np.float32, f"{what} of {name!r} is {layer.dtype}, not float32")
                require(bool(np.isfinite(to_dense(layer)).all()), f"{what} of {name!r} is not finite {where}")
        if agrees and result.mean is not results[0].mean:
            require(equal(result.mean, results[0].mean), f"the ranks end with different values {where}")


def check_accuracy(reducer: Reducer, results: Sequence[Reduced], gradients: Sequence[Gradient], where: str) -> None:
    """Check that a lossless reducer gives the mean, and the input on one rank; other layers are exact in all."""
    compressed = reducer.compresses(gradients[0])
    count = len(gradients[0].layers)
    require(
        list(compressed) == sorted(set(compressed) & set(range(count))), f"compresses() gives {compressed} of {count}"
    )
    errors = worst_error(ended(results, reducer.traits), mean_float64(gradients), compressed)
    for index, (name, error) in enumerate(errors.layers.items()):
        if reducer.traits.lossless or index not in compressed:
            exact = error.relative_l2 is not None and error.relative_l2 <= LOSSLESS_ERROR
            require(exact, f"{name!r} is off by {error.relative_l2} {where}, though it should be exact")
    if reducer.traits.lossless:
        require(len(gradients) > 1 or equal(results[0].mean, gradients[0]), "one rank does not get its own gradient")
        for gradient, result in zip(gradients, results, strict=True):
            require(equal(result.sent(), gradient), f"a lossless reducer's sent is not its input {where}")


def check_bound(ran: Reducer, gradient: Gradient) -> None:
    """Check that a reducer that has run, and knows a bound of its error, knows it of every layer that it compresses."""
    bound = ran.error_bound()
    if bound is not None:
        count = sum(gradient.layers[index].size > 0 for index in ran.compresses(gradient))
        require(len(bound.element) == count, f"error_bound() is of {len(bound.element)} layers, {count} are compressed")


def check_traffic(recording: Recording, ranks: int) -> None:
    """Check that every member takes part in every collective and that what is sent is received."""
    for call in recording.calls:
        members = call.ranks or range(ranks)
        require(
            len(call.elements) == len(members), f"{call.label!r} has {len(call.elements)} of {len(members)} members"
        )
        require(list(members) == sorted(set(members) & set(range(ranks))), f"{call.label!r} is of ranks {call.ranks}")
        alike = call.kind in ("all_reduce", "reduce", "broadcast")
        require(not alike or len(set(call.elements)) == 1, f"{call.label!r} differs in size")
        whole = tuple(map(sum, call.blocks))
        require(call.kind != "all_to_all" or whole == call.elements, f"{call.label!r} has blocks of other sizes")
        sent, received = ring_bytes(call)
        require(int(sent.sum()) == int(received.sum()), f"{call.label!r} does not receive what is sent")
        require(len(members) > 1 or not sent.any(), f"{call.label!r} sends bytes on a single rank")
