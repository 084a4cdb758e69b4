"""What an optimizer takes: the bytes that it moves over the memory bandwidth of the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.extrapolation.models import ModelLayer
    from s2sim.profiles.form import Rule
    from s2sim.topology.files.hardware import Gpu

MOVED_BYTES: dict[Rule, int] = {"sgd-momentum": 5 * 4, "adam": 7 * 4}
"""Bytes a parameter in float32, each value once, as fused kernels move them.

SGD reads parameter, gradient and momentum and writes parameter and momentum; Adam has two moments.
"""


def optimizer_ps(rule: Rule, layers: Sequence[ModelLayer], batch: int, gpu: Gpu) -> int:
    """Return the picoseconds of one step; of row-sparse tables only the rows of the mini-batch change."""
    elements = sum(min(layer.size, layer.values * batch) if layer.sparse else layer.size for layer in layers)
    return round(elements * MOVED_BYTES[rule] / gpu.stream_Bps * PS_PER_S)
