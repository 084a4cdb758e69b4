"""How models do on data that no rank trains on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.bridge.task import Evaluated, device_of
from s2sim.bridge.texts import hold_out

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from s2sim.arrays import Ints

_MOST_WINDOWS = 64
"""Sequences that a language model is evaluated by; a softmax over all words of more would take longer than to train."""


def split_tokens(tokens: Ints, held_out: float, length: int) -> tuple[Ints, torch.Tensor | None]:
    """Return the words to train on, and windows of the others, see `hold_out`; None where nothing is held out."""
    import torch

    if not held_out:
        return tokens, None
    kept, windows = hold_out(tokens, held_out, length=length, most=_MOST_WINDOWS)
    return kept, torch.from_numpy(windows)


def next_words(
    module: torch.nn.Module, logits: Callable[[torch.Tensor], torch.Tensor], windows: torch.Tensor
) -> Evaluated:
    """Return how a language model foretells the words of windows, int64 of shape (windows, length + 1)."""
    import torch

    with torch.no_grad():
        here = windows.to(device_of(module))
        return _of_classes(logits(here[:, :-1]), here[:, 1:].reshape(-1))


def classes(module: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Evaluated:
    """Return how a network tells the classes of inputs."""
    import torch

    with torch.no_grad():
        device = device_of(module)
        return _of_classes(module(inputs.to(device)), targets.to(device))


def _of_classes(logits: torch.Tensor, targets: torch.Tensor) -> Evaluated:
    import torch

    loss = torch.nn.functional.cross_entropy(logits, targets)
    right = (logits.argmax(dim=1) == targets).double().mean()
    return Evaluated(float(loss), float(right))
