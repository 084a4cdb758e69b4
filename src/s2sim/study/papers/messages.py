"""Lengths of real messages of gradients whose shapes alone are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.gradients.gradient import Gradient


def normal_gradient(shapes: Iterable[tuple[int, ...]], seed: int = 0) -> Gradient:
    """Return a dense float32 gradient with layers of these shapes, standard normal."""
    from s2sim.gradients.gradient import Gradient

    generator = np.random.default_rng(seed)
    layers = tuple(generator.standard_normal(shape, np.float32) for shape in shapes)
    return Gradient(tuple(f"layer{place}" for place in range(len(layers))), layers)


def message_bytes(reducer: str, gradient: Gradient) -> int:
    """Return the bytes that one rank hands to collectives in one step, or all steps of a reducer's period.

    Without feedback and what is carried over, a message depends on one gradient alone.
    """
    from s2sim.reducers.registry import make_reducer
    from s2sim.reducers.run import run_reducer

    ran = run_reducer(make_reducer(reducer), [gradient], seed=0)
    return sum(call.bytes_by_rank[0] for call in ran.recording.calls)
