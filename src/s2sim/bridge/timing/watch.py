"""Hooks on a module that mark when its layers run in forward and when its gradients are ready in backward."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from s2sim.bridge.timing.clock import Clock


@dataclass(slots=True)
class Marks:
    """Marks of one step; layers in the order in which forward entered them, as often as it did."""

    # list of (str, mark): names of modules that have parameters of their own.
    layers: list[tuple[str, Any]] = field(default_factory=list)
    # Parameter to the mark of its gradient; without those that got none.
    ready: dict[str, Any] = field(default_factory=dict)
    # forward_end, backward_end, optimizer_end: The loss is there, ``backward`` has returned, the optimizer has made its
    # step.
    forward_end: Any = None
    backward_end: Any = None
    optimizer_end: Any = None


def own_parameters(module: torch.nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the trained parameters that each module has itself, in the order of its modules.

    Parameters are called as `named_parameters` calls them: one that two modules share has the name of the first.
    """
    names = {id(parameter): name for name, parameter in module.named_parameters() if parameter.requires_grad}
    owners = {}
    for name, part in module.named_modules():
        own = tuple(names[id(each)] for each in part.parameters(recurse=False) if id(each) in names)
        if own:
            owners[name] = own
    return owners


@contextmanager
def watching_all(module: torch.nn.Module, clock: Clock) -> Iterator[list[Marks]]:
    """Yield a list to whose last marks every layer and every gradient adds its own, until the block ends."""
    steps: list[Marks] = []
    handles = []

    def entered(name: str) -> Any:
        def enter(*_: Any) -> None:
            # Backward may compute forward again, as with activation checkpoints.
            if steps[-1].forward_end is None:
                steps[-1].layers.append((name, clock.mark()))

        return enter

    def ready(name: str) -> Any:
        return lambda _: steps[-1].ready.__setitem__(name, clock.mark())

    owners = own_parameters(module)
    parts = dict(module.named_modules())
    try:
        handles += [parts[name].register_forward_pre_hook(entered(name)) for name in owners]
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                handles.append(parameter.register_post_accumulate_grad_hook(ready(name)))  # type: ignore[no-untyped-call,unused-ignore]  # as in clock.py
        yield steps
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def watching_begin(module: torch.nn.Module, first: str, clock: Clock) -> Iterator[list[Marks]]:
    """Yield a list like `watching_all`, to which the layer that forward enters first alone adds a mark."""
    steps: list[Marks] = []

    def entered(*_: Any) -> None:
        if not steps[-1].layers:
            steps[-1].layers.append((first, clock.mark()))

    handle = dict(module.named_modules())[first].register_forward_pre_hook(entered)
    try:
        yield steps
    finally:
        handle.remove()
