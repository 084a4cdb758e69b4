"""What the precision of matrix products changes: their peak, the share of it that they reach, and bytes in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.profiles.form import Precision

VALUE_BYTES: dict[Precision, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
"""Of an activation or a weight, by the precision of matrix products."""

# By rates of training in github.com/NVIDIA/DeepLearningExamples: 0.8 (ResNet-50 in fp16 on a V100), 0.6 (on an A100),
# 0.3 (in TF32 there), of the share that they reach in fp32 by the same count.
_TENSOR_CORES = 0.5


def reached(precision: Precision, measured: Precision) -> float:
    """Return the share of its peak that a precision's products reach, over that of the precision that was measured.

    Tensor cores wait for operands, so that of their peak about half as much is reached: an estimate.

    >>> reached("bf16", "fp32"), reached("bf16", "fp16")
    (0.5, 1.0)
    """
    return _share(precision) / _share(measured)


def _share(precision: Precision) -> float:
    return 1.0 if precision == "fp32" else _TENSOR_CORES
