"""How much a mini-batch computes."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.bridge.task import Task


def operations(task: Task) -> int:
    """Return the floating-point operations of matrix products in forward and backward of one rank's mini-batch.

    Multiplications and additions count apart, as PyTorch counts them.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with warnings.catch_warnings():
        # Some versions speak of Intel's GPUs when oneDNN is set to anything.
        warnings.simplefilter("ignore")
        # A recurrent layer that one kernel of oneDNN computes counts nothing.
        with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
            torch.autograd.backward(task.loss(0, 0))
    task.module.zero_grad(set_to_none=True)
    return int(counter.get_total_flops())


def tensors_of(task: Task) -> int:
    """Return how many parameters the model has, tables and biases counting as one each."""
    return len(list(task.module.parameters()))
