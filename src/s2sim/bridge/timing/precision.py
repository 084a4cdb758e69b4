"""The precision of a training's matrix products, as PyTorch is told of it."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from s2sim.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from s2sim.bridge.timing.subject import Subject
    from s2sim.profiles.form import Precision


def check_precision(precision: Precision, device: str) -> None:
    """Refuse a precision that a device does not have."""
    if precision == "tf32" and device == "cpu":
        raise OptionError("--precision tf32 is of GPUs: record with --device cuda")


@contextmanager
def in_precision(subject: Subject, precision: Precision, device: str) -> Iterator[Subject]:
    """Yield a subject whose matrix products have a precision: TF32 allowed or not, half precision by autocast.

    PyTorch's own settings are as before when the block ends.
    """
    import torch

    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32 = convolution.allow_tf32 = precision == "tf32"
    try:
        yield replace(subject, loss=lambda step: _loss(subject, step, precision, device))
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before


def _loss(subject: Subject, step: int, precision: Precision, device: str) -> torch.Tensor:
    import torch

    halves = {"fp16": torch.float16, "bf16": torch.bfloat16}
    context: Any = torch.autocast(device, halves[precision]) if precision in halves else nullcontext()
    with context:
        return subject.loss(step)
