"""Gradients of PyTorch as arrays in host memory, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse, stored, to_dense

if TYPE_CHECKING:
    import torch

    from s2sim.gradients.gradient import Layer


def to_layer(tensor: torch.Tensor, *, sparse: bool) -> Layer:
    """Return a gradient as float32 values in host memory, of which nobody else has a view; exact, also of bfloat16."""
    if tensor.is_sparse:
        rows = tensor.detach().coalesce()
        return RowSparse(rows.indices()[0].cpu().numpy(), _values(rows.values()), tuple(tensor.shape))
    if not sparse:
        return _values(tensor.detach())
    # Stored rows are copies: one of the whole can be spared.
    return as_row_sparse(tensor.detach().cpu().float().contiguous().numpy())


def from_layer(layer: Layer, tensor: torch.Tensor) -> torch.Tensor:
    """Return a layer as a tensor like another one: written into that, unless it is a sparse one."""
    import torch

    if tensor.is_sparse:
        table = layer if isinstance(layer, RowSparse) else as_row_sparse(layer)
        rows, values = torch.from_numpy(table.rows.copy()), torch.from_numpy(np.array(table.values))
        found = torch.sparse_coo_tensor(rows[None], values.to(tensor.dtype), table.shape, is_coalesced=True)
        return found.to(tensor.device)
    # An array that ranks of one process would share may not be written to, which PyTorch warns of.
    array = np.require(to_dense(layer), requirements=["C", "W"])
    return tensor.copy_(torch.from_numpy(array).reshape(tensor.shape))


def is_finite(gradient: Gradient) -> bool:
    """Return whether a gradient has neither infinity nor NaN."""
    return all(bool(np.isfinite(stored(layer)).all()) for layer in gradient.layers)


def not_a_number(gradient: Gradient) -> Gradient:
    """Return as many layers without a number in them."""
    return Gradient(gradient.names, tuple(np.full(layer.shape, np.nan, np.float32) for layer in gradient.layers))


def to_tensors(value: Any) -> Any:
    """Return plain data with tensors for arrays, as PyTorch saves and loads them without running code."""
    import torch

    if isinstance(value, np.ndarray | np.generic):
        return torch.from_numpy(np.array(value))
    if isinstance(value, dict):
        return {key: to_tensors(item) for key, item in value.items()}
    return [to_tensors(item) for item in value] if isinstance(value, list) else value


def from_tensors(value: Any) -> Any:
    """Return the plain data that `to_tensors` was given."""
    import torch

    if isinstance(value, torch.Tensor):
        # Of one that had no dimension, the number.
        return value.cpu().numpy().copy()[()]
    if isinstance(value, dict):
        return {key: from_tensors(item) for key, item in value.items()}
    return [from_tensors(item) for item in value] if isinstance(value, list) else value


def _values(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    import torch

    # A layer has a dimension, if only of one element.
    return np.atleast_1d(tensor.to("cpu", torch.float32, copy=True).contiguous().numpy())
