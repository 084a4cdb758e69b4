"""Gradients, weights and optimizers as arrays, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse, to_dense

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from s2sim.bridge.task import Task
    from s2sim.gradients.gradient import Layer

    Parameters = Mapping[str, torch.nn.Parameter]


def keep_rows(task: Task) -> None:
    """Let the task's embedding tables leave gradients of the rows that a batch touches, not of all."""
    import torch

    for name, module in task.module.named_modules():
        if isinstance(module, torch.nn.Embedding) and f"{name}.weight" in task.sparse:
            module.sparse = True


def gradient_of(parameters: Parameters, sparse: frozenset[str]) -> Gradient:
    """Return what backward has left, float32; it is of no use to PyTorch after that."""
    return Gradient(tuple(parameters), tuple(_layer_of(each, name in sparse) for name, each in parameters.items()))


def _layer_of(parameter: torch.nn.Parameter, is_sparse: bool) -> Layer:
    gradient = parameter.grad
    if gradient is None:
        zeros = np.zeros(tuple(parameter.shape), np.float32)
        return as_row_sparse(zeros) if is_sparse else zeros
    if gradient.is_sparse:
        rows = gradient.coalesce()
        return RowSparse(rows.indices()[0].numpy(), rows.values().numpy(), tuple(parameter.shape))
    array = np.ascontiguousarray(gradient.numpy())
    return as_row_sparse(array) if is_sparse else array


def hand_over(gradient: Gradient, parameters: Parameters, *, rows: bool) -> None:
    """Leave a gradient to the optimizer; ``rows`` says whether it takes those that hold rows alone."""
    import torch

    for (_, layer), parameter in zip(gradient, parameters.values(), strict=True):
        if rows and isinstance(layer, RowSparse):
            where = torch.from_numpy(np.array(layer.rows))[None]
            # The rows increase, so that nothing has to be looked for twice.
            parameter.grad = torch.sparse_coo_tensor(
                where, _tensor(layer.values), layer.shape, is_coalesced=True, check_invariants=False
            )
        else:
            parameter.grad = _tensor(to_dense(layer))


def _tensor(array: Any) -> torch.Tensor:
    """Return a float32 tensor, of a copy where others may read the array."""
    import torch

    writeable = array.dtype == np.float32 and array.flags.writeable and array.flags.c_contiguous
    return torch.from_numpy(array if writeable else np.array(array, np.float32, order="C"))


def weights_of(parameters: Parameters) -> dict[str, Any]:
    """Return copies of the weights by name."""
    return {name: parameter.detach().numpy().copy() for name, parameter in parameters.items()}


def set_weights(parameters: Parameters, weights: Mapping[str, Any]) -> None:
    """Give a model other weights, which are copied."""
    import torch

    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.array(weights[name], np.float32)))


def optimizer_state(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return what an optimizer keeps of each parameter, as arrays by name; nothing of those without."""
    kept = optimizer.state_dict()["state"]
    numbers = range(sum(len(group["params"]) for group in optimizer.param_groups))
    return [
        {name: None if value is None else value.numpy().copy() for name, value in kept.get(number, {}).items()}
        for number in numbers
    ]


def restore_optimizer(optimizer: torch.optim.Optimizer, state: list[dict[str, Any]]) -> None:
    """Go on from an `optimizer_state`."""
    import torch

    kept = {
        number: {name: None if value is None else torch.from_numpy(np.array(value)) for name, value in each.items()}
        for number, each in enumerate(state)
        if each
    }
    optimizer.load_state_dict({**optimizer.state_dict(), "state": kept})
